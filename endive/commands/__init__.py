"""The commands of `endive`, a module each: what it takes, what it says of itself, and what it does.

`handle` returns an exit code. A command imports what it needs when it runs, so that the others start quickly.
"""

from typing import Final

DONE: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
INTERRUPTED: Final = 130
