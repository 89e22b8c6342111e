"""Rows of SEALED partitions stay beyond the topic's retention as long as cohorts read them (CR2)."""

from __future__ import annotations

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.node_orders import InstallTopic, KeepRows, OpenSealed
from tests.fakes.cohort_log import DAY_MS, CohortLog


class Told(CohortLog):
    """A log, and what its first node is told to keep."""

    def __init__(self) -> None:
        super().__init__(partitions=1)
        self.seen: MetadataState = EMPTY

    def kept(self) -> list[tuple[PartitionId, ...]]:
        """What the node is told since the last look, as the lists of partitions that it is to keep."""
        phases = node_orders.between(self.seen, self.state, self.place(1))
        self.seen = self.state
        return [order.partitions for phase in phases for order in phase if isinstance(order, KeepRows)]


def test_rows_of_a_partition_stay_from_its_seal_on_until_each_cohort_is_through() -> None:
    log = Told()
    one, other = log.create("a"), log.create("b")
    assert log.kept() == []
    first = log.active[0]
    log.split_done(first)
    assert log.kept() == [(first.partition,)]
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
    assert log.kept() == [(first.partition,)]
    log.took(log.delete(cohort))
    assert log.kept() == [()]


def test_a_partition_that_is_overdue_is_kept_no_longer() -> None:
    log = Told()
    log.create()
    first = log.active[0]
    log.split_done(first)
    assert log.kept() == [(first.partition,)]
    log.time_ms += DAY_MS
    log.must(log.restart(1))  # any entry: its time is the log's
    assert log.kept() == [()]


def test_a_node_that_starts_hears_it_before_it_knows_the_topic() -> None:
    log = Told()
    log.create()
    first = log.active[0]
    log.split_done(first)
    phases = node_orders.between(EMPTY, log.state, log.now.assignments[first.partition].owner)
    place = {type(order): at for at, phase in enumerate(phases) for order in phase}
    assert place[KeepRows] < place[InstallTopic] < place[OpenSealed]
