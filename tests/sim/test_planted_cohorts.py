"""Faults of queues in the engine are found by seeds with a cohort, by the promise that they break."""

from __future__ import annotations

from typing import Final

import pytest

from tests.sim.planted import native
from tests.sim.planted.cohorts import BUGS, SHOWN_BY, find, seeds_of

OF_ENGINE: Final = [name for name in SHOWN_BY if name not in BUGS]


def test_the_engine_has_each_of_them() -> None:
    assert set(OF_ENGINE) <= set(native.load().plantable_cohorts())


@pytest.mark.parametrize("name", OF_ENGINE)
def test_a_fault_of_the_engine_is_found(name: str) -> None:
    mode, known, rule = SHOWN_BY[name]
    seed, broken = find(name, mode, seeds_of(name))
    assert broken is not None, f"{name} is not shown by seeds up to {seed}"
    assert seed != known or broken.invariant.startswith(rule), broken
