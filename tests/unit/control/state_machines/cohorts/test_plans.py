"""When a cohort is planned, and the entries of a plan."""

from __future__ import annotations

import pytest

from ringfence.control.model.cohorts import CohortMode, StartKind
from ringfence.control.model.results import Refused
from ringfence.control.state_machines.cohorts.plans import (
    DELAY_MS_MAX,
    PlanSchedule,
    is_large,
    moves,
    next_entry,
    unassigned,
)
from tests.fakes.cohort_log import CohortLog


def due_at(schedule: PlanSchedule, log: CohortLog, now_ms: int, until_ms: int) -> int | None:
    """The first time in steps of 50 ms at which a cohort is due."""
    for time_ms in range(now_ms, until_ms, 50):
        schedule.observe(log.state, time_ms)
        if schedule.due(time_ms):
            return time_ms
    return None


# ---- entries --------------------------------------------------------------------------------------------


def test_a_large_change_is_several_entries_each_fit_to_be_obeyed() -> None:
    """PB18: after every entry each partition is with one member at most, and what is taken is given."""
    log = CohortLog(partitions=24)
    number = log.create()
    log.join(number, "a", "b")
    log.plan(number)
    log.join(number, "c", "d")
    whole = len(moves(log.state, log.cohort(number)))
    assert whole == 12
    entries = 0
    while (made := next_entry(log.state, log.cohort(number), most=7)) is not None:
        before = sum(map(len, log.slices(number).values()))
        log.must(made.command)
        entries += 1
        assert sum(map(len, log.slices(number).values())) == before == 24, "a partition is unassigned"
        left = len(moves(log.state, log.cohort(number)))
        assert left == whole - 3, "the rest of the plan is what it would have been"
        assert made.is_whole == (left == 0)
        whole = left
    assert entries == 4
    assert log.cohort(number).generation == 5
    assert [len(share) for share in log.slices(number).values()] == [6] * 4


def test_an_equal_plan_is_no_entry() -> None:
    log = CohortLog()
    number = log.create()
    log.join(number, "a", "b")
    assert log.plan(number) == 1
    assert log.plan(number) == 0
    assert unassigned(log.state, log.cohort(number)) == 0


def test_a_queue_and_a_cohort_without_members_have_no_plan() -> None:
    log = CohortLog()
    queue, empty = log.create("q", CohortMode.QUEUE), log.create("empty")
    log.join(queue, "a")
    assert next_entry(log.state, log.cohort(queue)) is None
    assert next_entry(log.state, log.cohort(empty)) is None
    assert unassigned(log.state, log.cohort(queue)) == 0
    assert unassigned(log.state, log.cohort(empty)) == 4
    assert not is_large(log.state, log.cohort(empty))


def test_a_child_goes_to_the_member_of_its_parent() -> None:
    log = CohortLog(partitions=2)
    number = log.create()
    log.join(number, "a", "b")
    log.plan(number)
    second = log.active[1]
    assert second.partition in log.slices(number)["b"]
    one, other = log.split_done(second)
    log.must(log.drained(number, second.partition))
    log.plan(number)
    assert one.partition in log.slices(number)["b"]
    assert sum(part in log.slices(number)["b"] for part in (one.partition, other.partition)) >= 1


def test_a_plan_that_was_made_on_slices_of_before_is_refused() -> None:
    log = CohortLog()
    number = log.create()
    log.join(number, "a")
    made = next_entry(log.state, log.cohort(number))
    assert made is not None
    log.plan(number)
    assert isinstance(log.do(made.command), Refused)


def test_what_a_seek_puts_back_is_planned_again() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    log.join(number, "a")
    source = log.active[0].partition
    log.split_done(log.active[0])
    log.must(log.drained(number, source))
    log.plan(number)
    assert source not in log.slices(number)["a"]
    log.must(log.seek(number, StartKind.EARLIEST))
    log.plan(number)
    assert source in log.slices(number)["a"]


# ---- times ----------------------------------------------------------------------------------------------


def test_the_start_of_ten_processes_is_one_plan() -> None:
    log, schedule = CohortLog(), PlanSchedule()
    number = log.create()
    schedule.observe(log.state, 0)
    assert schedule.due(100) == (number,)
    for place in range(10):
        log.join(number, f"m{place}")
        schedule.observe(log.state, 20_000 + place * 9)
        assert schedule.due(20_000 + place * 9) == ()
    assert schedule.due(20_099) == ()
    assert schedule.due(20_100) == (number,)
    assert schedule.due(30_000) == ()


def test_joins_that_keep_coming_are_eight_plans_in_ten_seconds_at_most() -> None:
    log, schedule, plans = CohortLog(partitions=128), PlanSchedule(), 0
    number = log.create()
    for time_ms in range(0, 10_000, 100):
        log.join(number, f"m{time_ms}")
        schedule.observe(log.state, time_ms)
        if schedule.due(time_ms):
            plans += log.plan(number)
    found = due_at(schedule, log, 10_000, 20_000)
    assert found is not None
    assert found <= 10_000 + DELAY_MS_MAX
    plans += log.plan(number)
    assert 6 <= plans <= 8
    assert due_at(schedule, log, 14_000, 30_000) is None, "nothing waits any more"


def test_a_member_that_leaves_is_waited_for_100_ms_at_most_although_changes_keep_coming() -> None:
    log, schedule = CohortLog(), PlanSchedule()
    number = log.create()
    for time_ms in range(0, 6_000, 100):
        log.join(number, f"m{time_ms}")
        schedule.observe(log.state, time_ms)
        if schedule.due(time_ms):
            log.plan(number)
    log.must(log.leave(number, "m0"))
    schedule.leave(number, 6_000)
    schedule.observe(log.state, 6_000)
    assert due_at(schedule, log, 6_000, 9_000) == 6_100


def test_after_ten_quiet_seconds_a_change_waits_for_200_ms_again() -> None:
    log, schedule = CohortLog(), PlanSchedule()
    number = log.create()
    log.join(number, "a")
    schedule.observe(log.state, 0)
    assert schedule.due(100)
    log.plan(number)
    log.join(number, "b")
    assert due_at(schedule, log, 20_000, 30_000) == 20_200


@pytest.mark.parametrize("change", ["layout", "mark", "seek", "leave"])
def test_what_a_plan_depends_on_is_noticed(change: str) -> None:
    log, schedule = CohortLog(partitions=1), PlanSchedule()
    number = log.create()
    log.join(number, "a", "b")
    log.plan(number)
    source = log.active[0]
    log.split_done(source)
    log.plan(number)
    assert due_at(schedule, log, 0, 1_000) is not None, "a new leader plans all cohorts once"
    assert due_at(schedule, log, 1_000, 2_000) is None
    match change:
        case "layout":
            log.split_done(log.active[0])
        case "mark":
            log.must(log.drained(number, source.partition))
        case "seek":
            log.must(log.seek(number))
        case _:
            log.must(log.leave(number, "a"))
    assert due_at(schedule, log, 20_000, 21_000) is not None
    log.must(log.change(number, log.cohort(number).changed, limit=9))
    log.create("other", CohortMode.QUEUE)
    assert due_at(schedule, log, 40_000, 41_000) is None, "settings, and other cohorts"


def test_a_cohort_that_is_gone_is_not_planned() -> None:
    log, schedule = CohortLog(), PlanSchedule()
    number = log.create()
    schedule.observe(log.state, 0)
    log.must(log.delete(number))
    schedule.observe(log.state, 10)
    assert schedule.due(1_000) == ()
    schedule.leave(number, 1_000)
    assert schedule.due(2_000) == ()
