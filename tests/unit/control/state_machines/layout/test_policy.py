"""Automatic splits and merges: off by default, after a window and a cool-down, within caps, explained."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.model.commands import SetConfig
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.layout_commands import SetAutoLayout
from ringfence.control.state_machines.layout.policy import LayoutDecision, Observations, Why, decide_layout
from ringfence.control.state_machines.layout.policy_memory import LayoutMemory
from ringfence.control.state_machines.metadata.config import LIMITS
from ringfence.control.state_machines.rebalance.loads import PartitionLoad
from tests.fakes.layout_log import LayoutLog
from tests.fakes.policy_world import MB, PolicyWorld, Shape, even

SPLIT, MERGE = TransitionKind.SPLIT, TransitionKind.MERGE


def suppressed(world: PolicyWorld) -> set[Why | None]:
    return {one.suppressed for one in world.decision.topics[world.log.topic].candidates}


def test_the_defaults_are_those_of_the_documents() -> None:
    assert {name: known.default for name, known in LIMITS.items() if name.startswith("auto_")} == {
        "auto_split": 0,
        "auto_merge": 0,
        "auto_split_bytes_s": 50_000_000,
        "auto_split_rows_s": 500_000,
        "auto_merge_bytes_s": 5_000_000,
        "auto_merge_rows_s": 50_000,
        "auto_window_s": 60,
        "auto_merge_window_s": 300,
        "auto_split_cooldown_s": 60,
        "auto_merge_cooldown_s": 300,
        "auto_partitions_max": 64,
        "auto_partitions_min": 1,
        "auto_open_max": 4,
    }


def test_it_is_off_until_it_is_asked_for_and_a_topic_overrides_the_cluster() -> None:
    world = PolicyWorld(auto_split=0, auto_merge=0)
    assert not world.run(1_000, even(500 * MB))
    assert not world.decision.topics
    world.log.must(SetAutoLayout(topic=world.log.topic, values={"auto_split": 1, "auto_partitions_max": 2}))
    assert [action.kind for action in world.run(1_000, even(500 * MB))] == [SPLIT]
    assert "auto_partitions_max 2" in world.why()
    world.log.must(SetConfig(values={"auto_split": 1}))
    world.log.must(SetAutoLayout(topic=world.log.topic, values={"auto_split": 0}))
    assert not world.run(1_000, even(500 * MB))
    world.log.must(
        SetAutoLayout(topic=world.log.topic, values={"auto_split": None, "auto_partitions_max": None})
    )
    assert world.log.now.properties == {}
    assert world.run(1_000, even(500 * MB))


def test_a_partition_that_is_hot_for_a_window_is_split_where_half_of_its_load_is() -> None:
    world = PolicyWorld()
    shape: Shape = ((0, 32_767, 10 * MB), (32_768, 65_535, 60 * MB))
    [first] = world.run(80, shape)
    assert 60 <= first.at_s - 1_000 <= 72, "after its window, and the answer of the owner"
    assert abs(world.active[1].slots.lo - 46_421) < 128, "at the nearest bucket"
    assert world.decision.wants == frozenset()
    assert not world.run(600, shape), "35 MB/s each are below the threshold, and above that of a merge"


def test_rows_count_beside_bytes() -> None:
    world = PolicyWorld()
    world.row_bytes = 10
    assert len(world.run(100, even(6 * MB))) == 1, "600,000 rows/s"


def test_without_a_sketch_it_waits_for_the_owner_and_splits_in_the_middle() -> None:
    world = PolicyWorld(has_sketches=False)
    world.run(100, even(70 * MB))
    assert [part.slots.lo for part in world.active] == [0, 32_768]
    silent = PolicyWorld()
    log, loads = silent.log, {silent.active[0].partition: PartitionLoad(70 * MB, 10)}
    memory, wanted, now_ms, decision = LayoutMemory(0), 0, 0, LayoutDecision({})
    while not decision.commands:
        now_ms += 2_000
        decision, memory = decide_layout(log.state, Observations(loads), now_ms, memory)
        wanted += bool(decision.wants)
    assert (wanted, now_ms) == (5, 72_000), "asked for 10 s after the window, which began at the first look"
    assert "in the middle" in decision.commands[0].why


def test_a_burst_takes_one_split_a_cool_down_and_ends_at_the_cap() -> None:
    world = PolicyWorld(auto_partitions_max=8, auto_merge=0)
    actions = world.run(3_000, even(2_000 * MB))
    assert len(world.active) == 8
    pauses = [after.at_s - before.at_s for before, after in itertools.pairwise(actions)]
    assert min(pauses) >= 60
    assert suppressed(world) == {Why.PARTITIONS_MAX}
    assert "auto_partitions_max 8" in world.why()


def test_cold_neighbours_are_merged_one_pair_a_cool_down_down_to_the_least_number() -> None:
    world = PolicyWorld(partitions=8, auto_partitions_min=3)
    actions = world.run(5_000, even(2 * MB))
    assert {action.kind for action in actions} == {MERGE}
    assert actions[0].at_s - 1_000 >= 300
    assert min(b.at_s - a.at_s for a, b in itertools.pairwise(actions)) >= 300
    assert len(world.active) == 3
    assert "auto_partitions_min 3" in world.why()


def test_a_partition_without_a_report_is_neither_hot_nor_cold() -> None:
    world = PolicyWorld(partitions=2)
    world.silent = {world.active[1].partition}
    assert not world.run(2_000, even(MB))
    world.silent = {part.partition for part in world.active}
    assert not world.run(2_000, even(500 * MB))
    assert "loads of 0 are known" in world.why()


def test_an_upper_bound_is_low_enough_for_a_merge_and_never_high_enough_for_a_split() -> None:
    world = PolicyWorld(partitions=2)
    bound = {part.partition: PartitionLoad(90 * MB, 9, is_exact=False) for part in world.active}
    memory = LayoutMemory(0)
    for now_ms in range(0, 1_000_000, 2_000):
        decision, memory = decide_layout(world.log.state, Observations(bound), now_ms, memory)
        assert not decision.commands
    bound = {part.partition: PartitionLoad(MB, 9, is_exact=False) for part in world.active}
    for now_ms in range(1_000_000, 1_400_000, 2_000):
        decision, memory = decide_layout(world.log.state, Observations(bound), now_ms, memory)
        if decision.commands:
            return
    raise AssertionError("no merge")


def test_a_new_leader_and_an_operators_change_begin_windows_and_cool_downs_again() -> None:
    world = PolicyWorld(policy_grace_s=500)
    assert not world.run(490, even(80 * MB))
    assert suppressed(world) == {Why.GRACE}
    assert len(world.run(30, even(80 * MB))) == 1
    by_hand = PolicyWorld(auto_merge=0)
    by_hand.run(50, even(300 * MB))
    by_hand.log.done(by_hand.log.split(by_hand.active[0]))
    by_hand.run(10, even(300 * MB))
    assert suppressed(by_hand) == {Why.UNCLASSIFIED}
    [action] = by_hand.run(80, even(300 * MB))
    assert action.at_s - 1_050 >= 60


def test_what_hinders_an_action_is_named() -> None:
    world = PolicyWorld(auto_merge=0)
    world.log.must(SetConfig(values={"layout_changes_enabled": 0}))
    assert not world.run(100, even(80 * MB))
    assert (suppressed(world), "layout_changes_enabled" in world.why()) == ({Why.DISABLED}, True)
    world.log.must(SetConfig(values={"layout_changes_enabled": 1}))
    world.log.must(world.log.split(world.active[0]))
    world.look(even(80 * MB))
    assert suppressed(world) == {Why.COOLDOWN}, "a layout change is open: its effect must be seen first"
    world.log.must(world.log.abort())
    world.run(58, even(80 * MB))
    assert suppressed(world) == {Why.COOLDOWN}
    world.log.fail(world.log.now.assignments[world.active[0].partition].owner.node)
    world.run(10, even(80 * MB))
    assert (suppressed(world), "FAILED" in world.why()) == ({Why.NODE_FAILED}, True)


def test_readers_that_lag_hold_a_merge_and_the_lineage_is_bounded() -> None:
    world = PolicyWorld(partitions=4)
    world.lagging = {part.partition for part in world.active}
    assert not world.run(700, even(MB))
    assert suppressed(world) == {Why.LAG}
    world.lagging = set()
    assert world.run(10, even(MB))
    short = PolicyWorld(partitions=4, topic_partitions_max=5)
    assert not short.run(700, even(MB))
    assert (suppressed(short), "5" in short.why()) == ({Why.LINEAGE}, True)


def test_a_hot_key_is_named_and_never_split() -> None:
    world = PolicyWorld(auto_merge=0)
    shape: Shape = ((0x1A2B, 0x1A2B, 93 * MB), (0, 65_535, 7 * MB))
    world.run(3_000, shape)
    [found] = world.decision.topics[world.log.topic].hot_keys
    hot = next(part for part in world.active if part.slots.lo <= 0x1A2B <= part.slots.hi)
    assert (found.partition, found.slot) == (hot.partition, 0x1A2B)
    assert hot.slots.hi - hot.slots.lo < 1_024, "the range was narrowed around the slot first"
    assert len(world.actions) <= 3
    assert "slot 0x1a2b takes" in world.why()
    assert suppressed(world) == {Why.HOT_KEY}


def test_without_sketches_a_hot_key_ends_in_a_partition_of_one_slot() -> None:
    world = PolicyWorld(auto_merge=0, has_sketches=False)
    world.run(4_000, ((0x1A2B, 0x1A2B, 93 * MB),))
    [found] = world.decision.topics[world.log.topic].hot_keys
    assert (found.slot, found.percent, len(world.actions)) == (0x1A2B, 100, 16)


def test_the_hottest_topics_come_first_and_few_actions_are_open() -> None:
    log = LayoutLog(3, partitions=4)
    values = {"auto_split": 1, "auto_open_max": 1, "policy_grace_s": 0}
    log.must(SetConfig(values=values))
    parts = [part.partition for part in log.active]
    loads = {number: PartitionLoad((60 + place) * MB, 1) for place, number in enumerate(parts)}
    memory, seen, now_ms, decision = LayoutMemory(0), Observations(loads), 0, LayoutDecision({})
    while not decision.commands:
        now_ms += 2_000
        decision, memory = decide_layout(log.state, seen, now_ms, memory)
    [command] = decision.commands
    assert command.sources[0][0] == parts[-1]
    log.must(command)
    other = decide_layout(log.state, seen, now_ms + 2_000, memory)[0]
    assert not other.commands


@pytest.mark.parametrize(("merge", "split"), [(400 * MB, 50 * MB), (50 * MB, 50 * MB)])
def test_thresholds_of_merges_count_half_of_those_of_splits_at_most(merge: int, split: int) -> None:
    world = PolicyWorld(partitions=2, auto_merge_bytes_s=merge, auto_split_bytes_s=split)
    assert not world.run(2_000, even(30 * MB)), "they would be 30 MB/s: more than half of 50"
    assert [action.kind for action in world.run(2_000, even(20 * MB))] == [MERGE]
    assert not world.run(2_000, even(30 * MB)), "nor is it split again below the threshold"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.data())
def test_a_trace_gives_the_same_actions_again(seed: int, partitions: int, data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.sampled_from([0, 1, 4, 40, 200, 900]), min_size=4, max_size=12))
    runs = []
    for _ in range(2):
        world = PolicyWorld(partitions=partitions, seed=seed, noise=0.3, look_s=7, auto_partitions_max=16)
        for size in steps:
            world.run(130, even(size * MB))
        runs.append((world.actions, world.memory))
    assert runs[0] == runs[1]
