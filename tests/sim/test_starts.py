"""Rows that a truncate gave up stay so in simulated clusters; the fault that brought them back is found."""

from __future__ import annotations

import pytest

from tests.sim import starts
from tests.sim.planted import native

SEEDS = (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_missed_a_truncate_and_becomes_the_owner_shows_none_of_its_rows(seed: int) -> None:
    broken = starts.run(seed).violation
    assert broken is None, broken


def test_a_start_that_is_forgotten_below_the_mark_is_found() -> None:
    found = []
    for seed in SEEDS:
        with native.planted("start_forgotten") as module:
            broken = starts.run(seed, module).violation
        found += [] if broken is None else [broken.invariant]
    assert "I14" in found, found
