"""Define the trace of a node: a function with a level and a line, called synchronously."""

from __future__ import annotations

import enum
from collections.abc import Callable


class Level(enum.IntEnum):
    """The severity of a line."""

    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3


Trace = Callable[[Level, str], None]


def silent(_level: Level, _text: str) -> None:
    """Drop the line."""
