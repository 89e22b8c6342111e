"""Serve COHORT_PARKED at any node: ask the nodes that own the gates, and join their answers.

What an owner does not answer is named as unknown: it may have been carried out. All actions may be repeated.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import UNSET

from ringfence.control.model.cohorts import Cohort, CohortMode
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.cohorts.figures import gate_owners
from ringfence.control.runtime.cohorts.parked import ParkedGates
from ringfence.control.runtime.handlers.cohort_plans import CohortPlans
from ringfence.control.runtime.handlers.commands import Commands, Principal, RequestContext, at_data_address
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.cohort_messages import (
    PARKED_MAX,
    ListParked,
    ParkedLine,
    ParkedReplies,
    ParkedTold,
    SettleParked,
)
from ringfence.control.runtime.rpc.dispatch import ANSWER_DUE_S, CALLER_PREFIX, CALLER_TOKEN
from ringfence.control.runtime.rpc.messages import Reply
from ringfence.native.cohort_messages import CohortParked, ParkedListed, ParkedRange, ParkedSettled
from ringfence.native.wire import Code

# Ranges of one page of a list: 350 KB of a control body of 1 MiB.
PAGE_MAX: Final = 1_000
# Items of one request; as many ranges as one gate may have.
ITEMS_MAX: Final = 4_096
# Ranges of a request for all: what was not carried out with them is listed in the answer, 20 bytes each.
ALL_MAX: Final = 16_384
NUMBER_MAX: Final = (1 << 63) - 1
ACTIONS: Final = frozenset({"list", "retry", "discard", "begin", "exported"})
EXPORTS: Final = frozenset({"begin", "exported"})
# Waits for one owner, in seconds. An order of the engine takes up to 2 s, and an export may have to be ended.
LIST_S: Final = 2.0
SETTLE_S: Final = 8.0
# Refusals of an owner that the caller gets; what else is refused there is unknown, and may be asked again.
FINAL: Final = frozenset({Code.INVALID_ARGUMENT, Code.UNKNOWN_COHORT})
DONE: Final = frozenset({"taken", "gone"})

Item = tuple[int, int]


class _Listed(NamedTuple):
    parked: list[ParkedLine]
    more: bool
    unknown: list[int]


class ParkedRequests:
    """The handlers of one node; they return the answer's body or raise RequestRefused."""

    def __init__(
        self,
        proposer: RaftProposer,
        commands: Commands,
        plans: CohortPlans,
        peer_client: PeerClient,
        gates: ParkedGates,
    ) -> None:
        self._proposer, self._commands, self._plans = proposer, commands, plans
        self._peer_client, self._gates = peer_client, gates

    async def serve(self, request: CohortParked) -> ParkedListed | ParkedSettled:
        """Answer a request at the data address; retry, discard and exported have a line in the audit log."""
        try:
            answer = await self.carry_out(request)
        except RequestRefused as refusal:
            if request.action != "list":
                await self._commands.audit_failure(_context(self._proposer, request), refusal)
            raise
        if isinstance(answer, ParkedSettled) and request.action != "begin":
            context = _context(self._proposer, request, answer.done)
            await self._commands.audit_done(context, self._proposer.applied.index)
        return answer

    async def carry_out(self, request: CohortParked) -> ParkedListed | ParkedSettled:
        """Answer a request, without a line in the audit log."""
        check(request)
        cohort = await self._plans.cohort(request.topic, request.cohort)
        if cohort.mode is not CohortMode.QUEUE:
            message = f"cohort {cohort.name!r} is {cohort.mode}: only a QUEUE parks rows"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        if request.action == "list":
            return await self._list(cohort, request.after)
        items = await self._items(cohort, request)
        replies = await self._settle(cohort, request, items)
        return settled(request, items, replies)

    # ---- lists --------------------------------------------------------------------------------------

    async def _list(self, cohort: Cohort, after: Item | object) -> ParkedListed:
        found = await self._lines(cohort, (0, 0) if not isinstance(after, tuple) else after, PAGE_MAX)
        return ParkedListed(
            parked=[shown(line) for line in found.parked], more=found.more, unknown=found.unknown
        )

    async def _lines(self, cohort: Cohort, after: Item, count: int) -> _Listed:
        """The first `count` ranges after (partition, number), of all owners."""
        owned = _by_owner(self._topic(cohort), after[0])
        calls = {
            node: ListParked(
                topic=cohort.topic,
                cohort=cohort.cohort,
                partitions=tuple(sorted(partitions)),
                after=after,
                count=count,
            )
            for node, partitions in owned.items()
        }
        answers = await asyncio.gather(*(self._ask_list(node, call) for node, call in calls.items()))
        parked: list[ParkedLine] = []
        unknown: list[int] = []
        more = False
        for (_, partitions), answer in zip(owned.items(), answers, strict=True):
            if answer is None:
                unknown += partitions
                continue
            parked += [line for line in answer.parked if line.partition in partitions]
            unknown += [number for number in answer.unknown if number in partitions]
            more |= answer.more
        parked.sort(key=lambda line: (line.partition, line.number))
        return _Listed(parked[:count], more or len(parked) > count, sorted(unknown))

    async def _ask_list(self, node: NodeId, call: ListParked) -> ParkedTold | None:
        try:
            reply = await self._ask(node, call, LIST_S)
        except RequestRefused:
            return None
        return reply if isinstance(reply, ParkedTold) else None

    # ---- actions ------------------------------------------------------------------------------------

    async def _items(self, cohort: Cohort, request: CohortParked) -> list[Item]:
        """The ranges that a request means. RequestRefused if they are too many, or of no partition."""
        if request.items is not UNSET:
            items = sorted(request.items)
            await self._check_partitions(cohort, {partition for partition, _ in items})
            return items
        items, after, more = [], (0, 0), True
        while more:
            found = await self._lines(cohort, after, PARKED_MAX)
            if found.unknown:
                message = (
                    f"partitions {found.unknown[:8]} did not answer, so it is not known what `all` are; ask "
                    "again, or name items of the list"
                )
                raise RequestRefused(Code.HELD, message, retry_after_ms=500)
            items += [(line.partition, line.number) for line in found.parked]
            more = found.more and bool(found.parked)
            after = items[-1] if items else after
            if len(items) > ALL_MAX:
                message = (
                    f"cohort {cohort.name!r} has more than {ALL_MAX} parked ranges; name those of one page "
                    "of the list at a time"
                )
                raise RequestRefused(Code.OVERLOADED, message, parked_max=ALL_MAX)
        return items

    async def _check_partitions(self, cohort: Cohort, partitions: Collection[int]) -> None:
        if self._missing(cohort, partitions):
            await self._proposer.read_barrier()  # a layout change may have just made them
        missing = self._missing(cohort, partitions)
        if missing:
            message = f"topic {cohort.topic} has no partition {missing[0]}; nothing was carried out"
            raise RequestRefused(Code.UNKNOWN_PARTITION, message, partition=missing[0])

    def _missing(self, cohort: Cohort, partitions: Collection[int]) -> list[int]:
        there = self._topic(cohort).layout.by_id()
        return sorted(number for number in partitions if number not in there)

    def _topic(self, cohort: Cohort) -> Topic:
        topic = self._proposer.state.topics.get(cohort.topic)
        if topic is None:
            raise RequestRefused(Code.UNKNOWN_TOPIC, f"topic {cohort.topic} was deleted")
        return topic

    async def _settle(
        self, cohort: Cohort, request: CohortParked, items: Sequence[Item]
    ) -> Mapping[Item, str]:
        """The words of the owners. Ranges that are left out are not known."""
        owners = gate_owners(self._topic(cohort))
        owned = defaultdict[NodeId, list[Item]](list)
        for item in items:
            owned[owners[PartitionId(item[0])]].append(item)

        async def of_owner(node: NodeId, chosen: Sequence[Item]) -> Iterable[tuple[Item, str]]:
            found: list[tuple[Item, str]] = []
            for at in range(0, len(chosen), PARKED_MAX):
                found += await self._ask_settle(cohort, request, node, chosen[at : at + PARKED_MAX])
            return found

        answers = await asyncio.gather(*(of_owner(node, chosen) for node, chosen in owned.items()))
        return {item: word for answer in answers for item, word in answer}

    async def _ask_settle(
        self, cohort: Cohort, request: CohortParked, node: NodeId, items: Sequence[Item]
    ) -> list[tuple[Item, str]]:
        call = SettleParked(
            topic=cohort.topic,
            cohort=cohort.cohort,
            action=request.action,
            items=tuple(items),
            scope=request.scope,
            force=request.force,
        )
        try:
            reply = await self._ask(node, call, SETTLE_S)
        except RequestRefused as refusal:
            if refusal.code in FINAL:
                raise
            return []
        if not isinstance(reply, ParkedReplies):
            return []
        asked = set(items)
        return [
            ((partition, number), word)
            for partition, number, word in reply.replies
            if (partition, number) in asked
        ]

    async def _ask(self, node: NodeId, call: ListParked | SettleParked, wait_s: float) -> Reply:
        """Ask one owner. RequestRefused, also if it does not answer in time."""
        due_s, now_s = ANSWER_DUE_S.get(), asyncio.get_running_loop().time()
        wait_s = wait_s if due_s is None else max(0.05, min(wait_s, due_s - now_s))
        if node != self._peer_client.here:
            return await self._peer_client.ask(node, call, wait_s)
        try:
            async with asyncio.timeout(wait_s):
                if isinstance(call, ListParked):
                    return await self._gates.list_here(call)
                return await self._gates.settle_here(call)
        except TimeoutError as error:
            message = f"node {node} (this one) did not answer in {wait_s:.1f} s"
            raise RequestRefused(Code.INTERNAL, message, retry_after_ms=1_000) from error


