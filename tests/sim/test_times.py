"""Wall clocks jump: what only one clock says gets into no record and no metadata, unless a bug is planted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import pytest

from ringfence.control.runtime.membership.cluster_clock import CLOCK_LEVEL
from tests.sim import simulation
from tests.sim.faults.plan import Plan
from tests.sim.planted import control
from tests.sim.planted.__main__ import first_found
from tests.sim.world import birth

PLANS_MAX = 30
"""Every sixth jump is an hour ahead, and it must strike a leader or an owner."""
BUGS = ("times_not_bounded", "leader_s_clock_believed")


def plans() -> Iterator[Plan]:
    """Seeds in which wall clocks jump and times are bounded."""
    for seed in range(1, 5_000):
        plan = Plan.drawn(seed)
        if plan.level >= CLOCK_LEVEL and any(strike.kind == "wall_jump" for strike in plan.strikes):
            yield plan


@pytest.mark.parametrize("name", BUGS)
def test_a_clock_that_is_believed_is_found(name: str) -> None:
    for machines in (3, 4):  # in peace, before anything is switched on
        birth.born(machines)
    needed, broken = first_found(islice(plans(), PLANS_MAX), partial(control.planted, name), is_native=False)
    assert broken is not None, f"{name} is not found in {PLANS_MAX} seeds"
    assert broken.invariant == "bounded times", (needed, broken)


def test_jumps_of_wall_clocks_do_no_harm() -> None:
    for plan in islice(plans(), 3):
        assert simulation.run(plan).violation is None, plan.seed
