"""What a script prints: text of commands and lines of nodes, filtered by level, indented in blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ringfence.control.consensus.trace import Level

LEVELS = ["DEBUG", "INFO", "WARN", "ERROR", "FATAL", "NONE"]
NONE = LEVELS.index("NONE")


class Output:
    """At level NONE nothing at all is kept; else all but lines below the level."""

    def __init__(self) -> None:
        self.level = 0
        self._parts: list[str] = []

    @property
    def quiet(self) -> bool:
        return self.level == NONE

    def write(self, text: str) -> None:
        if not self.quiet:
            self._parts.append(text)

    def line(self, text: str) -> None:
        self.write(text + "\n")

    def trace(self, level: Level, text: str) -> None:
        if level >= self.level:
            self.line(f"{level.name} {text}")

    def take(self) -> str:
        text = "".join(self._parts)
        self._parts = []
        return text

    @contextlib.contextmanager
    def indented(self) -> Iterator[None]:
        """Every line that is written inside gets two spaces in front, and a newline at its end."""
        outer, self._parts = self._parts, []
        try:
            yield
        finally:
            inner = self.take()
            self._parts = outer
            if inner:
                self.write("".join(f"  {line}\n" for line in inner.removesuffix("\n").split("\n")))

    @contextlib.contextmanager
    def at_level(self, level: int) -> Iterator[None]:
        before, self.level = self.level, level
        try:
            yield
        finally:
            self.level = before
