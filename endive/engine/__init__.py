"""The compiled engine: the simulation as a Numba kernel, with the bits of the reference.

Nothing here imports Numba before a run asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from endive.engine.errors import EngineError, NotCompiledError

if TYPE_CHECKING:
    from endive.engine.encoding import Machine
    from endive.simulation import SimulationConfig

__all__ = ["EngineError", "NotCompiledError", "prepare_machine", "warm"]


def prepare_machine(config: SimulationConfig, seed: int) -> Machine:
    """Return a run of a configuration, ready for the kernel; raise NotCompiledError if it cannot be."""
    from endive.engine.encoding import encode

    machine = encode(config, seed)
    warm()
    return machine


def warm() -> None:
    """Make the kernel ready: from the cache, or by compiling it. Raise NotCompiledError if its draws are wrong here."""
    from endive.engine.warming import warm_once

    warm_once()
