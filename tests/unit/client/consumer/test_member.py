"""Random lives of members under owners that follow the rules of gates; planted defects must be found."""

from __future__ import annotations

import pytest

from tests.fakes.consumer_planted import IN_SCENARIOS, PLANTED, plant
from tests.fakes.consumer_scenarios import SCENARIOS
from tests.fakes.consumer_walk import walk

SEEDS = 60
KNOWN = {
    "no_beats": 80,
    "leave_overtakes_join": 38,
    "sealed_ends_are_ignored": 1,
    "sessions_are_one": 27,
    "a_seek_is_not_heard": 8,
}
"""Seeds that showed what others show late: these are tried first. All the others come after them."""


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_each_row_is_settled_and_given_by_one_member_at_a_time(first: int) -> None:
    for seed in range(first, first + 10):
        assert walk(seed) == [], f"seed {seed}"


def finds(seed: int) -> bool:
    """Whether a promise is broken, or the member itself says so."""
    try:
        return walk(seed) != []
    except AssertionError:
        return True


@pytest.mark.parametrize("defect", PLANTED)
def test_the_walk_finds_what_was_planted(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(defect, monkeypatch)
    seeds = [*filter(None, [KNOWN.get(defect)]), *range(SEEDS)]
    assert any(finds(seed) for seed in seeds), "no seed finds it"


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_story_ends_well(name: str) -> None:
    assert SCENARIOS[name]() == []


@pytest.mark.parametrize("defect", IN_SCENARIOS)
def test_a_story_finds_what_was_planted(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(defect, monkeypatch)
    assert [fault for story in SCENARIOS.values() for fault in story()] != []
