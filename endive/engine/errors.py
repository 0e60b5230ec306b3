"""What can go wrong with the compiled engine."""

from __future__ import annotations


class NotCompiledError(ValueError):
    """The compiled engine cannot run a configuration; the message says what it does not know."""


class EngineError(RuntimeError):
    """The compiled engine failed; the message says on which configuration and seed."""
