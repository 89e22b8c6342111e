"""Commits with `consumed`: what owners of gates say before, and positions that are written after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ringfence.control.model.ids import NodeId
from ringfence.control.model.results import ScopeDecided
from ringfence.control.model.scopes import BeginScope, CommitScope
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.data_plane.native_node import OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.rpc.cohort_messages import ClaimSeen, ClaimsSeen, SeeClaims
from ringfence.control.runtime.transactions import seen_claims
from ringfence.control.runtime.transactions.consumed_positions import (
    REFUSALS_MIN,
    ConsumedPositions,
    position_items,
)
from ringfence.control.runtime.transactions.forced_ends import ForcedEnds
from ringfence.control.runtime.transactions.seen_claims import SeenClaims
from ringfence.native.wire import Code
from tests.fakes.consumed_log import TOKEN, ConsumedLog
from tests.fakes.virtual_time import run_in_virtual_time


class Owners:
    """The proposer, node 1, and all other nodes: `says` has the answers for a partition, in turn."""

    def __init__(self, log: ConsumedLog) -> None:
        self.log, self.here = log, NodeId(1)
        self.says: dict[int, list[ClaimSeen | str]] = {}
        self.asked: list[tuple[int, int]] = []
        self.newest: list[Callable[[], object]] = []
        self.orders: list[tuple[Any, ...]] = []
        self.refuses = ""
        made: Any = (self, self, self)
        self.claims = SeenClaims(*made)

    @property
    def state(self) -> MetadataState:
        return self.log.state

    async def read_barrier(self) -> None:
        if self.newest:
            self.newest.pop(0)()

    def told(self, partition: int) -> ClaimSeen:
        """What the owner says; by itself, that the gate is locked under the epoch of now."""
        left = self.says.get(partition, [])
        said = left.pop(0) if left else self.locked(partition)
        if isinstance(said, str):
            raise RequestRefused(Code.DEADLINE, said)
        return said

    def locked(self, partition: int) -> ClaimSeen:
        return ClaimSeen(self.log.epoch(partition), is_there=True)  # type: ignore[arg-type]

    async def order(self, order: Any) -> dict[str, Any]:
        if self.refuses:
            raise OrderError(self.refuses)
        self.orders.append((order.name, *order.arguments))
        if order.name != "see_claim":
            return {}
        partition = order.arguments[2][1]
        self.asked.append((1, partition))
        try:
            said = self.told(partition)
        except RequestRefused as refusal:
            raise OrderError(refusal.message) from refusal
        return {"epoch": said.epoch, "is_there": said.is_there, "why": said.why}

    async def ask(self, node: NodeId, call: SeeClaims, _: float) -> ClaimsSeen:
        self.asked += [(node, one[0]) for one in call.ranges]
        return ClaimsSeen(seen=tuple(self.told(one[0]) for one in call.ranges))

    def commit(self, *partitions: int, epoch: int = 1) -> CommitScope:
        """Of member a, whose claims have no epochs yet."""
        log = self.log
        ranges = [log.range_of(part.partition)._replace(epoch=0) for part in log.active]  # type: ignore[arg-type]
        wanted = partitions or [one.partition for one in ranges]
        return log.commit_consumed("a", epoch, *[one for one in ranges if one.partition in wanted])

    def verified(self, command: CommitScope) -> CommitScope:
        return asyncio.run(self.claims.verify(command))

    def refused(self, command: CommitScope) -> RequestRefused:
        with pytest.raises(RequestRefused) as caught:
            self.verified(command)
        return caught.value


def epochs(command: CommitScope) -> list[int]:
    assert command.consumed
    return [one.epoch for one in command.consumed.ranges]


def test_the_entry_names_the_owners_that_have_its_gates_locked() -> None:
    owners = Owners(ConsumedLog())
    command = owners.verified(owners.commit())
    assert epochs(command) == [owners.log.epoch(part.partition) for part in owners.log.active]
    assert {node for node, _ in owners.asked} == {*owners.log.nodes}, "each owner, this node too"
    assert owners.log.do(command) == ScopeDecided(already=False)


def test_a_gate_that_is_not_locked_decides_nothing_and_is_named() -> None:
    owners = Owners(ConsumedLog())
    first = owners.log.active[0].partition
    owners.says = {first: [ClaimSeen(owners.log.epoch(first), is_there=False)]}
    refusal = owners.refused(owners.commit())
    assert (refusal.code, refusal.retry_after_ms) == (Code.STALE_CLAIM, seen_claims.RETRY_MS)
    assert f"the gates of partitions {first} are not claimed" in refusal.message
    assert "nothing was committed: claim again" in refusal.message


def test_an_owner_of_before_that_does_not_know_it_is_not_believed() -> None:
    owners = Owners(ConsumedLog())
    log, first = owners.log, owners.log.active[0]
    old = log.epoch(first.partition)
    owner = log.now.assignments[first.partition].owner.node
    owners.newest = [lambda: log.must(log.restart(owner))]
    # It says "locked" or "not locked" under an epoch that the metadata has replaced meanwhile.
    owners.says = {
        first.partition: ["it opens", ClaimSeen(old, is_there=True), ClaimSeen(old, is_there=False)]
    }
    command = owners.verified(owners.commit(first.partition))
    assert epochs(command) == [log.epoch(first.partition)] != [old]
    assert len(owners.asked) == 4


def test_an_owner_that_is_away_is_asked_until_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = Owners(ConsumedLog())
    first = owners.log.active[0].partition
    monkeypatch.setattr(seen_claims, "CHECK_S", 0.0)
    owners.says = {first: ["nobody answers"]}
    refusal = owners.refused(owners.commit(first))
    assert (refusal.code, refusal.retry_after_ms) == (Code.DEADLINE, 200)
    assert "nothing was committed" in refusal.message
    assert "nobody answers" in refusal.message


def test_gates_that_were_seen_locked_are_not_asked_again() -> None:
    owners = Owners(ConsumedLog())
    one, other = (part.partition for part in owners.log.active[:2])
    owners.says = {one: ["away"]}
    owners.verified(owners.commit(one, other))
    assert [partition for _, partition in owners.asked].count(one) == 2
    assert [partition for _, partition in owners.asked].count(other) == 1


def test_what_is_decided_already_asks_nobody() -> None:
    owners = Owners(ConsumedLog())
    command = owners.verified(owners.commit())
    owners.log.must(command)
    owners.asked.clear()
    owners.verified(owners.commit())
    assert owners.asked == []


def test_a_commit_without_positions_is_not_looked_at() -> None:
    owners = Owners(ConsumedLog())
    plain = CommitScope(
        scope=owners.log.drivers["a"][0], driver=owners.log.drivers["a"][1], epoch=1, tokens=(), parts=()
    )
    assert owners.verified(plain) is plain
    assert owners.asked == []


# ---- positions after the commit ----------------------------------------------------------------------------


def decided(rows: int = 0) -> Owners:
    owners = Owners(ConsumedLog(nodes=1))
    parts = [part.partition for part in owners.log.active[:2]]
    command = owners.log.commit_consumed("a", 1, *(owners.log.range_of(one) for one in parts), rows=rows)
    owners.log.must(command)
    return owners


def positions(owners: Owners, health: Health) -> ConsumedPositions:
    node: Any = owners
    return ConsumedPositions(node, owners.log.place(1), health, NodeId(1))


def test_positions_are_written_and_may_be_confirmed_after_the_rows() -> None:
    owners = decided(rows=3)
    written = positions(owners, Health())
    assert asyncio.run(written.settle(owners.state)) == ({}, True), "rows come first"
    owners.log.must(owners.log.confirm("a", 1, rows=True))
    confirmed, is_whole = asyncio.run(written.settle(owners.state))
    scope = owners.log.drivers["a"][0]
    parts = [part.partition for part in owners.log.active[:2]]
    assert (confirmed, is_whole) == ({(scope, 1): parts}, True)
    log = owners.log
    assert owners.orders == [
        ("settle_committed", log.topic, one, log.clean, log.cohort(log.clean).incarnation, 5) for one in parts
    ]
    log.must(log.confirm("a", 1, *parts))
    assert asyncio.run(written.settle(owners.state)) == ({}, True)


def test_a_position_that_is_refused_for_long_is_a_reason_until_it_is_written() -> None:
    owners, health = decided(), Health()
    written = positions(owners, health)
    owners.refuses = "the partition is not open"
    for _ in range(REFUSALS_MIN - 1):
        assert asyncio.run(written.settle(owners.state)) == ({}, False)
    assert health.reasons == []
    asyncio.run(written.settle(owners.state))
    assert len(health.reasons) == 2
    assert all("the partition is not open" in one and "cohort 'clean'" in one for one in health.reasons)
    owners.refuses = ""
    confirmed, is_whole = asyncio.run(written.settle(owners.state))
    assert is_whole
    ((_, parts),) = confirmed.items()
    owners.log.must(owners.log.confirm("a", 1, *parts))
    asyncio.run(written.settle(owners.state))
    assert health.reasons == []


def test_positions_of_a_cohort_that_was_sought_are_confirmed_and_not_written() -> None:
    owners = decided()
    owners.log.must(owners.log.seek(owners.log.clean))
    confirmed, is_whole = asyncio.run(positions(owners, Health()).settle(owners.state))
    assert (len(confirmed), is_whole, owners.orders) == (1, True, [])


def test_the_engine_is_told_whose_rows_are_not_published() -> None:
    for rows in (0, 3):
        owners = decided(rows)
        log = owners.log
        scope = owners.state.scopes[log.drivers["a"][0]]
        items = list(position_items(scope))
        cohort = log.cohort(log.clean)
        gate = (log.clean, cohort.incarnation, log.session("a"))
        assert [(item[0], *item[2:5], *item[6:]) for item in items] == [
            (log.topic, *gate, 0, 5, 1, TOKEN, rows > 0)
        ] * 2


# ---- claims that last too long -----------------------------------------------------------------------------


def test_epochs_of_claims_that_keep_others_out_are_expired_and_a_refusal_ends_nothing() -> None:
    owners = Owners(ConsumedLog())
    scope, driver = owners.log.drivers["a"]
    foreign = owners.log.took(BeginScope(name="nightly", one_off=False)).scope
    proposed: list[Any] = []

    class Node:
        def __init__(self) -> None:
            self.node, self.state = self, owners.state

        def forced_ends(self) -> list[tuple[int, int, int]]:
            others = [(foreign, 1, driver), (1 << 40, 1, driver)]  # of no consumer
            return [(scope, 1, driver), *others, (scope, 2, driver)]

        async def propose(self, command: Any) -> None:
            proposed.append(command)
            if len(proposed) == 1:
                raise RequestRefused(Code.INVALID_ARGUMENT, "it is decided")
            if len(proposed) == 4:
                raise asyncio.CancelledError

    async def run() -> None:
        node: Any = Node()
        with pytest.raises(asyncio.CancelledError):
            await ForcedEnds(node, node).run()

    run_in_virtual_time(run())
    assert [(one.scope, one.epoch, one.driver) for one in proposed] == [
        (scope, 1, driver), (scope, 2, driver), (scope, 1, driver), (scope, 2, driver),
    ]  # fmt: skip
