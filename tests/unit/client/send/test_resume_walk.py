"""Random walks of names in topics without key: killed and opened again over layout changes and holes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.send.resume import Rule
from tests.fakes.keyless_world import KeylessWorld, play_keyless

SEEDS_MAX = 1_000
"""Walks that must find a planted bug; the rarest one took 130."""
RULES = (Rule.SPREAD, Rule.LINE)


@given(st.integers(0, 2**32), st.sampled_from(RULES))
@settings(max_examples=600, deadline=None)
def test_a_successor_sends_what_is_not_stored_and_nothing_else(seed: int, rule: Rule) -> None:
    play_keyless(seed, rule)


@pytest.mark.parametrize("bug", KeylessWorld.BUGS)
def test_walks_find_a_planted_bug(bug: str) -> None:
    for seed in range(SEEDS_MAX):
        try:
            play_keyless(seed, RULES[seed % 2], bug=bug)
        except AssertionError:
            return
    pytest.fail(f"{SEEDS_MAX} walks find nothing")


def test_the_planted_bugs_are_those_of_the_rules() -> None:
    assert len(KeylessWorld.BUGS) == 14
