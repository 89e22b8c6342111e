"""Bugs planted into layout changes are found within a few seeds that have them, each by an invariant.

The others, and how many seeds each needs, are in the record (`python -m tests.sim.planted --layouts`).
"""

from __future__ import annotations

import pytest

from tests.sim.planted.__main__ import find_in_layouts
from tests.sim.planted.known_seeds import known_first
from tests.sim.planted.layouts import LAYOUT_BUGS

# Most show within ten seeds. Which one it is changes with every change of what runs, so the bound is wide.
SEEDS_MAX = 60
QUICK = (
    "seal_before_the_mark",
    "abort_draws_no_epoch",
    "restart_aborts_nothing",
    "abort_leaves_children",
    "one_source_only",
    "held_is_sealed",
    "stored_is_one_more",
    "lost_is_not_stored",
    "children_at_once",
    "two_bodies_of_one_send",
    "points_by_the_greatest",
    "reader_begins_children_at_once",
    "reader_ends_at_an_empty_answer",
)


def test_every_quick_bug_can_be_planted() -> None:
    assert set(QUICK) <= set(LAYOUT_BUGS)


@pytest.mark.parametrize("name", QUICK)
def test_a_bug_of_layout_changes_is_found(name: str) -> None:
    needed, broken = find_in_layouts(name, known_first(name, range(1, SEEDS_MAX + 1)))
    assert broken is not None, f"{name} is {needed}"
    assert broken.invariant
