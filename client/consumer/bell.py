"""Wake the application when there is something to take. The I/O thread refers to this object alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.common.locks import Flag

if TYPE_CHECKING:
    from collections.abc import Callable


class Bell:
    """`ring` may be called from any thread. `listeners` are called there, and must not block."""

    def __init__(self) -> None:
        self.flag = Flag()
        self.listeners: set[Callable[[], None]] = set()

    def ring(self) -> None:
        """Wake the thread that waits, and call the listeners."""
        self.flag.set()
        for listener in tuple(self.listeners):
            listener()
