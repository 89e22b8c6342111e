"""Repeat failed orders about partitions until they succeed or the newest metadata withdraws them (J4).

Most orders fail because a disk is full for a while. The delay doubles up to a cap, with jitter, so that ten
thousand partitions do not retry at the same moment.
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
from ringfence.control.runtime.process.tasks import failure_of
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.control.state_machines.node_orders import (
    DropPartition,
    FollowPartition,
    FollowSealed,
    OpenPartition,
    OpenSealed,
)
from ringfence.control.state_machines.reassignment.cleanup import Adopt, Discard, Release

# Orders that are retried: the metadata waits for their outcome.
RetriedOrder = (
    OpenPartition | FollowPartition | OpenSealed | FollowSealed | Adopt | Discard | Release | DropPartition
)
DELAY_S: Final = 0.2
# A repaired disk is in use again within this time.
DELAY_S_MAX: Final = 10.0
# Retried orders; as many as a node may have partitions. Further orders are retried by the next start.
ORDERS_MAX: Final = 65_536


class OrderRetries:
    """One retry task per type of order and partition."""

    def __init__(
        self,
        here: Replica,
        *,
        state: Callable[[], MetadataState],
        execute: Callable[[RetriedOrder], Awaitable[bool]],
        on_withdrawn: Callable[[RetriedOrder], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """Set the callbacks.

        Args:
            here: the replica id of this store.
            state: the newest metadata.
            execute: executes the order again, and returns whether it succeeded. An exception is a defect.
            on_withdrawn: called with an order that the newest metadata no longer asks for.
            on_failed: called with a defect.
        """
        self._here, self._state = here, state
        self._execute, self._on_withdrawn, self._on_failed = execute, on_withdrawn, on_failed
        self._tasks: dict[tuple[str, int, int], asyncio.Task[None]] = {}
        self._jitter = random.SystemRandom()

    def failed(self, order: RetriedOrder) -> None:
        """Retry `order`, which failed; it replaces an older order of its type and partition."""
        kind = type(order).__name__
        key = (kind, order.topic, order.partition)
        retry = self._tasks.get(key)
        if retry is not None and retry is asyncio.current_task():
            return
        if retry is not None:
            retry.cancel()  # its order is of an older epoch
        elif len(self._tasks) >= ORDERS_MAX:
            return
        task = asyncio.get_running_loop().create_task(self._retry(order), name=f"{kind} {order.partition}")
        self._tasks[key] = task
        task.add_done_callback(lambda ended: self._forget(key, ended))

    def is_current(self, order: RetriedOrder) -> bool:
        """Whether the newest metadata still asks for `order`."""
        state = self._state()
        match order:
            case Adopt() | Discard() | Release():
                confirmation = ConfirmLeft(
                    partition=order.partition, change=order.change, store=self._here.store
                )
                return validate(state, confirmation) is None
            case DropPartition():
                return validate(state, ConfirmDropped(topic=order.topic, store=self._here.store)) is None
        topic = state.topics.get(order.topic)
        assignment = None if topic is None else topic.assignments.get(order.partition)
        if assignment is None or assignment.epoch != order.epoch:
            return False
        if isinstance(order, FollowPartition | FollowSealed):
            return assignment.owner.node == order.owner and self._here in assignment.replicas
        return assignment.owner == self._here

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _retry(self, order: RetriedOrder) -> None:
        delay_s = DELAY_S
        while True:
            await asyncio.sleep(delay_s * self._jitter.uniform(0.5, 1.0))
            if not self.is_current(order):
                return self._on_withdrawn(order)
            if await self._execute(order):
                return None
            delay_s = min(2 * delay_s, DELAY_S_MAX)

    def _forget(self, key: tuple[str, int, int], ended: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is ended:
            del self._tasks[key]
        if (error := failure_of(ended)) is not None:
            self._on_failed(error)
