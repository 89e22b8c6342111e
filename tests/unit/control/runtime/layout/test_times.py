"""Times of layout changes: phases as their entries are applied, gaps, results, and what is forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.control.model.commands import DeleteTopic
from ringfence.control.model.layout_commands import AbortLayout, PrepareLayout
from ringfence.control.model.results import Done, Refused, Result
from ringfence.control.model.state import EMPTY
from ringfence.control.runtime.layout import times
from ringfence.control.runtime.layout.times import Histogram, LayoutTimes
from ringfence.native.wire import Code
from tests.fakes.layout_log import LayoutLog


class Watched(LayoutLog):
    """A log whose entries are a second apart, and are taken by `times`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.times = LayoutTimes(lambda: self.now_s)
        super().__init__(3)

    def step(self, command: object) -> None:
        before = self.state
        self.now_s += 1
        self.must(command)  # type: ignore[arg-type]
        self.times.apply(before, self.state)
        self.note(command, Done())

    def note(self, command: object, result: Result) -> None:
        entry: Any = SimpleNamespace(proposal=SimpleNamespace(command=command))
        self.times.note_entry(entry, result)

    def whole(self, command: PrepareLayout, *names: str) -> int:
        self.step(command)
        number = self.number()
        for name in names or ("hold", "commit", "opened", "finalize"):
            self.step(getattr(self, name)(number))
        return int(number)


def test_phases_last_from_entry_to_entry_and_the_result_is_kept() -> None:
    log = Watched()
    number = log.whole(log.split(log.active[0]))
    [known] = log.times.ended
    assert (known.change, known.result, known.kind, known.sources, known.children) == (
        number,
        "finalized",
        "SPLIT",
        1,
        2,
    )
    assert known.phases_ms == dict.fromkeys(("PREPARED", "HELD", "COMMITTED", "OPENED"), 1_000)
    assert {str(phase): sum(one.counts) for phase, one in log.times.phases.items() if one.sum} == {
        "PREPARED": 1,
        "HELD": 1,
        "COMMITTED": 1,
        "OPENED": 1,
    }
    aborted = log.whole(log.split(log.active[1]), "hold", "abort")
    ended = log.times.ended[0]
    assert (ended.change, ended.result, ended.shown()["why"]) == (aborted, "aborted", "test")
    assert log.times.is_aborted(ended.change)
    assert not log.times.is_aborted(log.times.ended[1].change)
    assert "aborted_why" not in ended.shown()
    log.note(AbortLayout(change=known.change, why="late"), Refused(code=Code.ALREADY_EXISTS, message="no"))
    assert known.shown()["why"] == known.why
    log.step(log.split(log.active[2]))
    log.step(DeleteTopic(topic=log.topic))
    assert log.times.ended[0].result == "deleted"


def test_a_gap_is_counted_once_and_an_end_says_what_it_waited_for() -> None:
    log = Watched()
    log.step(log.split(log.active[0]))
    number = log.number()
    log.times.note_gap(number, 4_000)
    log.times.note_gap(number, 9_000_000)
    known = log.times.of(number)
    assert known is not None
    assert (known.gap_us, sum(log.times.gaps.counts)) == (4_000, 1)
    log.times.note_end(number, 30_000, timed_out=True)
    assert (known.waited_ms, known.timed_out, known.shown()["kind"]) == (30_000, True, "SPLIT")
    log.times.note_gap(type(number)(99), 1)
    assert sum(log.times.gaps.counts) == 1, "of a change that is not known"


def test_what_a_start_finds_has_no_begin_and_old_ends_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Watched()
    log.must(log.split(log.active[0]))
    number = log.number()
    log.times.apply(EMPTY, log.state)
    log.step(log.hold(number))
    known = log.times.of(number)
    assert known is not None
    assert known.phases_ms == {}, "nobody here knows when it was prepared"
    log.step(log.abort(number))
    assert known.phases_ms == {"HELD": 1_000}
    monkeypatch.setattr(times, "ENDED_MAX", 3)
    numbers = [log.whole(log.split(log.active[0]), "abort") for _ in range(5)]
    assert [one.change for one in log.times.ended] == numbers[:1:-1]


def test_a_histogram_counts_each_value_under_the_first_bound_that_takes_it() -> None:
    known = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        known.observe(value)
    assert (known.counts, known.sum) == ([2, 1, 1], 12.0)
