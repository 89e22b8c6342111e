"""Wait until a change is carried out: its orders are executed here and at the owners of its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from ringfence.control.model.commands import TruncateTopic
from ringfence.control.model.ids import TopicId
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.handlers.commands import Plan
from ringfence.control.runtime.handlers.topic_plans import TopicPlans
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.client import PeerClient

# Waits between reads of the owners' log starts. An owner moves its start once a majority has confirmed the
# rows below.
TRUNCATE_WAITS_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0)


class Completion:
    """The waits of one node for `Commands.submit`; each returns the faults."""

    def __init__(
        self, proposer: RaftProposer, executor: OrderExecutor, peer_client: PeerClient, topics: TopicPlans
    ) -> None:
        self._proposer, self._executor, self._peer_client = proposer, executor, peer_client
        self._topics = topics

    async def carried_out(self, index: int, plan: Plan) -> Sequence[str]:
        """Wait until this node and the owners of the plan's topic have executed the entry's orders."""
        return await self._until_carried_out(index, plan, late_is_fault=False)

    async def carried_out_everywhere(self, index: int, plan: Plan) -> Sequence[str]:
        """The same, and wait until every live node has applied the entry, except nodes that do not answer.

        After that a new token is valid at every live node, and a revoked one at none.
        """
        faults = await self._until_carried_out(index, plan, late_is_fault=False)
        await self._peer_client.await_execution(self._proposer.state.nodes, index)
        return faults

    async def truncated(self, index: int, plan: Plan) -> Sequence[str]:
        """Wait until the owners' logs begin at the offsets of the plan's truncation.

        A truncation frees space. An owner that is late has freed none, so lateness is a fault here.
        """
        faults = await self._until_carried_out(index, plan, late_is_fault=True)
        command = plan.commands[-1]
        assert isinstance(command, TruncateTopic), command
        return faults or await self._until_truncated(command)

    async def _until_carried_out(self, index: int, plan: Plan, *, late_is_fault: bool) -> list[str]:
        topic = plan.topic or self._proposer.state.topics.get(TopicId(index))
        owners = set() if topic is None else {assigned.owner.node for assigned in topic.assignments.values()}
        return await self._executor.until_executed(index) or await self._peer_client.await_execution(
            owners, index, late_is_fault=late_is_fault
        )

    async def _until_truncated(self, command: TruncateTopic) -> list[str]:
        """An owner that reports no figures carries out the command once it is back."""
        late: list[str] = []
        for wait_s in TRUNCATE_WAITS_S:
            topic = self._proposer.state.topics.get(command.topic)
            if topic is None or not any(command.starts.values()):
                return []
            hosted = await self._topics.hosted(topic)
            begins = {
                part: hosted.get((topic.topic, part), {}).get("start_offset") for part in command.starts
            }
            late = [
                f"partition {part} begins at row {begin} at its owner, which moves it to {start} when a "
                "majority confirms the rows below"
                for part, start in command.starts.items()
                if (begin := begins[part]) is not None and begin < start
            ]
            if not late:
                return []
            await asyncio.sleep(wait_s)
        return late
