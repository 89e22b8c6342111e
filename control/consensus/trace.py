"""Where a node says what it does: a function that takes a level and a line, called at once."""

from __future__ import annotations

import enum
from collections.abc import Callable


class Level(enum.IntEnum):
    """How much a line matters."""

    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3


Trace = Callable[[Level, str], None]


def silent(_level: Level, _text: str) -> None:
    """A trace that nobody reads."""
