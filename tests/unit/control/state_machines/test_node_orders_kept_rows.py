"""Rows of SEALED partitions stay beyond the topic's retention as long as cohorts read them (CR2)."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import DeleteTopic
from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.model.results import Result
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.layout import prune
from ringfence.control.state_machines.layout.prune import SealedFigures
from ringfence.control.state_machines.metadata import cohort_lineage, drained
from ringfence.control.state_machines.node_orders import InstallTopic, KeepRows, OpenSealed
from tests.fakes.cohort_log import DAY_MS, CohortLog
from tests.fakes.cohort_walk import CohortWalk

Kept = tuple[tuple[PartitionId, int], ...]
WALKS = 12


class Told(CohortLog):
    """A log, and what one of its nodes is told to keep."""

    def __init__(self, nodes: int = 3, node: int = 0) -> None:
        super().__init__(nodes, partitions=1)
        self.seen: MetadataState = EMPTY
        self.here = self.place(self.nodes[node])

    def kept(self) -> list[Kept]:
        """What the node is told since the last look, as the lists of partitions that it is to keep."""
        phases = node_orders.between(self.seen, self.state, self.here)
        self.seen = self.state
        return [order.partitions for phase in phases for order in phase if isinstance(order, KeepRows)]

    def until(self, partition: PartitionId) -> int:
        return (self.now.seals or {})[partition].sealed_ms + DAY_MS


def test_rows_of_a_partition_stay_from_its_seal_on_until_each_cohort_is_through() -> None:
    log = Told()
    one, other = log.create("a"), log.create("b")
    assert log.kept() == []
    first = log.active[0]
    log.split_done(first)
    assert log.kept() == [((first.partition, log.until(first.partition)),)]
    log.took(log.drained(one, first.partition))
    assert log.kept() == []
    log.took(log.drained(other, first.partition))
    assert log.kept() == [()]


def test_without_cohorts_nothing_is_kept() -> None:
    log = Told()
    log.split_done(log.active[0])
    assert log.kept() == []


def test_a_cohort_that_is_deleted_or_created_counts() -> None:
    log = Told()
    first = log.active[0]
    log.split_done(first)
    log.kept()
    cohort = log.create()
    assert log.kept() == [((first.partition, log.until(first.partition)),)]
    log.took(log.delete(cohort))
    assert log.kept() == [()]


def test_the_order_says_when_it_ends_so_no_time_of_the_log_needs_another() -> None:
    log = Told()
    log.create()
    first = log.active[0]
    log.split_done(first)
    told = log.kept()
    for wait_ms in (1, DAY_MS - 2, 1, DAY_MS):
        log.time_ms += wait_ms
        log.must(log.restart(1))  # any entry: its time is the log's
        assert log.kept() == []
        assert told == [drained.kept_rows(log.state, log.topic)]
    hours = replace(log.now, properties={drained.HOLD_PROPERTY: "7200"})
    log.state = replace(log.state, topics={**log.state.topics, log.topic: hours})
    assert log.kept() == [((first.partition, log.until(first.partition) - DAY_MS + 7_200_000),)]


def test_a_cohort_that_came_after_the_change_keeps_nothing_for_good_in_an_idle_log() -> None:
    """No entry moves the log's time. The order names its end, and once the rows are gone a prune is due."""
    log = Told()
    first = log.active[0]
    log.split_done(first)
    for number in [*log.state.transitions]:
        log.must(log.finalize(number))
    log.create()
    (((_, until_ms),),) = log.kept()
    empty = {first.partition: SealedFigures(70, 70, 0)}
    assert not prune.due(log.state, empty, until_ms - 1)
    assert len(prune.due(log.state, empty, until_ms)) == 1


def test_a_topic_that_is_deleted_keeps_nothing_at_any_node() -> None:
    has_replica = set[bool]()
    for node in range(4):
        log = Told(nodes=4, node=node)
        log.create()
        log.split_done(log.active[0])
        assert len(log.kept()) == 1
        has_replica.add(any(log.here in one.replicas for one in log.now.assignments.values()))
        log.must(DeleteTopic(topic=log.topic, force=True))
        assert log.kept() == [()]
    assert has_replica == {False, True}


def test_members_of_a_cohort_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Told()
    cohort = log.create()
    log.split_done(log.active[0])
    log.kept()
    monkeypatch.setattr(drained, "kept_rows", lambda *_: pytest.fail("the partitions are looked at"))
    log.join(cohort, "m", "n")
    log.plan(cohort)
    log.must(log.leave(cohort, "m"))
    assert log.kept() == []


def test_a_node_that_starts_hears_it_before_it_knows_the_topic() -> None:
    log = Told()
    log.create()
    first = log.active[0]
    log.split_done(first)
    phases = node_orders.between(EMPTY, log.state, log.now.assignments[first.partition].owner)
    place = {type(order): at for at, phase in enumerate(phases) for order in phase}
    assert place[KeepRows] < place[InstallTopic] < place[OpenSealed]


# ---- random histories -------------------------------------------------------------------------------


def slowly(state: MetadataState, topic: TopicId) -> Kept:
    """What `drained.kept_rows` must answer, by its definition."""
    record = state.topics[topic]
    hold_ms = drained.hold_s(state, topic) * 1_000
    return tuple(
        (part.partition, seal.sealed_ms + hold_ms)
        for part in record.layout.partitions
        if (seal := record.seal(part.partition)) is not None
        and any(
            cohort.topic == topic and not cohort_lineage.is_through(state, cohort, part)
            for cohort in state.cohorts.values()
        )
    )


class ToldWalk(CohortWalk):
    """A random history: what a node was told is what it must keep, after each entry."""

    seen_state: MetadataState = EMPTY

    def __init__(self, seed: int) -> None:
        self.told: dict[TopicId, Kept] = {}
        self.orders = Counter[bool]()
        super().__init__(seed)

    def do(self, command: object) -> Result:
        result = super().do(command)
        for phase in node_orders.between(self.seen_state, self.state, self.place(1)):
            for order in phase:
                if isinstance(order, KeepRows):
                    self.told[order.topic] = order.partitions
                    self.orders[bool(order.partitions)] += 1
        self.seen_state = self.state
        expected = {topic: slowly(self.state, topic) for topic in self.state.topics}
        told = {topic: kept for topic, kept in self.told.items() if kept}
        assert told == {topic: kept for topic, kept in expected.items() if kept}
        return result


def test_a_node_knows_after_each_entry_of_a_random_history_what_it_keeps() -> None:
    orders = Counter[bool]()
    for seed in range(WALKS):
        walk = ToldWalk(seed)
        for _ in range(150):
            walk.step()
        orders += walk.orders
    assert orders[True] > 50 and orders[False] > 5, orders
