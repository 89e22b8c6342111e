"""An event loop whose clock goes forward only where every task waits: timers are exact, and cost no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _SkippingSelector(selectors.DefaultSelector):
    """Adds to `skipped_s` what the loop wanted to wait, instead of waiting."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise AssertionError("every task waits for something that no timer brings")
        self.skipped_s += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For tests whose work is all in one thread: what another thread or process brings comes too late."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.skipped_s


def run_in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` with that loop."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
