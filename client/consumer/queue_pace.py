"""How fast an application takes rows, so that a member asks for more in time and not too early. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ringfence.consumer.queue_rows import StoredRows

AHEAD_S: Final = 0.05
"""A FETCH takes some milliseconds, and more on a busy machine. An application that needs longer for what it
has loses nothing by one that is made later, and other members get these rows meanwhile."""


class Pace:
    """Of the answers of one node: the rate at which the application took the one before."""

    __slots__ = ("_answer", "_rows", "_rows_per_s", "_since")

    def __init__(self) -> None:
        self._answer: StoredRows | None = None
        self._since, self._rows = 0.0, 0
        self._rows_per_s = 0.0

    def look(self, answer: StoredRows | None, now: float) -> None:
        """The application takes rows of this answer now; None: it has all of the last one."""
        if answer is self._answer:
            return
        if self._answer is not None:
            self._rows_per_s = self._rows / max(now - self._since, 1e-6)
        self._answer, self._since = answer, now
        self._rows = 0 if answer is None else answer.rows_left

    def ends_soon(self, now: float) -> bool:
        """Whether the application, as fast as before, has all rows of its answer within AHEAD_S.

        One that has slowed down since is not: what it has taken in the time until now counts.
        """
        if self._answer is None:
            return True
        if not self._rows_per_s:
            return False
        left = self._answer.rows_left
        slowed_down = now - self._since > (self._rows - left) / self._rows_per_s + AHEAD_S
        return not slowed_down and left <= self._rows_per_s * AHEAD_S
