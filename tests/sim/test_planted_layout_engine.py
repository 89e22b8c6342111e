"""Faults of the engine that concern layout changes are found by seeds, or by a story of the engine.

How many seeds each needs is in the record (`python -m tests.sim.planted --layouts`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.sim.planted import native
from tests.sim.planted.__main__ import find_in_layouts
from tests.sim.planted.known_seeds import known_first
from tests.sim.planted.layout_engine import ELSEWHERE, FOUND

# As everywhere: which seed it is changes with every change of what runs, so the bound is wide.
SEEDS_MAX: Final = 60
STORIES: Final = ("core/node/tests/planted.rs", "core/node/tests/replication/planted.rs")


def test_every_fault_that_can_be_planted_has_its_line() -> None:
    assert set(native.load().plantable_layouts()) == {*FOUND, *ELSEWHERE}


@pytest.mark.parametrize("name", [*FOUND, *ELSEWHERE])
def test_a_story_of_the_engine_finds_it(name: str) -> None:
    """`each_planted_fault_is_found` runs each pair of a fault and its story; here all are among them."""
    text = "".join((Path(native.ROOT) / story).read_text() for story in STORIES)
    variant = "".join(word.capitalize() for word in name.split("_"))
    assert f"(Bug::{variant}," in "".join(text.split())


@pytest.mark.parametrize("name", FOUND)
def test_a_fault_of_the_engine_is_found_by_seeds(name: str) -> None:
    needed, broken = find_in_layouts(name, known_first(name, range(1, SEEDS_MAX + 1)))
    assert broken is not None, f"{name} is {needed}"
    assert broken.invariant
