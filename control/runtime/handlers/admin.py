"""What administrators may change, whoever carries the request: each change is one entry that decides.

Any node takes it: the proposal finds the leader, and the answer comes when this node has applied it. A
request may carry a key (a repeat gives the first answer) and a condition (refused if somebody was quicker).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from ringfence.control.model.commands import Command, CreateToken, DeleteTopic, RevokeToken, SetConfig
from ringfence.control.model.ids import NodeId
from ringfence.control.model.requests import Condition, RequestKey
from ringfence.control.model.results import RebalanceStarted, Refused, Result
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers.topics import TopicRequests
from ringfence.control.runtime.membership import node_commands
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.etags import condition_fault
from ringfence.control.state_machines.metadata.state_machine import request_answer
from ringfence.native import messages


@dataclass(frozen=True, slots=True)
class Asked:
    """What came with a request beside its content."""

    request: RequestKey | None = None
    expects: Condition | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a change gave: at `index`; `repeated` if that was before. `faults` name orders that failed."""

    index: int
    result: Result
    repeated: bool = False
    faults: tuple[str, ...] = ()


NOTHING: Final = Asked()
Work = Callable[[], Awaitable[Outcome]]


class Admin:
    """Changes; each raises RequestRefused when it is not to be."""

    def __init__(self, proposer: RaftProposer, topics: TopicRequests) -> None:
        self._proposer, self._topics = proposer, topics

    async def once(self, request: RequestKey | None, work: Work) -> Outcome:
        """Do `work`, unless a request with this key and content was done before.

        What `work` looks at may already be changed by the first try, so a refusal is looked at once more.
        """
        if request is None:
            return await work()
        await self._proposer.fresh()
        known = self._known(request)
        if known is not None:
            return known
        try:
            return await work()
        except RequestRefused:
            known = self._known(request)
            if known is None:
                raise
            return known

    async def create_topic(self, request: messages.TopicCreate, asked: Asked = NOTHING) -> Outcome:
        return await self._topics.placed_by(request, lambda command: self._propose(command, asked))

    async def add_schema(self, topic: Topic, schema: bytes, asked: Asked = NOTHING) -> Outcome:
        return await self._propose(self._topics.addition(topic, schema), asked, topic)

    async def truncate_topic(
        self, topic: Topic, request: messages.TopicTruncate, asked: Asked = NOTHING
    ) -> Outcome:
        # Who asks for it wants the space: an owner that does not get to it has given none back.
        truncation = await self._topics.truncation(topic, request)
        outcome = await self._propose(truncation, asked, topic, late_is_fault=True)
        if outcome.repeated or outcome.faults:
            return outcome
        return replace(outcome, faults=tuple(await self._topics.not_reached(truncation)))

    async def delete_topic(self, topic: Topic, asked: Asked = NOTHING) -> Outcome:
        return await self._propose(DeleteTopic(topic=topic.topic), asked, topic)

    async def change_node(self, node: NodeId, change: str, asked: Asked = NOTHING) -> Outcome:
        """One of NODE_CHANGES. The condition is for the first entry, the key for the last one."""
        if change == "drain" and (joined := await self.drain_joined(node, asked)) is not None:
            return joined
        *before, last = await node_commands.commands(self._proposer, node, change)
        expects = asked.expects
        for command in before:
            await self._proposer.propose(command, expects=expects)
            expects = None
        return await self._propose(last, Asked(asked.request, expects))

    async def drain_joined(self, node: NodeId, asked: Asked) -> Outcome | None:
        """The drain of this node that is under way. No entry is made for it, so no key is kept."""
        run = await node_commands.joined_drain(self._proposer, node)
        if run is None:
            return None
        refusal = condition_fault(self._proposer.state, asked.expects)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        return Outcome(run.run, RebalanceStarted(run=run.run))

    async def set_config(self, values: dict[str, int], asked: Asked = NOTHING) -> Outcome:
        return await self._propose(SetConfig(values=values), asked)

    async def change_token(self, command: CreateToken | RevokeToken, asked: Asked = NOTHING) -> Outcome:
        """Ends when every live node has heard it: a new token opens all of them, a revoked one none."""
        outcome = await self._propose(command, asked)
        await self._topics.heard(outcome.index)
        return outcome

    async def propose(self, command: Command, asked: Asked = NOTHING) -> Outcome:
        """A command as it is."""
        return await self._propose(command, asked)

    async def _propose(
        self, command: Command, asked: Asked, topic: Topic | None = None, *, late_is_fault: bool = False
    ) -> Outcome:
        applied = await self._proposer.propose(command, request=asked.request, expects=asked.expects)
        index, faults = applied.index, tuple[str, ...]()
        if asked.request is not None and asked.request.key in self._proposer.state.requests:
            index = self._proposer.state.requests[asked.request.key].index
        if index == applied.index:
            faults = tuple(await self._topics.carried_out(index, topic, late_is_fault=late_is_fault))
        return Outcome(index, applied.result, repeated=index != applied.index, faults=faults)

    def _known(self, request: RequestKey) -> Outcome | None:
        result = request_answer(self._proposer.state, request)
        if result is None:
            return None
        if isinstance(result, Refused):
            raise RequestRefused(result.code, result.message)
        return Outcome(self._proposer.state.requests[request.key].index, result, repeated=True)
