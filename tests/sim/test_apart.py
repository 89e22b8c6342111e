"""A seed that never ends is a find like any other, whatever it hangs in."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from tests.sim import apart
from tests.sim.faults.plan import Plan
from tests.sim.simulation import Result


def children() -> set[int]:
    """Other tests of this process may have left some, too: the server that forks nodes."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def round_and_round() -> Result:
    while True:
        sum(range(1_000))


def done(seed: int) -> Result:
    return Result(seed, "trace", 1, 2, 3, {"crash": 4})


def broken() -> Result:
    raise ZeroDivisionError("a defect of the simulator")


def test_a_seed_that_goes_round_for_ever_is_ended_and_told(capfd: pytest.CaptureFixture[str]) -> None:
    plan = Plan.drawn(7)
    last = apart.Play(Plan.drawn(8), partial(done, plan.seed + 1), cpu_s=5)
    result, after = apart.forked([apart.Play(plan, round_and_round, cpu_s=1), last]).results()
    assert after == done(8), "what was to run after it"
    assert result.violation is not None
    assert (result.seed, result.violation.invariant, result.is_counted) == (7, "I13", False)
    assert "round_and_round" in capfd.readouterr().err, "where it was"


def test_a_defect_of_the_simulator_is_no_find(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ChildProcessError, match="seed 8"):
        apart.forked([apart.Play(Plan.drawn(8), broken, cpu_s=5)]).result()
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_results_of_one_process_are_those_of_one_seed_each() -> None:
    plans = [Plan.drawn(seed, seconds=1) for seed in (4, 5, 6)]
    together = {plan.seed: result for plan, result in apart.each(plans, 1)}
    assert together == {plan.seed: apart.run(plan) for plan in plans}
    assert all(result.cpu_s > 0 for result in together.values())


def test_a_process_ends_with_who_wanted_its_results() -> None:
    before = children()
    seeds = apart.each((Plan.drawn(seed, seconds=1) for seed in range(1, 100)), 2)
    next(seeds)
    assert children() > before
    seeds.close()
    assert children() == before, "also those that are dead and were not waited for"
