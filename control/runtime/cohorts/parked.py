"""Parked ranges of queues at the node that owns their gates: lists, and what becomes of them.

The engine has the parkings. Whether an export was committed stands in the metadata, and this node's applied
state must have the scope's end before a range is put back, or marked as exported: committed and closed are
final. A scope that is missing is looked for again after a read barrier, since this node may lag.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import structlog

from ringfence.control.model.cohorts import CohortId
from ringfence.control.model.ids import ScopeId, TopicId
from ringfence.control.model.scopes import ExpireScope
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.cohorts.engine import CohortEngine
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.cohort_messages import (
    PARKED_MAX,
    ListParked,
    ParkedLine,
    ParkedReplies,
    ParkedTold,
    SettleParked,
)
from ringfence.native._node import Order
from ringfence.native.wire import SCOPE_EPOCH_MAX, Code

_LOG = structlog.get_logger("ringfence.cohorts")
# Scopes that are closed together: each is an entry of the log.
CLOSES_MAX: Final = 32
# Another order about the same range is on its way: a record of the log, which has 2 s at most.
CHANGING_S: Final = 0.05
CHANGING_TRIES: Final = 40
# Words of the engine about a range.
CHANGING: Final = "changing"
# Fates of a scope, as the engine takes them.
OPEN, COMMITTED, CLOSED, UNKNOWN = "open", "committed", "closed", "unknown"

Item = tuple[int, int, str]


def scope_name(cohort: int, partition: int, number: int) -> str:
    """The scope in which all who export a parked range meet: its name follows from what it copies."""
    return f"parked/{cohort}/{partition}/{number}"


def fate_of(state: MetadataState, scope: int) -> str:
    """What this state says of a scope. COMMITTED and CLOSED are final."""
    known = state.scopes.get(ScopeId(scope))
    if known is None:
        return UNKNOWN
    if known.committed > 0:
        return COMMITTED
    return CLOSED if known.expired >= SCOPE_EPOCH_MAX else OPEN


class ParkedGates:
    """The parked ranges of one node's gates."""

    def __init__(self, proposer: RaftProposer, native_node: NativeNode, engine: CohortEngine) -> None:
        self._proposer, self._native_node, self._engine = proposer, native_node, engine

    # ---- lists --------------------------------------------------------------------------------------

    async def list_here(self, call: ListParked) -> ParkedTold:
        """Parked ranges of these partitions, ascending; at most `count`."""
        topic, cohort = TopicId(call.topic), CohortId(call.cohort)
        parked_at = {gate.partition: gate.parked for gate in self._engine.figures(topic, [cohort])}
        first, number = call.after
        found: list[ParkedLine] = []
        unknown: list[int] = []
        for partition in sorted(set(call.partitions)):
            if partition < first or parked_at.get(partition) == 0:
                continue
            if len(found) > call.count:
                break
            after, room = number if partition == first else 0, call.count + 1 - len(found)
            try:
                found += await self._lines(topic, partition, cohort, after, room)
            except OrderError as error:
                _LOG.debug("parked ranges not listed", partition=partition, cohort=cohort, why=str(error))
                unknown.append(partition)
        page, more = found[: call.count], len(found) > call.count
        return ParkedTold(parked=tuple(page), more=more, unknown=tuple(unknown))

    async def _lines(
        self, topic: TopicId, partition: int, cohort: CohortId, after: int, room: int
    ) -> list[ParkedLine]:
        """Up to `room` parked ranges of one partition with numbers above `after`. OrderError."""
        found: list[ParkedLine] = []
        more = True
        while more and len(found) < room:
            count = min(room - len(found), PARKED_MAX)
            told = await self._native_node.order(Order.list_parked(topic, partition, cohort, after, count))
            lines = [ParkedLine(partition, *line) for line in told["parked"]]
            more = bool(told["more"]) and bool(lines)
            found += lines
            after = found[-1].number if found else after
        return found

    # ---- orders -------------------------------------------------------------------------------------

    async def settle_here(self, call: SettleParked) -> ParkedReplies:
        """Carry out an action; what is not known is left out.

        Raises:
            RequestRefused: the cohort is not known, or the scope is not that of the range.
        """
        if CohortId(call.cohort) not in self._proposer.state.cohorts:
            await self._proposer.read_barrier()
        if CohortId(call.cohort) not in self._proposer.state.cohorts:
            raise RequestRefused(Code.UNKNOWN_COHORT, f"cohort {call.cohort} was deleted")
        if call.scope:
            await self._check_scope(call)
        numbers = defaultdict[int, list[int]](list)
        for partition, number in call.items:
            numbers[partition].append(number)
        replies: list[tuple[int, int, str]] = []
        for partition, chosen in sorted(numbers.items()):
            try:
                replies += await self._settle(call, partition, chosen)
            except (OrderError, RequestRefused) as error:
                _LOG.info("parked ranges not settled", partition=partition, why=str(error))
        return ParkedReplies(replies=tuple(replies))

    async def _check_scope(self, call: SettleParked) -> None:
        """RequestRefused unless the scope of an export has the name that its range gives it."""
        scope = self._proposer.state.scopes.get(ScopeId(call.scope))
        if scope is None:
            await self._proposer.read_barrier()  # it was begun at another node
            scope = self._proposer.state.scopes.get(ScopeId(call.scope))
        if scope is None:
            if call.action == "exported":
                return  # it was forgotten: answered as unknown
            message = f"no scope has the id {call.scope}: it never existed or was forgotten; begin it again"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        for partition, number in call.items:
            name = scope_name(call.cohort, partition, number)
            if scope.name != name:
                message = (
                    f"scope {call.scope} is {scope.name[:300]!r}; an export of range {number} of partition "
                    f"{partition} begins the scope {name!r}"
                )
                raise RequestRefused(Code.INVALID_ARGUMENT, message)

    async def _settle(
        self, call: SettleParked, partition: int, numbers: Sequence[int]
    ) -> list[tuple[int, int, str]]:
        """The words of ranges of one partition. OrderError if they are not known."""
        words: dict[int, str] = {}
        waiting = list(numbers)
        for _ in range(CHANGING_TRIES):
            items = await self._items(call, partition, waiting)
            order = Order.settle_parked(
                call.topic, partition, call.cohort, call.action, items, call.scope, call.force
            )
            told = await self._native_node.order(order)
            words |= dict(told["replies"])
            waiting = [number for number in waiting if words.get(number) == CHANGING]
            if not waiting:
                break
            await asyncio.sleep(CHANGING_S)
        return [(partition, number, word) for number, word in words.items() if word != CHANGING]

    async def _items(self, call: SettleParked, partition: int, numbers: Sequence[int]) -> list[Item]:
        """Ranges with the scopes of exports that were begun, and what became of these."""
        if call.action == "exported":
            fates = await self._fates([call.scope])
            return [(number, call.scope, fates[call.scope]) for number in numbers]
        named = await self._named(call, partition, numbers)
        fates = await self._fates(named.values())
        if call.action in {"retry", "discard"} and OPEN in fates.values():
            await self._close([scope for scope, fate in fates.items() if fate == OPEN])
            fates = await self._fates(named.values())
        scopes = [(number, named.get(number, 0)) for number in numbers]
        return [(number, scope, fates.get(scope, OPEN)) for number, scope in scopes]

    async def _named(self, call: SettleParked, partition: int, numbers: Sequence[int]) -> Mapping[int, int]:
        """The scopes under which exports of these ranges were begun."""
        after, last = max(min(numbers), 1) - 1, max(numbers)
        wanted, named = set(numbers), dict[int, int]()
        more = True
        while more and after < last:
            order = Order.list_parked(call.topic, partition, call.cohort, after, PARKED_MAX)
            told: dict[str, Any] = await self._native_node.order(order)
            lines = [ParkedLine(partition, *line) for line in told["parked"]]
            named |= {line.number: line.scope for line in lines if line.scope and line.number in wanted}
            more = bool(told["more"]) and bool(lines)
            after = lines[-1].number if lines else last
        return named

    async def _fates(self, scopes: Collection[int]) -> Mapping[int, str]:
        """What became of these scopes, by the newest metadata where this node has not applied one of them."""
        fates = {scope: fate_of(self._proposer.state, scope) for scope in scopes}
        if UNKNOWN in fates.values():
            await self._proposer.read_barrier()
            fates = {scope: fate_of(self._proposer.state, scope) for scope in scopes}
        return fates

    async def _close(self, scopes: Sequence[int]) -> None:
        """End exports that are under way: after the entry nothing of them can be committed."""
        for at in range(0, len(scopes), CLOSES_MAX):
            await asyncio.gather(*(self._expire(scope) for scope in scopes[at : at + CLOSES_MAX]))

    async def _expire(self, scope: int) -> None:
        try:
            await self._proposer.propose(ExpireScope(scope=ScopeId(scope), epoch=SCOPE_EPOCH_MAX))
        except RequestRefused as refusal:  # the range is answered as being exported
            _LOG.info("export not ended", scope=scope, why=refusal.message)
