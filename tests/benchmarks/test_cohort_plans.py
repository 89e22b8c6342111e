"""The script of plans measures what it says, on a size that takes a moment."""

from __future__ import annotations

from benchmarks.cohort_plans import measured


def test_a_join_and_a_leave_are_measured_and_move_what_they_must() -> None:
    figures = measured(400, 10, repeat=1)
    assert all(figures[name] > 0 for name in ("first plan ms", "a join ms", "a leave ms"))
    assert figures["moved by a join"] == 400 // 11
    assert figures["moved by a leave"] == 40
