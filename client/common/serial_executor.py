"""Run calls of asyncio tasks one at a time, for objects that only one thread may use."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


class SerialExecutor:
    """One call at a time, in worker threads.

    A cancelled `await` continues in its thread, and the next call waits for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def run(self, step: Callable[[], Result]) -> Result:
        """Run one call after all earlier ones, and return its result."""

        def alone() -> Result:
            with self._lock:
                return step()

        return await asyncio.to_thread(alone)
