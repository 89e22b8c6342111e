"""Serve LEAVE: departures of members that leave at about the same time are one entry."""

from __future__ import annotations

import asyncio
from typing import Final

from ringfence.control.model.cohort_commands import Removal, RemovalReason, RemoveMembers
from ringfence.control.model.cohorts import CohortId, MemberSession
from ringfence.control.runtime.handlers.cohort_values import cohort_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.cohort_checks import MEMBERS_OF_ENTRY_MAX
from ringfence.control.state_machines.metadata.cohort_lineage import members_of
from ringfence.native import cohort_messages

# Departures are gathered for so long, in seconds.
GATHER_S: Final = 0.02


class MemberDepartures:
    """The handler of one node, and the task that proposes removals."""

    def __init__(self, proposer: RaftProposer) -> None:
        self._proposer = proposer
        self._waiting: list[tuple[Removal, asyncio.Future[bool]]] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._remove_forever(), name="departures")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def leave(self, request: cohort_messages.Leave) -> cohort_messages.Left:
        """End a session. Repeats, and sessions that ended before, are answered, too."""
        session = MemberSession(request.session)
        cohort = await cohort_named(self._proposer, request.topic, request.cohort)
        if not self._is_registered(cohort.cohort, request.member, session):
            await self._proposer.read_barrier()  # another node may just have registered it
        removed = await self.remove(Removal(cohort.cohort, request.member, session, RemovalReason.LEFT))
        return cohort_messages.Left(removed=removed)

    async def remove(self, item: Removal) -> bool:
        """Remove a member; whether it was registered with this session. RequestRefused."""
        if not self._is_registered(*item[:3]):
            return False
        removed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, removed))
        self._wake.set()
        return await removed

    def _is_registered(self, cohort: CohortId, name: str, session: MemberSession) -> bool:
        member = members_of(self._proposer.state, cohort).get(name)
        return member is not None and member.session == session

    async def _remove_forever(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_S)
            batch = self._waiting[:MEMBERS_OF_ENTRY_MAX]
            self._waiting = self._waiting[MEMBERS_OF_ENTRY_MAX:]
            if not self._waiting:
                self._wake.clear()
            was_registered = [self._is_registered(*item[:3]) for item, _ in batch]
            try:
                await self._proposer.propose(RemoveMembers(members=tuple(item for item, _ in batch)))
            except RequestRefused as refusal:
                for _, removed in batch:
                    if not removed.done():
                        removed.set_exception(refusal)
                continue
            for (_, removed), is_removed in zip(batch, was_registered, strict=True):
                if not removed.done():
                    removed.set_result(is_removed)
