"""`ringfence.Watch` for asyncio: no thread waits for events."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING, Self

from ringfence.common.process_local import ProcessLocal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ringfence.common.routing import Layout
    from ringfence.common.watch_events import WatchEvent
    from ringfence.watch import Watch as SyncWatch


class Watch(ProcessLocal):
    """Like `ringfence.Watch`, for one task at a time. It begins with the first `await`.

    A cancelled step loses no event: the next step returns it.
    """

    def __init__(self, make: Callable[[], SyncWatch], timeout_s: float | None) -> None:
        self._make, self._timeout_s = make, timeout_s
        self._watch: SyncWatch | None = None
        self._is_closed = False
        self._wakes: set[Callable[[], None]] = set()  # one for each waiting task

    @property
    def topics(self) -> dict[str, int]:
        """Of a prefix: the topics that exist, name to id."""
        return {} if self._watch is None else self._watch.topics

    @property
    def layout(self) -> Layout | None:
        """Of a topic: its newest layout."""
        return None if self._watch is None else self._watch.layout

    @property
    def controller(self) -> int:
        """The node that leads the cluster, as far as it is known; 0: none."""
        return 0 if self._watch is None else self._watch.controller

    async def next(self, timeout_s: float | None = None) -> WatchEvent | None:
        """The next event. None: none came within `timeout_s` seconds, or none follows."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits there any more
                loop.call_soon_threadsafe(changed.set)

        watch = await self._begun()
        self._wakes.add(wake)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while not self._is_closed:
                        changed.clear()
                        event = watch.try_next()
                        if event is not None or watch.is_ended:
                            return event
                        await changed.wait()
            return None
        finally:
            self._wakes.discard(wake)

    async def _begun(self) -> SyncWatch:
        if self._watch is None:
            watch = await asyncio.to_thread(self._make)
            if self._watch is None:
                self._watch, wake = watch, weakref.WeakMethod(self._wake)
                watch.on_event(lambda: _call(wake))
        return self._watch

    def _wake(self) -> None:
        for wake in tuple(self._wakes):
            wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        event = await self.next(self._timeout_s)
        if event is None:
            raise StopAsyncIteration
        return event

    async def close(self) -> None:
        """End the watch; a task that waits for an event gets none."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.close()
        self._wake()

    async def __aenter__(self) -> Self:
        await self._begun()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _call(wake: weakref.WeakMethod[Callable[[], None]]) -> None:
    function = wake()
    if function is not None:
        function()
