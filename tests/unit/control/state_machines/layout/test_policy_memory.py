"""What a leader remembers of loads: windows without a break, smoothed loads, ages of partitions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import PartitionId
from ringfence.control.state_machines.layout.policy_memory import (
    TopicMemory,
    changing_topics,
    heat,
    observe,
    with_loads,
)
from ringfence.control.state_machines.metadata.auto_layout import AutoSettings, settings_of
from ringfence.control.state_machines.rebalance.loads import PartitionLoad
from tests.fakes.layout_log import LayoutLog

MB = 1_000_000


def switched_on(partitions: int = 2) -> tuple[LayoutLog, AutoSettings]:
    log = LayoutLog(3, partitions=partitions)
    log.must(SetConfig(values={"auto_split": 1, "auto_merge": 1}))
    return log, settings_of(log.state, log.now)


def seen(
    log: LayoutLog, known: TopicMemory | None, now_ms: int, sizes: dict[PartitionId, float]
) -> TopicMemory:
    rules = settings_of(log.state, log.now)
    is_changing = log.topic in changing_topics(log.state)
    known = observe(log.now, known, now_ms, is_changing=is_changing)
    loads = {part: PartitionLoad(size * MB, 1) for part, size in sizes.items()}
    return with_loads(log.now, rules, known, loads, now_ms)


def test_a_load_is_hot_without_a_break_and_a_dip_of_seconds_is_smoothed_away() -> None:
    log, _ = switched_on()
    one, two = (part.partition for part in log.active)
    memory = None
    for now_ms in range(0, 40_000, 2_000):
        memory = seen(log, memory, now_ms, {one: 20 if now_ms == 20_000 else 90, two: 1})
    assert memory is not None
    assert memory.tracks[one].hot_since_ms == 0, "one look of 20 MB/s does not begin the window again"
    assert two not in memory.tracks
    memory = seen(log, memory, 42_000, {two: 1})
    assert one not in memory.tracks, "no report is no load"
    memory = seen(log, memory, 44_000, {one: 90, two: 1})
    assert memory.tracks[one].hot_since_ms == 44_000


def test_a_pair_is_cold_without_a_break_and_a_peak_begins_its_window_again() -> None:
    log, _ = switched_on()
    one, two = (part.partition for part in log.active)
    memory = seen(log, None, 0, {one: 1, two: 1})
    memory = seen(log, memory, 2_000, {one: 1, two: 2})
    assert memory.cold_since_ms == {(one, two): 0}
    for sizes in ({one: 1.0, two: 9.0}, {one: 1.0}):
        gone = seen(log, memory, 4_000, sizes)
        assert gone.cold_since_ms == {}
        assert seen(log, gone, 6_000, {one: 1, two: 1}).cold_since_ms == {(one, two): 6_000}


def test_ages_begin_when_a_version_is_first_seen_also_if_looks_missed_some() -> None:
    log, _ = switched_on()
    memory = seen(log, None, 0, {})
    log.done(log.split(log.active[0]))
    log.done(log.split(log.active[0]))
    memory = seen(log, memory, 500_000, {})
    ages = {part.created_version: memory.active_since_ms(part) for part in log.active}
    assert ages == {1: 0, 2: 500_000, 3: 500_000}
    assert memory.changed_ms == 500_000
    late = seen(log, memory, 900_000, {})
    assert late.changed_ms == 500_000
    assert len(late.versions) == 1, "older than every window: the newest of them tells as much"
    assert {late.active_since_ms(part) for part in log.active} == {500_000}


def test_an_open_change_moves_the_cool_down_and_an_opened_one_does_not() -> None:
    log, _ = switched_on()
    memory = seen(log, None, 0, {})
    log.must(log.split(log.active[0]))
    memory = seen(log, memory, 10_000, {})
    assert memory.changed_ms == 10_000
    number = log.number()
    log.must(log.hold(number))
    log.must(log.commit(number))
    memory = seen(log, memory, 20_000, {})
    log.must(log.opened(number))
    memory = seen(log, memory, 90_000, {})
    assert memory.changed_ms == 20_000, "readers may hold it for days"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5_000), st.floats(0, 200)), min_size=1, max_size=60))
def test_a_smoothed_load_stays_within_what_was_reported(steps: list[tuple[int, float]]) -> None:
    log, rules = switched_on(1)
    [part] = log.active
    memory, now_ms, reported = None, 0, list[float]()
    for pause_ms, size in steps:
        now_ms += pause_ms
        memory = seen(log, memory, now_ms, {part.partition: size})
        track = memory.tracks.get(part.partition)
        if track is None:
            reported.clear()
            continue
        reported.append(size)
        assert min(reported) * MB - 1 <= track.bytes_s <= max(reported) * MB + 1
        assert (track.hot_since_ms is not None) == (heat(track, rules) > 1)
