"""What is missing in the metadata is told again and again, not in a flood."""

from __future__ import annotations

from ringfence.control.state_machines.cohorts.reports import ProgressReports


def times(until_ms: int, missing_until_ms: int) -> list[int]:
    reports = ProgressReports[str]()
    return [
        now_ms
        for now_ms in range(0, until_ms, 50)
        if reports.due(["p"] if now_ms < missing_until_ms else [], now_ms)
    ]


def test_an_item_is_told_after_100_ms_then_a_second_then_every_5_s_until_it_is_there() -> None:
    assert times(18_000, 18_000) == [100, 1_100, 6_100, 11_100, 16_100]
    assert times(18_000, 1_000) == [100]
    assert times(18_000, 90) == []


def test_items_that_come_together_are_told_together() -> None:
    reports = ProgressReports[int]()
    assert reports.due([1, 2], 0) == ()
    assert reports.due([1, 2, 3], 100) == (1, 2)
    assert reports.due([3, 2, 1], 200) == (3,)
    assert reports.due([], 300) == ()
    assert reports.due([1], 400) == (), "it was there meanwhile: told again"
    assert reports.due([1], 500) == (1,)
