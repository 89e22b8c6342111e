"""Bugs planted into truncates and forced owners are found within a few seeds that have many of these.

How many seeds each needs is in the record (`python -m tests.sim.planted --starts`).
"""

from __future__ import annotations

import pytest

from tests.sim.planted import native, starts
from tests.sim.planted.__main__ import find_in_starts
from tests.sim.planted.known_seeds import known_first

# As everywhere: which seed it is changes with every change of what runs, so the bound is wide.
SEEDS_MAX = 60
LOST = {"I5", "I6", "I14"}
"""What names lost rows, rows that are stored twice, and rows that come back."""


def test_every_fault_that_can_be_planted_has_its_line() -> None:
    assert set(native.load().plantable_starts()) <= set(starts.SHOWN_BY)


@pytest.mark.parametrize("name", sorted(starts.SHOWN_BY))
def test_a_bug_of_truncates_and_of_forced_owners_is_found(name: str) -> None:
    needed, broken = find_in_starts(name, known_first(name, range(1, SEEDS_MAX + 1)))
    assert broken is not None, f"{name} is {needed}"
    assert broken.invariant in LOST, broken
