"""The benchmark of a cluster measures what it says: short forms, so that it still runs when it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.cluster import commits, elections, repartitions, splits

if TYPE_CHECKING:
    from pathlib import Path


def test_commits_are_counted_on_a_leader_and_on_a_follower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMARKS_DIR", str(tmp_path))
    result = commits.measure(seconds=0.3, count=20)
    for who in ("leader", "follower"):
        seen = result[who]
        assert 0 < seen["p50_ms"] <= seen["p99_ms"]
        assert seen["per_s"] > 0
        assert len(seen["cpu_us_a_command"]) == 3


def test_a_record_holds_only_within_its_limits() -> None:
    good = {"p50_ms": 2.0, "p99_ms": 9.0, "per_s": 2_500}
    assert commits.held({"leader": good})
    for name, value in (("p50_ms", 3.1), ("p99_ms", 11.0), ("per_s", 1_999)):
        assert not commits.held({"leader": {**good, name: value}})
    assert elections.held({"leader_s": {"worst": 2.0}})
    assert not elections.held({"leader_s": {"worst": 2.1}})


@pytest.mark.timeout(300)
def test_gaps_of_layout_changes_are_measured_beside_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMARKS_DIR", str(tmp_path))
    result = splits.measure(rounds=1)
    for load in splits.LOADS:
        assert result[load]["mb_per_s"] > 0
        for kind in splits.KINDS:
            seen = result[load][kind]
            assert seen["changes"] == (2 if kind == "repartitioned" else 1)
            assert 0 < seen["gap_ms"]["p50"] <= seen["gap_ms"]["worst"]
            assert kind == splits.MOVED or seen["held_ms"]["worst"] > 0
    assert result["ratios"][splits.STEADY][splits.MOVED] == 1


@pytest.mark.timeout(300)
def test_waits_of_producers_are_measured_over_random_repartitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMARKS_DIR", str(tmp_path))
    result = repartitions.measure(changes=2)
    assert (result["changes"], result["errors"]) == (2, 0)
    for kind in repartitions.PRODUCERS:
        seen = result[kind]
        assert 0 < seen["p50_ms"] <= seen["p99_ms"] <= seen["longest_s"] * 1e3
        assert any(one["change"] for one in seen["longest"])
