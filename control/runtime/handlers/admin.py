"""Execute the changes of administrators, independent of the door. Each change is one entry of the log.

Any node takes a change: the proposer forwards the command to the leader, and the answer follows once this
node has applied the entry. A request may carry a key (a repeat gets the first answer) and a condition (the
change is refused if another one came first).
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
class RequestContext:
    """The idempotency key and the condition of a request."""

    request: RequestKey | None = None
    expects: Condition | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a change.

    `index` is the entry's. `repeated`: an earlier request with the same key made the entry. `faults` are the
    texts of orders that failed.
    """

    index: int
    result: Result
    repeated: bool = False
    faults: tuple[str, ...] = ()


NO_CONTEXT: Final = RequestContext()
Work = Callable[[], Awaitable[Outcome]]


class Admin:
    """The changes; each raises RequestRefused if the change is refused."""

    def __init__(self, proposer: RaftProposer, topics: TopicRequests) -> None:
        self._proposer, self._topics = proposer, topics

    async def run_once(self, request: RequestKey | None, work: Work) -> Outcome:
        """Do `work`, unless the log holds the answer to an earlier request with this key and content.

        The first try may have changed the state that `work` checks. A refusal therefore counts only if the
        log has no answer for the key after it.
        """
        if request is None:
            return await work()
        await self._proposer.read_barrier()
        recorded = self._recorded(request)
        if recorded is not None:
            return recorded
        try:
            return await work()
        except RequestRefused:
            recorded = self._recorded(request)
            if recorded is None:
                raise
            return recorded

    async def create_topic(
        self, request: messages.TopicCreate, context: RequestContext = NO_CONTEXT
    ) -> Outcome:
        return await self._topics.propose_placed(request, lambda command: self._propose(command, context))

    async def add_schema(self, topic: Topic, schema: bytes, context: RequestContext = NO_CONTEXT) -> Outcome:
        return await self._propose(self._topics.schema_addition(topic, schema), context, topic)

    async def truncate_topic(
        self, topic: Topic, request: messages.TopicTruncate, context: RequestContext = NO_CONTEXT
    ) -> Outcome:
        # A truncation frees space. An owner that is late has freed none, so lateness is a fault here.
        command = await self._topics.truncate_command(topic, request)
        outcome = await self._propose(command, context, topic, late_is_fault=True)
        if outcome.repeated or outcome.faults:
            return outcome
        return replace(outcome, faults=tuple(await self._topics.until_truncated(command)))

    async def delete_topic(self, topic: Topic, context: RequestContext = NO_CONTEXT) -> Outcome:
        return await self._propose(DeleteTopic(topic=topic.topic), context, topic)

    async def change_node(self, node: NodeId, change: str, context: RequestContext = NO_CONTEXT) -> Outcome:
        """Execute one of NODE_CHANGES. The condition applies to the first entry, the key to the last one."""
        if change == "drain" and (joined := await self.join_drain(node, context)) is not None:
            return joined
        *before, last = await node_commands.commands(self._proposer, node, change)
        expects = context.expects
        for command in before:
            await self._proposer.propose(command, expects=expects)
            expects = None
        return await self._propose(last, RequestContext(context.request, expects))

    async def join_drain(self, node: NodeId, context: RequestContext) -> Outcome | None:
        """Answer with the running drain of this node. It needs no entry, so the log stores no key."""
        run = await node_commands.joined_drain(self._proposer, node)
        if run is None:
            return None
        refusal = condition_fault(self._proposer.state, context.expects)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        return Outcome(run.run, RebalanceStarted(run=run.run))

    async def set_config(self, values: dict[str, int], context: RequestContext = NO_CONTEXT) -> Outcome:
        return await self._propose(SetConfig(values=values), context)

    async def change_token(
        self, command: CreateToken | RevokeToken, context: RequestContext = NO_CONTEXT
    ) -> Outcome:
        """Create or revoke a token, and wait until every live node has applied the entry.

        After the answer a new token is valid at every live node, and a revoked one at none.
        """
        outcome = await self._propose(command, context)
        await self._topics.until_applied_everywhere(outcome.index)
        return outcome

    async def propose(self, command: Command, context: RequestContext = NO_CONTEXT) -> Outcome:
        """Propose a command as it is."""
        return await self._propose(command, context)

    async def _propose(
        self,
        command: Command,
        context: RequestContext,
        topic: Topic | None = None,
        *,
        late_is_fault: bool = False,
    ) -> Outcome:
        applied = await self._proposer.propose(command, request=context.request, expects=context.expects)
        index, faults = applied.index, tuple[str, ...]()
        if context.request is not None and context.request.key in self._proposer.state.requests:
            index = self._proposer.state.requests[context.request.key].index
        if index == applied.index:
            faults = tuple(await self._topics.until_carried_out(index, topic, late_is_fault=late_is_fault))
        return Outcome(index, applied.result, repeated=index != applied.index, faults=faults)

    def _recorded(self, request: RequestKey) -> Outcome | None:
        result = request_answer(self._proposer.state, request)
        if result is None:
            return None
        if isinstance(result, Refused):
            raise RequestRefused(result.code, result.message)
        return Outcome(self._proposer.state.requests[request.key].index, result, repeated=True)