def check(request: CohortParked) -> None:
    """RequestRefused if the request breaks a limit, or its fields do not fit its action."""
    fault = _fault(request)
    if fault:
        raise RequestRefused(Code.INVALID_ARGUMENT, fault)


def _fault(request: CohortParked) -> str:
    action, items = request.action, request.items
    if action not in ACTIONS:
        return f"action={action[:40]!r}: it must be one of {', '.join(sorted(ACTIONS))}"
    if action == "list":
        after = [] if request.after is UNSET else [request.after]
        if items is not UNSET or request.scope or request.force:
            return "a list has no items, no scope and no force; `after` is the last range of a page"
        return _numbers_fault(after)
    if request.after is not UNSET:
        return f"after: only a list has pages, not {action}"
    if (action in EXPORTS) != (0 < request.scope <= NUMBER_MAX):
        return f"scope={request.scope}: begin and exported name a scope, retry and discard have 0"
    if items is UNSET:
        return f"{action} names one range" if action in EXPORTS else ""
    if not 0 < len(items) <= (1 if action in EXPORTS else ITEMS_MAX):
        most = "one range" if action in EXPORTS else f"1 to {ITEMS_MAX} ranges; leave items out for all"
        return f"{len(items)} items: {action} names {most}"
    if len(set(items)) != len(items):
        return "a range is named twice"
    return _numbers_fault(items)


