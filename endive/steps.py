"""What a transaction spends time on: the steps that a trace shows, and the component that each counts as."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class Component(IntEnum):
    """What a delay of a transaction counts as in its result."""

    CATALOG_READ = 0
    PER_ATTEMPT_IO = 1
    CONFLICT_IO = 2
    CATALOG_COMMIT = 3
    BACKOFF = 4
    RUNTIME = 5


class Step(NamedTuple):
    """Something a transaction spends time on."""

    title: str
    component: Component


class StorageSteps(NamedTuple):
    """The steps of work on manifests."""

    read_metadata: Step
    read_list: Step
    read_history: Step
    read_files: Step
    write_files: Step
    write_list: Step


READ_CATALOG: Final = Step("read catalog", Component.CATALOG_READ)
WORK: Final = Step("work", Component.RUNTIME)
COMMIT: Final = Step("commit", Component.CATALOG_COMMIT)
BACK_OFF: Final = Step("back off", Component.BACKOFF)
APPEND_TO_LIST: Final = Step("append to manifest list", Component.PER_ATTEMPT_IO)
WRITE_METADATA: Final = Step("write table metadata", Component.PER_ATTEMPT_IO)
ATTEMPT: Final = StorageSteps(
    Step("read table metadata", Component.PER_ATTEMPT_IO),
    Step("read manifest list", Component.PER_ATTEMPT_IO),
    Step("read historical manifest lists", Component.PER_ATTEMPT_IO),
    Step("read manifest files", Component.PER_ATTEMPT_IO),
    Step("write manifest files", Component.PER_ATTEMPT_IO),
    Step("write manifest list", Component.PER_ATTEMPT_IO),
)
CONFLICT: Final = StorageSteps(
    Step("read table metadata of missed commits", Component.PER_ATTEMPT_IO),
    Step("read manifest list of missed commits", Component.CONFLICT_IO),
    Step("read historical manifest lists", Component.CONFLICT_IO),
    Step("read conflicting manifest files", Component.CONFLICT_IO),
    Step("write merged manifest files", Component.CONFLICT_IO),
    Step("write manifest list of missed commits", Component.CONFLICT_IO),
)
