"""Files that are whole or not there: written under another name, and given their own when complete."""

from __future__ import annotations

import contextlib
import glob
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


class UnwritableOutputError(Exception):
    """A file cannot be made where it was asked for."""


class UnfinishedFile:
    """A file on its way to `path`. `commit()` gives it its name; `discard()` removes it if it has none yet."""

    def __init__(self, path: Path) -> None:
        try:
            if path.is_symlink():
                path = path.resolve()
            _refuse_what_no_file_can_replace(path)
            self.path = path
            self._unfinished = path.with_name(f".{path.name}.{_this_host()}.{os.getpid()}.unfinished")
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(path)
            self.stream: BinaryIO = self._unfinished.open("wb")
        except OSError as error:
            raise UnwritableOutputError(f"{path}: cannot be written: {error.strerror}") from error
        except ValueError as error:
            raise UnwritableOutputError(f"{str(path)!r}: cannot be written: {error}") from error

    def commit(self) -> None:
        """Bring the content to the disk, then the file to its name."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        self._unfinished.replace(self.path)

    def discard(self, error: BaseException | None = None) -> None:
        """Remove what was not committed; let an error of the file system name the file."""
        with contextlib.suppress(OSError):
            self.stream.close()
        self._unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(self.path)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name if the block ends without an error."""
    unfinished = UnfinishedFile(path)
    try:
        yield unfinished.stream
        unfinished.commit()
    except BaseException as error:
        unfinished.discard(error)
        raise


def is_being_written(path: Path) -> bool:
    """Whether a process is on its way to `path`. Of other machines, what a killed process left counts too."""
    return any(map(_owner_may_run, unfinished_files(path)))


def unfinished_files(path: Path, host: str = "*") -> Iterator[Path]:
    """Yield what processes of `host` (a pattern) have written of `path`, or left of it when they were killed."""
    return path.parent.glob(f".{glob.escape(path.name)}.{host}.*.unfinished")


def _refuse_what_no_file_can_replace(path: Path) -> None:
    if path.is_dir():
        raise UnwritableOutputError(f"{path}: is a directory; name a file")
    if path.exists() and not path.is_file():
        raise UnwritableOutputError(f"{path}: is not a regular file, and cannot be replaced by one")
    if path.parent.exists() and not path.parent.is_dir():
        raise UnwritableOutputError(f"{path}: cannot be written: {path.parent} is not a directory")


def _this_host() -> str:
    return socket.gethostname().replace(".", "-")


def _remove_abandoned(path: Path) -> None:
    """Remove what killed processes of this machine left of `path`."""
    for unfinished in unfinished_files(path, glob.escape(_this_host())):
        if not _owner_may_run(unfinished):
            unfinished.unlink(missing_ok=True)


def _owner_may_run(unfinished: Path) -> bool:
    """Whether the process that began a file may go on with it: it runs, or is another machine's."""
    *_, host, owner, _ = unfinished.name.split(".")
    return host != _this_host() or not owner.isdigit() or _is_running(int(owner))


def _is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
