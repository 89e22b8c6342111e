"""A partition that could not be opened is tried again until it is open, or not this node's any more (J4).

Waiting doubles up to a cap, with jitter, so that ten thousand partitions of a disk that was full do not come
back at once. What the newest metadata does not ask for is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

from ringfence.control.machines.orders import OpenPartition
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica

FIRST_S: Final = 0.2
CAP_S: Final = 10.0
"""A disk that was mended is in use again within as long."""
KEPT_MAX: Final = 65_536
"""Partitions that wait for another try; as many as a node may have. Above it a restart is the next try."""


class Retries:
    """Tasks on the loop, one a partition."""

    def __init__(
        self,
        here: Replica,
        *,
        state: Callable[[], MetadataState],
        give: Callable[[OpenPartition], Awaitable[bool]],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`give` gives the order once more, and says whether it was carried out. What it raises ends us."""
        self._here, self._state, self._give = here, state, give
        self._on_failed = on_failed
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._jitter = random.SystemRandom()

    def failed(self, order: OpenPartition) -> None:
        """`order` was not carried out. One that is being tried again already stays so."""
        key = (order.topic, order.partition)
        known = self._tasks.get(key)
        if known is not None and known is asyncio.current_task():
            return
        if known is not None:
            known.cancel()  # an older epoch's
        elif len(self._tasks) >= KEPT_MAX:
            return
        task = asyncio.get_running_loop().create_task(self._again(order), name=f"opening {order.partition}")
        self._tasks[key] = task
        task.add_done_callback(lambda ended: self._forget(key, ended))

    def wanted(self, order: OpenPartition) -> bool:
        """Whether the newest metadata still asks for it."""
        topic = self._state().topics.get(order.topic)
        assignment = None if topic is None else topic.assignments.get(order.partition)
        if assignment is None:
            return False
        return (assignment.owner, assignment.epoch) == (self._here, order.epoch)

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _again(self, order: OpenPartition) -> None:
        wait_s = FIRST_S
        while True:
            await asyncio.sleep(wait_s * self._jitter.uniform(0.5, 1.0))
            if not self.wanted(order) or await self._give(order):
                return
            wait_s = min(2 * wait_s, CAP_S)

    def _forget(self, key: tuple[int, int], ended: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is ended:
            del self._tasks[key]
        if not ended.cancelled() and (error := ended.exception()) is not None:
            assert isinstance(error, Exception), error
            self._on_failed(error)
