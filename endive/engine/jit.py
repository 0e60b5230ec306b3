"""How the engine's functions are compiled, and where the compiled kernel is kept.

The cache folder is named after a hash of the engine's sources and the version of Numba, because Numba alone
would not notice an edit in a function that another file calls.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import numba

_numba_config: Final[Any] = numba.config
Function = TypeVar("Function", bound=Callable[..., Any])

# No function makes or returns an array, so none counts references; and Python calls the entry points alone.
_ENTRY: Final[dict[str, Any]] = {"_nrt": False}
_HELPER: Final[dict[str, Any]] = {**_ENTRY, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

CACHE_VARIABLE: Final = "ENDIVE_CACHE_DIR"


def called(function: Function) -> Function:
    """Compile a function that keeps a body of its own."""
    compiled: Function = numba.njit(**_HELPER)(function)
    return compiled


def inlined(function: Function) -> Function:
    """Compile a function into each of its callers: for small ones that run all the time."""
    compiled: Function = numba.njit(forceinline=True, **_HELPER)(function)
    return compiled


def spliced(function: Function) -> Function:
    """Write a function into its callers before they are compiled: for what was split for the reader."""
    compiled: Function = numba.njit(inline="always", **_HELPER)(function)
    return compiled


def cached(function: Function) -> Function:
    """Compile a function on its first call, or take it from the cache folder."""
    configured = _numba_config.CACHE_DIR
    _numba_config.CACHE_DIR = str(cache_folder())
    try:
        compiled: Function = numba.njit(cache=True, **_ENTRY)(function)
    finally:
        _numba_config.CACHE_DIR = configured
    return compiled


def cache_folder() -> Path:
    """Return the folder of this engine's compiled kernel, made if it was not there."""
    folder = _cache_root() / f"engine-{_engine_hash()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="endive-"))


def _cache_root() -> Path:
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "endive"


def _engine_hash() -> str:
    digest = hashlib.sha256(f"numba {numba.__version__} bounds {_numba_config.BOUNDSCHECK}".encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