def _numbers_fault(items: Iterable[Item]) -> str:
    wrong = (item for item in items if min(item) < 0 or max(item) > NUMBER_MAX)
    found = next(wrong, None)
    return "" if found is None else f"(partition, number) {found}: numbers from 0 to 2^63 - 1"


def _by_owner(topic: Topic, first: int) -> Mapping[NodeId, set[int]]:
    """Partitions from `first` on, by the node that owns their gates."""
    owned = defaultdict[NodeId, set[int]](set)
    for number, node in gate_owners(topic).items():
        if number >= first:
            owned[node].add(number)
    return owned


def shown(line: ParkedLine) -> ParkedRange:
    """The range as clients see it."""
    return ParkedRange(
        partition=line.partition,
        number=line.number,
        first=line.first,
        rows=line.rows,
        count=line.count,
        reason=line.reason,
        time_ms=line.time_ms,
        state="exporting" if line.scope else "parked",
        gone=line.gone,
        scope=line.scope,
    )


def settled(request: CohortParked, items: Sequence[Item], replies: Mapping[Item, str]) -> ParkedSettled:
    """The answer of an action. RequestRefused if an export is marked that was not begun."""
    listed = defaultdict[str, list[Item]](list)
    for item in items:
        listed[replies.get(item, "unknown")].append(item)
    if listed["not_begun"]:
        partition, number = listed["not_begun"][0]
        message = (
            f"no export of range {number} of partition {partition} was begun under scope {request.scope}; "
            "send begin before its COMMIT"
        )
        raise RequestRefused(Code.CONFLICT, message)
    return ParkedSettled(
        done=sum(len(listed[word]) for word in DONE),
        not_parked=listed["not_parked"],
        gone=listed["gone"],
        exported=listed["exported"],
        exporting=listed["exporting"],
        unknown=listed["unknown"],
    )


def _context(proposer: RaftProposer, request: CohortParked, done: int = 0) -> RequestContext:
    who = CALLER_TOKEN.get()
    token = proposer.state.tokens.get(who)
    caller = Principal(who, None if token is None else token.role, CALLER_PREFIX.get())
    action = f"cohort parked {request.action[:40]} {request.cohort[:80]}: {done} ranges"
    return at_data_address(caller, action, request.topic[:300])
