"""Which sealed partitions a leader asks about, and which it proposes to prune."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringfence.control.model.ids import PartitionId
from ringfence.control.state_machines.layout import prune
from ringfence.control.state_machines.layout.prune import SealedFigures
from tests.fakes.layout_log import LayoutLog

EMPTIED = SealedFigures(70, 70, 0)
AGED_MS, OVERDUE_MS = 1_200_000, 86_400_000


def split_twice() -> tuple[LayoutLog, PartitionId, PartitionId]:
    log = LayoutLog(3)
    first = log.active[0].partition
    log.done(log.split(log.active[0]))
    second = log.active[0].partition
    log.done(log.split(log.active[0]))
    return log, first, second


def test_parents_are_asked_about_before_their_children_and_not_too_early() -> None:
    log, first, second = split_twice()
    assert [*prune.candidates(log.state, log.time_ms + AGED_MS - 1)] == []
    [candidate] = prune.candidates(log.state, log.time_ms + AGED_MS)
    assert (candidate.partition, candidate.owner) == (first, log.now.assignments[first].owner)
    log.time_ms += AGED_MS
    log.must(log.prune(first))
    assert [one.partition for one in prune.candidates(log.state, log.time_ms)] == [second]


def test_rows_hold_a_partition_for_good_and_stages_for_a_day() -> None:
    log, first, _ = split_twice()
    now = log.time_ms + AGED_MS
    assert prune.due(log.state, {}, now) == ()
    assert prune.due(log.state, {first: SealedFigures(69, 70, 0)}, now) == ()
    assert prune.due(log.state, {first: SealedFigures(70, 70, 1)}, now) == ()
    [entry] = prune.due(log.state, {first: EMPTIED}, now)
    assert entry == log.prune(first)
    late = log.time_ms + OVERDUE_MS
    assert prune.due(log.state, {first: SealedFigures(70, 70, 1)}, late) == (entry,)
    assert prune.due(log.state, {first: SealedFigures(69, 70, 1)}, late) == ()


# ---- planted bugs -------------------------------------------------------------------------------------


def stage_holds_for_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prune, "is_overdue", lambda *_: False)


def stage_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(prune, "is_overdue", lambda *_: True)


@pytest.mark.parametrize("plant", [stage_holds_for_good, stage_is_ignored])
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        test_rows_hold_a_partition_for_good_and_stages_for_a_day()
