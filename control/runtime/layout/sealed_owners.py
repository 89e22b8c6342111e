"""Hand a sealed partition over when this owner lacks records of it.

A failure gives sealed partitions to any live replica, without a proof. A replica whose log ends below the
sealed end serves nothing, and as the owner it copies from nobody. So this node proposes a hand-over to
another live replica, each in turn. A hand-over is committed only if that replica proves the sealed end;
otherwise it is aborted after `hold_timeout_ms`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import structlog
from msgspec import UNSET

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.reassignment_commands import PrepareChange
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.layout.engine import LayoutEngine
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.sealed_partitions import live_replicas

_LOG = structlog.get_logger("ringfence.layouts")
# Interval of looks, in seconds: an owner that has all records opens a sealed partition within some ms.
LOOK_S: Final = 1.0


class SealedOwners:
    """One task of a node."""

    def __init__(
        self, proposer: RaftProposer, executor: OrderExecutor, engine: LayoutEngine, here: Replica
    ) -> None:
        self._proposer, self._executor, self._engine, self._here = proposer, executor, engine, here
        # Hand-overs that were proposed, by partition: they choose the next replica.
        self._tries: dict[PartitionId, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="sealed owners")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Propose a hand-over of each partition that lacks records now."""
        lacking = list(self._lacking())
        self._tries = {number: self._tries.get(number, 0) for _, number in lacking}
        for topic, number in lacking:
            assignment = topic.assignments[number]
            others = live_replicas(self._proposer.state, assignment, self._here)
            if not others or number in self._proposer.state.changes:
                continue
            owner = others[self._tries[number] % len(others)]
            command = PrepareChange(
                topic=topic.topic,
                partition=number,
                epoch=assignment.epoch,
                owner=owner.node,
                replicas=tuple(place.node for place in assignment.replicas),
            )
            try:
                await self._proposer.propose(command)
            except RequestRefused as refusal:
                _LOG.info("sealed partition not handed over", partition=number, why=refusal.message)
                continue
            self._tries[number] += 1
            _LOG.warning(
                "sealed partition handed over: this store lacks records of it",
                topic=topic.name,
                partition=number,
                to=owner.node,
            )

    def _lacking(self) -> Iterator[tuple[Topic, PartitionId]]:
        """Sealed partitions of this owner that are not open and have too few records here."""
        state = self._proposer.state
        closed = [
            (topic, number)
            for topic in state.topics.values()
            if topic.seals is not UNSET and topic.replication > 1
            for number in sorted(topic.seals)
            if topic.assignments[number].owner == self._here
            and self._executor.opens.epoch((topic.topic, number)) != topic.assignments[number].epoch
        ]
        figures = self._engine.figures() if closed else {}
        for topic, number in closed:
            known, seal = figures.get((topic.topic, number)), topic.seal(number)
            assert seal is not None, "I3: seals are of sealed partitions"
            if known is None or (not known.is_quarantined and known.end.records < seal.end.records):
                yield topic, number
