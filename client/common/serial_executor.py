"""Calls of an object for one thread, out of the tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


class Turns:
    """One call at a time, in worker threads.

    An `await` that is cancelled goes on in its thread, and what comes next waits for it.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()

    async def run(self, step: Callable[[], Result]) -> Result:
        """Wait for the turn, and for what the call gives."""

        def alone() -> Result:
            with self._turn:
                return step()

        return await asyncio.to_thread(alone)
