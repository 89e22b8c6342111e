"""Plans of layout changes: slots, places, and what is told when none is possible."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.node_commands import SetNode
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.results import Refused
from ringfence.control.state_machines.layout import plan
from ringfence.control.state_machines.metadata.state_machine import validate
from tests.fakes.layout_log import LayoutLog


def planned(made: object) -> PrepareLayout:
    assert isinstance(made, PrepareLayout), made
    return made


def refused(made: object) -> str:
    assert isinstance(made, Refused), made
    return made.message


def test_a_split_without_more_words_is_at_the_middle() -> None:
    log = LayoutLog(3, partitions=1)
    part = log.active[0].partition
    made = planned(plan.split(log.state, log.now, part))
    assert [(child.lo, child.hi) for child in made.children] == [(0, 32_767), (32_768, 65_535)]
    made = planned(plan.split(log.state, log.now, part, at=[9, 4]))
    assert [(child.lo, child.hi) for child in made.children] == [(0, 3), (4, 8), (9, 65_535)]
    assert plan.cut_slots(SlotRange(0, 2), 2, ()) == [2]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_cuts_are_inside_ascending_and_near_the_quantiles(data: st.DataObject) -> None:
    lo = data.draw(st.integers(0, 65_534))
    hi = data.draw(st.integers(lo + 1, 65_535))
    into = data.draw(st.integers(2, min(9, hi - lo + 1)))
    weights = data.draw(st.lists(st.integers(0, 9), min_size=16, max_size=16))
    cuts = plan.cut_slots(SlotRange(lo, hi), into, weights)
    assert len(cuts) == into - 1
    assert [lo, *cuts, hi + 1] == sorted({lo, *cuts, hi + 1})
    if into == 2 and any(weights) and hi - lo > 1_000:
        place = (cuts[0] - lo) * len(weights) / (hi - lo + 1)
        left = sum(weights[: round(place)])
        assert abs(left - sum(weights) / 2) <= max(weights)


def test_a_heavy_half_is_cut_at_its_weight() -> None:
    weights = [0] * 12 + [10] * 4
    cut = plan.cut_slots(SlotRange(0, 15_999), 2, weights)
    assert cut == [14_000]


@pytest.mark.parametrize("replication", [1, 3])
def test_the_halves_land_on_two_owners_and_the_heavier_keeps_the_sources_nodes(replication: int) -> None:
    log = LayoutLog(4, partitions=1, replication=replication)
    part = log.active[0].partition
    now = log.now.assignments[part]
    made = planned(plan.split(log.state, log.now, part, weights=[1, 1, 1, 9]))
    assert [(child.lo, child.hi) for child in made.children] == [(0, 49_151), (49_152, 65_535)]
    kept = made.children[1]
    assert kept.nodes[0] == now.owner.node
    assert {*kept.nodes} == {place.node for place in now.replicas}
    assert made.children[0].nodes[0] != now.owner.node
    assert validate(log.state, made) is None


def test_a_source_on_a_drained_node_keeps_no_child() -> None:
    log = LayoutLog(4, partitions=1)
    owner = log.now.assignments[log.active[0].partition].owner.node
    log.must(SetNode(node=owner, draining=True))
    made = planned(plan.split(log.state, log.now, log.active[0].partition))
    assert owner not in {node for child in made.children for node in child.nodes}
    assert validate(log.state, made) is None


def test_a_merge_in_either_order_takes_the_place_of_the_busier() -> None:
    log = LayoutLog(3)
    one, other = (part.partition for part in log.active[:2])
    for pair in ((one, other), (other, one)):
        made = planned(plan.merge(log.state, log.now, *pair, loads={other: 5.0}))
        assert [(child.lo, child.hi) for child in made.children] == [(0, 32_767)]
        assert made.children[0].nodes[0] == log.now.assignments[other].owner.node
        assert validate(log.state, made) is None


@settings(max_examples=40, deadline=None)
@given(before=st.integers(1, 12), after=st.integers(1, 12), replication=st.sampled_from([1, 3]))
def test_a_repartition_is_prepared_and_makes_equal_ranges(before: int, after: int, replication: int) -> None:
    log = LayoutLog(4, partitions=before, replication=replication)
    made = plan.repartition(log.state, log.now, after)
    if before == after:
        assert made is None
        return
    log.done(planned(made))
    assert [part.slots for part in log.active] == list(tile(after))
    owners = [log.now.assignments[part.partition].owner.node for part in log.active]
    counts = [owners.count(node) for node in log.nodes]
    assert max(counts) - min(counts) <= 1 + before // 4 * (replication == 1)


def test_an_even_repartition_changes_sizes_only() -> None:
    log = LayoutLog(3, partitions=2)
    log.done(planned(plan.split(log.state, log.now, log.active[0].partition, at=[7])))
    assert plan.repartition(log.state, log.now, 3) is None
    log.done(planned(plan.repartition(log.state, log.now, 3, even=True)))
    assert [part.slots for part in log.active] == list(tile(3))
    assert plan.repartition(log.state, log.now, 3, even=True) is None


def test_what_is_not_possible_is_told_with_the_values() -> None:
    log = LayoutLog(3)
    state, topic = log.state, log.now
    part = log.active[0].partition
    assert "no partition 5" in refused(plan.split(state, topic, PartitionId(5)))
    assert "slot 0 begins no part" in refused(plan.split(state, topic, part, at=[0]))
    assert "slot 16384 begins no part" in refused(plan.split(state, topic, part, at=[16_384]))
    assert "into 1 parts: 2 to 16384" in refused(plan.split(state, topic, part, into=1))
    assert "0 partitions" in refused(plan.repartition(state, topic, 0))
    assert "no partition 5" in refused(plan.merge(state, topic, part, PartitionId(5)))
    log.done(log.split(log.active[0], at=1))
    assert "has one slot" in refused(plan.split(log.state, log.now, log.active[0].partition))
    assert "was sealed by" in refused(plan.split(log.state, log.now, part))
    for node in log.nodes:
        log.must(SetNode(node=node, draining=True))
    assert "needs so many nodes" in refused(plan.split(log.state, log.now, log.active[1].partition))
