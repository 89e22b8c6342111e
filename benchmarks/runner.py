"""Turns of several engines, interleaved, and what they say.

A machine's speed drifts by 20-40 % within minutes, so engines take turns (A B C A B C ...) and a ratio
compares medians of one run. The limit's median over the same transport is the yardstick; an engine over
another transport has its own.
"""

from __future__ import annotations

import shutil
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks import trials
from benchmarks.engines import ENGINES
from benchmarks.engines.base import Pace, Server, Turn, TurnError
from benchmarks.paths import work_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.engines.base import Engine
    from benchmarks.workload import Workload

LIMIT_NAME = "limit"
# Warming up, measuring, and starting a sender that loads its bodies or pyarrow.
TURN_PARTS = 3.0
TURN_TIME_S_MIN = 0.5
TURN_TIME_S_MAX = 30.0
FAILURES = (TurnError, OSError, RuntimeError, ImportError)


@dataclass
class Contest:
    """One engine over one transport under one workload, and its turns."""

    engine: Engine
    workload: Workload
    transport: str
    turns: list[Turn] = field(default_factory=list)
    failure: str | None = None

    def median(self, name: str) -> float:
        return statistics.median(float(getattr(turn, name)) for turn in self.turns)

    def spread(self) -> float:
        """(largest - smallest) / median of bytes per second."""
        rates = [turn.bytes_per_s for turn in self.turns]
        return (max(rates) - min(rates)) / statistics.median(rates)


def contests_of(workload: Workload, engines: Sequence[str]) -> list[Contest]:
    return [
        Contest(ENGINES[name], workload, transport)
        for transport in workload.transports
        for name in workload.engines
        if name in engines and transport in ENGINES[name].transports
    ]


def _empty(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def pace_for(turns: int, seconds: float, *, quick: bool) -> Pace:
    """The pace at which `turns` turns fit into `seconds`.

    A turn warms up, then measures, each as long as the pace allows, and starts two processes around it.
    """
    return Pace(quick, min(max(seconds / turns / TURN_PARTS, TURN_TIME_S_MIN), TURN_TIME_S_MAX))


def run_workload(
    workload: Workload,
    engines: Sequence[str],
    rounds: int,
    *,
    quick: bool,
    tell: Callable[[str], None],
    seconds: float,
) -> list[Contest]:
    """Start all servers, then let them take turns, as many rounds as fit into `seconds`, at least one.

    A failed engine is out of the run; its failure is in the result.
    """
    contests = contests_of(workload, engines)
    begin = time.monotonic()
    with ExitStack() as stack:
        servers = [_start(contest, stack) for contest in contests]
        pace = pace_for(len(contests) * rounds, seconds, quick=quick)
        for number in range(rounds):
            round_begin = time.monotonic()
            for contest, server in zip(contests, servers, strict=True):
                if server is not None and contest.failure is None:
                    who = f"{contest.engine.name} {contest.transport}"
                    tell(f"{workload.name}: turn {number + 1} of {rounds}: {who}")
                    _take_turn(contest, server, pace)
            now = time.monotonic()
            if now - begin + (now - round_begin) > seconds:
                break
    return contests


def _start(contest: Contest, stack: ExitStack) -> Server | None:
    directory = _empty(work_directory() / f"{contest.engine.name}-{contest.transport}")
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    try:
        return stack.enter_context(contest.engine.serve(contest.workload, contest.transport, directory))
    except FAILURES as error:
        contest.failure = str(error)
        return None


def _take_turn(contest: Contest, server: Server, pace: Pace) -> None:
    try:
        contest.turns.append(server.turn(pace))
    except FAILURES as error:
        contest.failure = str(error)


def rows_of(contests: Sequence[Contest]) -> list[dict[str, Any]]:
    """Result rows of one workload; engines that never ended a turn have a `failure` and no figures."""
    limits = {
        contest.transport: contest.median("bytes_per_s")
        for contest in contests
        if contest.engine.name == LIMIT_NAME and contest.turns
    }
    return [_row(contest, limits.get(contest.transport)) for contest in contests]


def _row(contest: Contest, limit: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "engine": contest.engine.name,
        "workload": contest.workload.name,
        "transport": contest.transport,
        "durability": contest.engine.durability,
        "turns": len(contest.turns),
        "failure": contest.failure,
    }
    if not contest.turns:
        return row
    last = contest.turns[-1]
    mebibytes = last.body_bytes / 2**20
    rate = contest.median("bytes_per_s")
    return row | {
        "bytes_per_s": round(rate),
        "bytes_per_s_spread": round(contest.spread(), 3),
        "rows_per_s": round(contest.median("rows_per_s")),
        "requests_per_s": round(statistics.median(turn.requests / turn.seconds for turn in contest.turns)),
        "ack_p50_ms": round(contest.median("ack_p50_ms"), 4),
        "ack_p99_ms": round(contest.median("ack_p99_ms"), 4),
        "server_cpu_ns_per_byte": round(contest.median("server_cpu_ns_per_byte"), 4),
        "server_user_ns_per_byte": round(
            statistics.median(turn.server["user_ns"] / turn.body_bytes for turn in contest.turns), 4
        ),
        "server_resident_bytes_max": last.server["resident_bytes_max"],
        "page_faults_per_mib": round(last.server["faults_minor"] / mebibytes, 3),
        "storage_write_ratio": round(last.server["storage_write_bytes"] / last.body_bytes, 3),
        "ratio_to_limit": round(rate / limit, 3) if limit else None,
    }


def run(
    workloads: Sequence[Workload],
    engines: Sequence[str],
    rounds: int,
    *,
    quick: bool,
    tell: Callable[[str], None],
    until: float,
) -> list[dict[str, Any]]:
    """All workloads one after another, each with an equal share of the time until `until` (monotonic).

    What would begin after that is left out, and told.
    """
    rows: list[dict[str, Any]] = []
    for number, workload in enumerate(workloads):
        left = until - time.monotonic()
        if left <= 0:
            tell(f"{workload.name}: left out, the time is over")
            continue
        if workload.trial:
            tell(f"{workload.name}: a trial of ours")
            rows.append(trials.run(workload, quick=quick))
            continue
        share = left / (len(workloads) - number)
        contests = run_workload(workload, engines, rounds, quick=quick, tell=tell, seconds=share)
        rows += rows_of(contests)
    return rows
