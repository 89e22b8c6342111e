"""Turns alternate, ratios compare with the limit of the same run and transport, failures stay visible."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from benchmarks import report, runner
from benchmarks.engines.base import Pace, Turn, TurnError
from benchmarks.workload import load_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.workload import Workload

WORKLOAD = dataclasses.replace(
    load_all()["lineitem_8mib"], engines=("limit", "ours"), transports=("tcp", "ipc")
)
USAGE = {"user_ns": 10**8, "system_ns": 10**8, "faults_minor": 0, "storage_write_bytes": 10**9}


def turn(seconds: float) -> Turn:
    return Turn(
        requests=100,
        rows=1000,
        body_bytes=10**9,
        seconds=seconds,
        ack_p50_ms=1.0,
        ack_p99_ms=2.0,
        server={**USAGE, "resident_bytes_max": 5},
    )


@dataclass
class Fake:
    name: str
    seconds: dict[str, list[float]]
    log: list[str]
    durability: str = "none"
    transports: tuple[str, ...] = ("tcp", "ipc")
    directories: list[Path] = field(default_factory=list)

    @contextmanager
    def serve(self, workload: Workload, transport: str, directory: Path) -> Iterator[FakeServer]:
        assert workload is WORKLOAD
        self.directories.append(directory)
        yield FakeServer(self, transport, iter(self.seconds[transport]))


@dataclass
class FakeServer:
    engine: Fake
    transport: str
    seconds: Iterator[float]
    pid: int = 0

    def turn(self, pace: Pace) -> Turn:
        assert pace.quick
        self.engine.log.append(f"{self.engine.name} {self.transport}")
        taken = next(self.seconds)
        if taken < 0:
            raise TurnError("the disk is full")
        return turn(taken)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    log: list[str] = []
    engines = {
        "limit": Fake("limit", {"tcp": [1.0, 2.0, 1.0], "ipc": [0.5, 0.5, 0.5]}, log),
        "ours": Fake("ours", {"tcp": [2.0, 2.0, 4.0], "ipc": [1.0, -1.0, 1.0]}, log),
    }
    monkeypatch.setattr(runner, "ENGINES", engines)
    monkeypatch.setenv("BENCHMARKS_DIR", str(tmp_path))
    return log


def test_engines_take_turns(fakes: list[str]) -> None:
    runner.run_workload(WORKLOAD, ["limit", "ours"], 2, quick=True, tell=lambda _: None, seconds=60)
    assert fakes == ["limit tcp", "ours tcp", "limit ipc", "ours ipc"] * 2


def test_a_ratio_compares_medians_over_the_same_transport(fakes: list[str]) -> None:
    del fakes
    contests = runner.run_workload(
        WORKLOAD, ["limit", "ours"], 3, quick=True, tell=lambda _: None, seconds=60
    )
    rows = {(row["engine"], row["transport"]): row for row in runner.rows_of(contests)}
    assert rows["ours", "tcp"]["bytes_per_s"] == 500_000_000
    assert rows["ours", "tcp"]["ratio_to_limit"] == 0.5
    assert rows["ours", "tcp"]["bytes_per_s_spread"] == 0.5
    assert rows["limit", "ipc"]["bytes_per_s"] == 2_000_000_000
    assert rows["ours", "tcp"]["server_cpu_ns_per_byte"] == 0.2


def test_a_failed_engine_is_out_and_says_why(fakes: list[str]) -> None:
    contests = runner.run_workload(
        WORKLOAD, ["limit", "ours"], 3, quick=True, tell=lambda _: None, seconds=60
    )
    assert fakes.count("ours ipc") == 2
    rows = runner.rows_of(contests)
    failed = next(row for row in rows if (row["engine"], row["transport"]) == ("ours", "ipc"))
    assert (failed["turns"], failed["failure"]) == (1, "the disk is full")


def test_the_table_has_a_line_for_every_row_and_names_failures() -> None:
    contest = runner.Contest(Fake("ours", {}, []), WORKLOAD, "tcp", failure="it\ndid not start")
    good = runner.Contest(Fake("limit", {}, []), WORKLOAD, "tcp", turns=[turn(1.0)])
    lines = report.markdown(runner.rows_of([good, contest])).splitlines()
    assert lines[2].startswith(
        "| lineitem_8mib | limit | tcp | 1,000 | 0% | 1.00 | 100 | 1.00 | 2.00 | 0.20 |"
    )
    assert lines[3].startswith("| lineitem_8mib | ours | tcp | failed: did not start |")


def test_the_table_says_what_each_answer_promises() -> None:
    contests = [
        runner.Contest(Fake(name, {}, [], durability=f"{name} syncs"), WORKLOAD, "tcp") for name in "ab"
    ]
    assert report.guarantees(runner.rows_of(contests)) == "- a: a syncs\n- b: b syncs"


def test_workloads_that_would_begin_too_late_are_told(fakes: list[str]) -> None:
    told: list[str] = []
    rows = runner.run([WORKLOAD], ["limit"], 1, quick=True, tell=told.append, until=0)
    assert (rows, fakes) == ([], [])
    assert told == ["lineitem_8mib: left out, the time is over"]


def test_turns_fit_into_the_time_and_are_never_too_short_to_say_something() -> None:
    assert runner.pace_for(21, 63 * runner.TURN_PARTS, quick=True) == Pace(quick=True, seconds_max=3.0)
    assert runner.pace_for(21, 0.1, quick=True).seconds_max == runner.TURN_TIME_S_MIN
    assert runner.pace_for(1, 10_000, quick=False).seconds_max == runner.TURN_TIME_S_MAX


def test_rounds_that_no_longer_fit_are_left_out(fakes: list[str]) -> None:
    runner.run_workload(WORKLOAD, ["limit"], 3, quick=True, tell=lambda _: None, seconds=0)
    assert fakes == ["limit tcp", "limit ipc"]
