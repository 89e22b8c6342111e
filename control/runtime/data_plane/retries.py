"""An order about a partition that failed is tried again until it is done, or asked for no more (J4).

Most fail because a disk is full for a while. Waiting doubles up to a cap, with jitter, so that ten thousand
partitions do not come back at once. What the newest metadata does not ask for is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

from ringfence.control.model.commands import ConfirmDropped
from ringfence.control.model.reassignment_commands import ConfirmLeft
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.control.state_machines.orders import DropPartition, FollowPartition, OpenPartition
from ringfence.control.state_machines.reassignment.cleanup import Adopt, Discard, Release

RetriedOrder = OpenPartition | FollowPartition | Adopt | Discard | Release | DropPartition
"""Orders whose outcome the metadata waits for."""
FIRST_S: Final = 0.2
CAP_S: Final = 10.0
"""A disk that was mended is in use again within as long."""
KEPT_MAX: Final = 65_536
"""Orders that wait; as many as a node may have partitions. Above it a restart is the next try."""


class OrderRetries:
    """Tasks on the loop, one for a kind of order and a partition."""

    def __init__(
        self,
        here: Replica,
        *,
        state: Callable[[], MetadataState],
        give: Callable[[RetriedOrder], Awaitable[bool]],
        given_up: Callable[[RetriedOrder], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`give` gives the order once more, and says whether it was carried out. What it raises ends us.

        `given_up` hears of an order that nobody wants any more.
        """
        self._here, self._state, self._give, self._given_up = here, state, give, given_up
        self._on_failed = on_failed
        self._tasks: dict[tuple[str, int, int], asyncio.Task[None]] = {}
        self._jitter = random.SystemRandom()

    def failed(self, order: RetriedOrder) -> None:
        """`order` was not carried out. One that is being tried again already stays so."""
        kind = type(order).__name__
        key = (kind, order.topic, order.partition)
        known = self._tasks.get(key)
        if known is not None and known is asyncio.current_task():
            return
        if known is not None:
            known.cancel()  # an older epoch's
        elif len(self._tasks) >= KEPT_MAX:
            return
        task = asyncio.get_running_loop().create_task(self._again(order), name=f"{kind} {order.partition}")
        self._tasks[key] = task
        task.add_done_callback(lambda ended: self._forget(key, ended))

    def wanted(self, order: RetriedOrder) -> bool:
        """Whether the newest metadata still asks for it."""
        state = self._state()
        match order:
            case Adopt() | Discard() | Release():
                left = ConfirmLeft(partition=order.partition, change=order.change, store=self._here.store)
                return validate(state, left) is None
            case DropPartition():
                return validate(state, ConfirmDropped(topic=order.topic, store=self._here.store)) is None
        topic = state.topics.get(order.topic)
        assignment = None if topic is None else topic.assignments.get(order.partition)
        if assignment is None or assignment.epoch != order.epoch:
            return False
        if isinstance(order, FollowPartition):
            return assignment.owner.node == order.owner and self._here in assignment.replicas
        return assignment.owner == self._here

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _again(self, order: RetriedOrder) -> None:
        wait_s = FIRST_S
        while True:
            await asyncio.sleep(wait_s * self._jitter.uniform(0.5, 1.0))
            if not self.wanted(order):
                return self._given_up(order)
            if await self._give(order):
                return None
            wait_s = min(2 * wait_s, CAP_S)

    def _forget(self, key: tuple[str, int, int], ended: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is ended:
            del self._tasks[key]
        if not ended.cancelled() and (error := ended.exception()) is not None:
            assert isinstance(error, Exception), error
            self._on_failed(error)
