"""A shrinker keeps what a failure needs, and drops the rest."""

from __future__ import annotations

import pytest

from tests.sim import shrink
from tests.sim.faults.plan import Plan


@pytest.mark.parametrize("needed", [{3}, {0, 7}, {2, 5, 11}])
def test_what_does_not_matter_is_dropped(needed: set[int]) -> None:
    plan = Plan.drawn(5, seconds=30)
    assert len(plan.strikes) > 12

    def fails(fewer: Plan) -> bool:
        return needed <= {each.number for each in fewer.strikes}

    smaller, runs = shrink.shrunk(plan, fails)
    assert {each.number for each in smaller.strikes} == needed
    assert smaller == shrink.calm(smaller)
    assert runs <= shrink.RUNS_MAX


def test_strikes_that_stay_are_as_they_were() -> None:
    plan = Plan.drawn(5)
    fewer = shrink.only(plan, [2, 4])
    assert fewer.strikes == (plan.strikes[2], plan.strikes[4])
