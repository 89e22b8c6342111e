"""Bugs planted into transactions are found within a few seeds that have transactional writers."""

from __future__ import annotations

import pytest

from tests.sim.planted import native, scopes
from tests.sim.planted.__main__ import find_in_scopes
from tests.sim.planted.known_seeds import known_first

# As everywhere: which seed it is changes with every change of what runs, so the bound is wide.
SEEDS_MAX = 300


def test_every_fault_that_can_be_planted_has_its_line() -> None:
    assert set(native.load().plantable_scopes()) == set(scopes.BUGS)


@pytest.mark.parametrize("name", scopes.BUGS)
def test_a_bug_of_transactions_is_found(name: str) -> None:
    needed, broken = find_in_scopes(name, known_first(name, range(1, SEEDS_MAX + 1)))
    assert broken is not None, f"{name} is {needed}"
    assert broken.invariant
