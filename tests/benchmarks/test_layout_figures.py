"""The benchmarks of layout changes: what is counted is the same at every size, and limits hold."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import layout_pushes
from benchmarks.cluster import doubled, repartitions, splits
from benchmarks.cluster.layouts import LeaderView
from benchmarks.cluster.repartitions import Change
from benchmarks.cluster.steady import Steady


@pytest.mark.parametrize(("partitions", "connections"), [(1, 2), (10, 40), (400, 4)])
def test_a_split_costs_five_entries_and_a_frame_for_those_who_use_the_topic(
    partitions: int, connections: int
) -> None:
    figures = layout_pushes.measured(partitions, connections)
    assert (figures["entries"], figures["frames of others"]) == (5, 0)
    by_entry = {**dict.fromkeys(layout_pushes.ENTRIES, 0), "COMMIT": connections // 2}
    assert figures["frames by entry"] == by_entry
    assert figures["bytes a follower"] > 100 * partitions, "the whole table"
    assert 200 < figures["changed bytes"] < 600, "three partitions"
    assert layout_pushes.held({"one": figures})


@pytest.mark.parametrize("name", ["entries", "frames a follower", "frames of others"])
def test_pushes_hold_only_as_they_are_wanted(name: str) -> None:
    wanted = {"entries": 5, "frames a follower": 1, "frames of others": 0}
    assert layout_pushes.held({"one": wanted})
    assert not layout_pushes.held({"one": wanted, "two": {**wanted, name: wanted[name] + 1}})


def gaps(p99_ms: float, **others: float) -> dict[str, Any]:
    return {kind: {"gap_ms": {"p99": others.get(kind, p99_ms)}} for kind in splits.KINDS}


def test_gaps_hold_beside_a_move_at_20_mb_per_s() -> None:
    def found(steady: dict[str, Any], full: dict[str, Any]) -> dict[str, Any]:
        result = {splits.STEADY: steady, splits.FULL: full}
        return {**result, "ratios": splits.ratios(result)}

    good = found(gaps(30.0, handed_over=20.0), gaps(100.0, handed_over=400.0))
    assert good["ratios"][splits.STEADY]["split"] == 1.5
    assert good["ratios"][splits.FULL]["split"] == 5.0
    assert good["ratios"]["of_a_move_at_full_load"]["split"] == 0.25
    assert splits.held(good)
    for kind in splits.KINDS[1:]:
        assert not splits.held(found(gaps(30.0, handed_over=20.0, **{kind: 31.0}), gaps(100.0)))
        assert not splits.held(found(gaps(30.0, handed_over=20.0), gaps(100.0, **{kind: 102.0})))


def test_views_without_a_gap_are_left_out() -> None:
    seen = splits.Seen()
    for kind in splits.KINDS:
        seen.gaps[kind] += [0.010, 0.020]
        seen.views[kind] += [LeaderView(None, {}), LeaderView(9.0, {"HELD": 7})]
    seen.calm, seen.mb_per_s = [0.004], [20.0]
    shown = seen.figures()
    assert shown["split"] == {
        "changes": 2,
        "gap_ms": {"p50": 15.0, "p99": 19.9, "worst": 20.0},
        "leader_gap_ms": {"p50": 9.0, "worst": 9.0},
        "held_ms": {"p50": 7, "worst": 7},
    }
    assert shown["handed_over"]["gap_ms"]["worst"] == 20.0


def test_doubling_holds_within_its_aim() -> None:
    assert doubled.held({"doubled": {"gap_ms": {"p99": 250.0}}})
    assert not doubled.held({"doubled": {"gap_ms": {"p99": 250.1}}})


def test_the_longest_waits_are_shown_with_the_change_that_was_going_on() -> None:
    view = LeaderView(12.0, {"HELD": 11})
    done = [Change(1, 4, 10.0, 10.5, view), Change(4, 9, 20.0, 20.5, view)]
    producer = Steady("unused", "t", 1.0)
    for wait_s, answered_s in ((0.004, 5.0), (0.3, 10.3), (0.2, 10.4), (1.5, 21.4), (0.1, 30.0)):
        producer.waits_s.append(wait_s)
        producer.acknowledged_s.append(answered_s)
    figures = repartitions.waits(producer, done)
    assert (figures["sends"], figures["longest_s"]) == (5, 1.5)
    assert [(one["wait_ms"], one["change"]) for one in figures["longest"]] == [
        (1500.0, "1: 4 -> 9"),
        (300.0, "0: 1 -> 4"),
        (100.0, None),
    ]
    first = figures["longest"][0]
    assert (first["sent_ms"], first["answered_ms"], first["took_ms"]) == (-100, 1400, 500)
    assert (first["gap_ms"], first["phases_ms"]) == (12.0, {"HELD": 11})


def test_waits_hold_below_a_second_and_without_errors() -> None:
    good = {"errors": 0, "plain": {"longest_s": 0.9}, "named": {"longest_s": 1.0}}
    assert repartitions.held(good)
    assert not repartitions.held({**good, "errors": 1})
    assert not repartitions.held({**good, "named": {"longest_s": 1.01}})
