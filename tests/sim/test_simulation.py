"""Simulated clusters: no promise is broken in any seed, equal seeds have equal traces, and faults strike."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.sim import apart
from tests.sim.__main__ import main
from tests.sim.faults.plan import Plan
from tests.sim.planted.control import planted
from tests.sim.simulation import Result, run

SEEDS = range(1, 25)
REPLAYED = range(1, 4)
PLANTED_MAX = 4
"""Seeds within which the quickest of the planted bugs shows."""
ROTATING = 8
"""Seeds that nobody has run yet, others each day; a failure names its seed."""


@cache
def result(seed: int) -> Result:
    return run(Plan.drawn(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed: int) -> None:
    broken = result(seed).violation
    assert broken is None, f"{broken}; replay: python -m tests.sim --seed {seed}"


def test_no_promise_is_broken_in_the_seeds_of_the_day(soak: int) -> None:
    first = 1_000_000 + datetime.datetime.now(tz=datetime.UTC).date().toordinal() * 100
    for plan, ended in apart.each(map(Plan.mixed, range(first, first + ROTATING * soak)), 1):
        broken, layouts = ended.violation, " --layouts" if plan.layouts else ""
        assert broken is None, f"{broken}; replay: python -m tests.sim --seed {plan.seed}{layouts}"


def program(capfd: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """`python -m tests.sim`: its exit code and what it said."""
    patch.setattr(sys, "argv", ["python -m tests.sim", *arguments])
    code = main()
    return code, capfd.readouterr().out


SUMS = r"(\d+) seeds \((\d+) count\), (\d+) events, (\d+) faults, (\d+) violations, (\d+) seeds a minute"


def test_the_program_tells_its_sums_last_and_a_broken_promise_by_its_exit_code(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = program(capfd, monkeypatch, "--seeds", "1..2")
    found = re.match(SUMS, said.splitlines()[-1])
    assert found, said
    seeds, _, events, faults, violations, _ = map(int, found.groups())
    assert (code, seeds, violations) == (0, 2, 0)
    assert events > 0 and faults > 0
    code, said = program(capfd, monkeypatch, "--seed", "1")
    assert (code, f"trace {result(1).trace}" in said.splitlines()) == (0, True), said
    with planted("vote_not_persisted"):
        code, said = program(capfd, monkeypatch, "--seeds", f"1..{PLANTED_MAX}")
    found = re.match(SUMS, said.splitlines()[-1])
    assert found, said
    assert code == 1 and int(found[5]) > 0, said
    assert "replay: python -m tests.sim --seed" in said


def test_a_cluster_of_five_keeps_its_promises() -> None:
    for seed in range(1, 4):
        broken = run(Plan.drawn(seed, machines=5)).violation
        assert broken is None, f"{broken}; replay: python -m tests.sim --seed {seed} --machines 5"


def test_most_seeds_count() -> None:
    counted = sum(result(seed).is_counted for seed in SEEDS)
    assert counted >= len(SEEDS) * 2 // 3, f"{counted} of {len(SEEDS)} seeds had faults and answers enough"
    struck = Counter[str]()
    for seed in SEEDS:
        struck.update(result(seed).counts)
    kinds = {"crash", "power_cut", "partition", "one_way", "isolate", "pause", "clock_rate", "sync_error"}
    kinds |= {"message_lost", "message_doubled", "message_late", "message_cut", "rot", "full", "row_rot"}
    assert kinds <= struck.keys(), f"never struck: {kinds - struck.keys()}"


@pytest.mark.parametrize("seed", REPLAYED)
def test_equal_seeds_give_equal_traces(seed: int) -> None:
    assert run(Plan.drawn(seed), is_told=True).trace == result(seed).trace


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_no_trace_depends_on_the_process(hash_seed: str) -> None:
    script = (
        "from tests.sim import simulation; from tests.sim.faults import plan; "
        "print(simulation.run(plan.Plan.drawn(2)).trace)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == result(2).trace
