"""Automatic splits and merges under loads of many shapes: they end, do not flap, and name what they do.

The invariants of the policy are checked at each look. A judge of its own counts actions: a split is undone by
a merge only after the load has fallen, and a load that stays leads to no action for good.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.invariants import layout_policy
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.state_machines.layout import policy, policy_memory
from ringfence.control.state_machines.metadata import auto_layout
from ringfence.control.state_machines.rebalance.loads import PartitionLoad
from tests.fakes.metadata_commands import create
from tests.fakes.policy_world import MB, SLOTS, Action, PolicyWorld, Shape, even, rate

SPLIT, MERGE = TransitionKind.SPLIT, TransitionKind.MERGE
SEEDS = 12


def skewed(chance: random.Random) -> Shape:
    """Some hot intervals over a base."""
    hot = []
    for _ in range(chance.randint(0, 4)):
        first = chance.randrange(SLOTS)
        hot.append(
            (first, min(SLOTS - 1, first + chance.choice([0, 9, 900, 20_000])), chance.random() * 200 * MB)
        )
    return (*even(chance.choice([1, 20, 300]) * MB), *hot)


def judged(actions: list[Action], *, window_s: float, merge_window_s: float) -> None:
    """No topic is changed twice within a cool-down, and no split and merge follow each other in a window."""
    for before, after in pairwise(actions):
        pause_s = after.at_s - before.at_s
        assert pause_s >= (window_s if after.kind is SPLIT else merge_window_s), (before, after)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("has_sketches", [True, False])
def test_a_load_that_stays_leads_to_a_layout_that_stays(seed: int, has_sketches: bool) -> None:
    chance = random.Random(seed)
    shape = skewed(chance)
    world = PolicyWorld(
        partitions=chance.choice([1, 3, 16]), seed=seed, noise=0.4, has_sketches=has_sketches, look_s=5
    )
    actions = world.run(14_000, shape)
    judged(actions, window_s=60, merge_window_s=300)
    late = world.run(6_000, shape)
    # The noise may take a load that is at the threshold over it for a whole window.
    assert all(one.kind is SPLIT and one.bytes_s > 45 * MB for one in late), f"flaps: {late}"
    for part in world.active:
        hot = rate(shape, *part.slots) > 50 * MB * 1.4
        assert not hot or part.slots.lo == part.slots.hi or "slot" in world.why(), (part, world.why())
    world.log.agree()


@pytest.mark.parametrize("period_s", [8, 40, 110, 250, 400])
def test_a_load_that_swings_faster_than_a_merge_waits_is_split_and_never_merged(period_s: int) -> None:
    def swing(at_s: float) -> Shape:
        return even((80 + 79 * math.sin(2 * math.pi * at_s / period_s)) * MB)

    world = PolicyWorld(noise=0.1, look_s=2)
    actions = world.run(8_000, swing)
    assert {action.kind for action in actions} <= {SPLIT}
    assert len(actions) <= 7, "159 MB/s need four partitions, eight at most"


def test_a_load_of_days_follows_the_days() -> None:
    def day(at_s: float) -> Shape:
        return even(200 * MB if at_s % 20_000 < 10_000 else MB)

    world = PolicyWorld(look_s=10)
    actions = world.run(60_000, day)
    splits = sum(action.kind is SPLIT for action in actions)
    assert splits == sum(action.kind is MERGE for action in actions) == 3 * 3, "1 to 4 and back, three times"


def test_a_load_at_the_threshold_does_not_flap() -> None:
    world = PolicyWorld(noise=0.3, look_s=2)
    actions = world.run(20_000, even(50 * MB))
    assert len(actions) <= 1, "its halves have five times what a merge takes"


def test_a_leader_that_changes_often_decides_late_and_never_twice() -> None:
    world = PolicyWorld(look_s=5, policy_grace_s=30)
    for _ in range(40):
        world.memory = policy_memory.LayoutMemory(world.now_ms)
        world.run(50, even(300 * MB))
    assert not world.actions, "each leader begins the window from scratch"
    world.run(400, even(300 * MB))
    assert world.actions


# ---- planted bugs ---------------------------------------------------------------------------------------


def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    true = policy._Look._too_early

    def late(self: Any, candidate: Any) -> Any:
        reason = true(self, candidate)
        return None if reason is not None and reason[0] is policy.Why.WINDOW else reason

    monkeypatch.setattr(policy._Look, "_too_early", late)


def children_are_classified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_memory.TopicMemory, "active_since_ms", lambda *_: 0)
    no_cooldown(monkeypatch)


def no_cooldown(monkeypatch: pytest.MonkeyPatch) -> None:
    true = policy._Look._too_early

    def early(self: Any, candidate: Any) -> Any:
        reason = true(self, candidate)
        return None if reason is not None and reason[0] is policy.Why.COOLDOWN else reason

    monkeypatch.setattr(policy._Look, "_too_early", early)


def merges_as_high_as_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    true = auto_layout.settings_by_topic

    def high(state: Any) -> Any:
        return {
            number: known._replace(merge_bytes_s=10**9, merge_rows_s=10**9)
            for number, known in true(state).items()
        }

    monkeypatch.setattr(policy, "settings_by_topic", high)


def silence_is_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    true = policy_memory.with_loads

    def all_known(topic: Any, settings: Any, memory: Any, loads: Any, now_ms: int) -> Any:
        zero = PartitionLoad(0, 0)
        known = {part.partition: loads.get(part.partition, zero) for part in topic.layout.active()}
        loads.update(known)
        return true(topic, settings, memory, known, now_ms)

    monkeypatch.setattr(policy, "with_loads", all_known)


def no_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy._Look, "_capped", lambda *_: None)


def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    true = policy._Look._too_early

    def early(self: Any, candidate: Any) -> Any:
        reason = true(self, candidate)
        return None if reason is not None and reason[0] is policy.Why.GRACE else reason

    monkeypatch.setattr(policy._Look, "_too_early", early)


def open_ones_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "open_actions", lambda *_: -100)


def memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    true = policy_memory.with_loads

    def kept(topic: Any, settings: Any, memory: Any, *more: Any) -> Any:
        after = true(topic, settings, memory, *more)
        return replace(after, tracks=memory.tracks | after.tracks)

    monkeypatch.setattr(policy, "with_loads", kept)


def hot(world: PolicyWorld) -> None:
    world.run(1_500, even(900 * MB))


def burst(world: PolicyWorld) -> None:
    world.run(400, even(10 * MB))
    world.run(40, even(300 * MB))


def hot_then_cold(world: PolicyWorld) -> None:
    world.run(400, even(300 * MB))
    world.run(2_500, even(30 * MB))


def silent(world: PolicyWorld) -> None:
    world.silent = {part.partition for part in world.active}
    world.run(900, even(300 * MB))
    assert not world.actions, "P4: what nobody has reported was merged"


PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[PolicyWorld], None], dict[str, Any]]] = [
    (no_window, burst, {}),
    (children_are_classified, hot, {}),
    (no_cooldown, hot, {"auto_split_cooldown_s": 200}),
    (merges_as_high_as_splits, hot_then_cold, {}),
    (silence_is_cold, silent, {"partitions": 4}),
    (no_cap, hot, {"auto_partitions_max": 2}),
    (no_grace, hot, {"policy_grace_s": 5_000}),
    (memory_is_kept, hot, {}),
]


@pytest.mark.parametrize(
    ("plant", "load", "given"), PLANTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    load: Callable[[PolicyWorld], None],
    given: dict[str, Any],
) -> None:
    load(PolicyWorld(**given))
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)) as found:
        load(PolicyWorld(**given))
    assert "P" in str(found.value), found.value


def test_more_open_actions_than_allowed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    open_ones_are_not_counted(monkeypatch)
    world = PolicyWorld(auto_open_max=1)
    monkeypatch.setattr(layout_policy, "open_actions", lambda *_: 1)
    with pytest.raises(AssertionError, match="P6"):
        hot(world)


def test_very_many_partitions_are_looked_at_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "LOOK_PARTITIONS_MAX", 5)
    world = PolicyWorld(partitions=4, auto_merge=0, auto_open_max=64)
    topics = [world.log.topic]
    for number in range(4):
        world.log.must(create(f"public/default/more{number}", partitions=4))
        topics.append(type(world.log.topic)(world.log.at))
    seen = [[*world.look(even(0)).topics] for _ in range(6)]
    assert [len(one) for one in seen] == [1] * 6
    assert [number for [number] in seen] == [*topics, topics[0]]
    assert world.memory.topics.keys() == {*topics}, "what is not looked at now is remembered"
    assert len(world.run(1_000, even(300 * MB))) > 1
