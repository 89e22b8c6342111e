"""Bugs planted into changes and replicas are found by a move that nobody disturbs, or within a few seeds.

The others, and how many seeds they need, are in the record (`python -m tests.sim.planted --replicas`).
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.sim.planted import replicas
from tests.sim.planted.__main__ import find_in_replicas

SEEDS_MAX = 60
QUICK = (
    "dual_write_stops_before_the_hold",
    "the_hold_ends_by_timer",
    "ends_are_counted_in_rows",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_of_changes_is_found(name: str) -> None:
    needed, broken = find_in_replicas(partial(replicas.planted, name), range(1, SEEDS_MAX + 1))
    assert broken is not None, f"{name} is {needed}"
    assert broken.invariant
