"""Locks that tell whose they are, for calls that a signal's handler or a finalizer interrupts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Owned:
    """A lock, and whether this thread holds it: who does must not take it again, though it would get it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # What `Condition` itself asks; a flag of our own would cost more than the lock does.
        self.is_mine: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
