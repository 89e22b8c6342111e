"""Tell the leader which members this node hears: once a second, and the whole list only when it changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.ids import NodeId
from ringfence.control.runtime.cohorts.engine import CohortEngine
from ringfence.control.runtime.cohorts.leader import CohortLeader
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.cohort_messages import SessionsHeard, TellSessions
from ringfence.control.state_machines.cohorts.digests import pack_sessions, sessions_digest

_LOG = structlog.get_logger("ringfence.cohorts")
INTERVAL_S: Final = 1.0
TIMEOUT_S: Final = 1.0


class HeardSessions:
    """The reports of one node."""

    def __init__(
        self,
        proposer: RaftProposer,
        peer_client: PeerClient,
        engine: CohortEngine,
        leader: CohortLeader,
        here: NodeId,
        grace_ms: int,
    ) -> None:
        self._proposer, self._peer_client, self._engine = proposer, peer_client, engine
        self._leader, self._here, self._grace_ms = leader, here, grace_ms
        # Leadership and digest of the last list that was taken.
        self._taken: tuple[int, int, bytes] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="sessions")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            state = self._proposer.state
            if state.level >= COHORT_LEVEL and state.cohorts:
                await self.report()

    async def report(self) -> None:
        """Send one report; a report that is lost is followed by another in a second."""
        replica = self._proposer.replica
        node, term = replica.leader, replica.term
        if not node:
            return
        packed = pack_sessions(self._engine.sessions())
        digest = sessions_digest(packed)
        tell = self._here_is_leader if node == self._here else self._ask(NodeId(node))
        is_known = self._taken == (node, term, digest)
        try:
            heard = await tell(self._call(term, digest, None if is_known else packed))
            if heard.needs_list:
                await tell(self._call(term, digest, packed))
        except RequestRefused as refusal:
            self._taken = None
            _LOG.debug("sessions not told", leader=node, term=term, why=refusal.message)
            return
        self._taken = (node, term, digest)

    def _call(self, term: int, digest: bytes, sessions: bytes | None) -> TellSessions:
        return TellSessions(
            term=term, node=self._here, digest=digest, grace_ms=self._grace_ms, sessions=sessions
        )

    async def _here_is_leader(self, call: TellSessions) -> SessionsHeard:
        return self._leader.take_sessions(call)

    def _ask(self, node: NodeId) -> Callable[[TellSessions], Awaitable[SessionsHeard]]:
        async def ask(call: TellSessions) -> SessionsHeard:
            reply = await self._peer_client.ask(node, call, TIMEOUT_S)
            return reply if isinstance(reply, SessionsHeard) else SessionsHeard()

        return ask
