"""A seed that never ends is a find like any other, whatever it hangs in."""

from __future__ import annotations

from functools import partial

import pytest

from tests.sim import apart
from tests.sim.mix import Plan
from tests.sim.simulation import Result


def round_and_round() -> Result:
    while True:
        sum(range(1_000))


def broken() -> Result:
    raise ZeroDivisionError("a defect of the simulator")


def test_a_seed_that_goes_round_for_ever_is_ended_and_told(capfd: pytest.CaptureFixture[str]) -> None:
    result = apart.forked(Plan.drawn(7), partial(round_and_round), cpu_s=1).result()
    assert result.violation is not None
    assert (result.seed, result.violation.invariant, result.is_counted) == (7, "I13", False)
    assert "round_and_round" in capfd.readouterr().err, "where it was"


def test_a_defect_of_the_simulator_is_no_find(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ChildProcessError, match="seed 8"):
        apart.forked(Plan.drawn(8), partial(broken), cpu_s=5).result()
    assert "ZeroDivisionError" in capfd.readouterr().err
