"""Random walks of a producer over splits, merges, repartitions, lost answers, deadlines and kills."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.send.inflight import Inflight
from tests.fakes.cut_planted import PLANTED
from tests.fakes.cut_walk import play

SEED = st.integers(0, 2**32)
SEEDS_MAX = 3_000
"""Walks that must find a planted bug; the rarest one took 700."""


@given(SEED, st.booleans())
@settings(max_examples=600, deadline=None)
def test_every_row_is_stored_once_and_in_order_and_told_truly(seed: int, named: bool) -> None:
    play(seed, named=named)


def test_the_walks_go_through_layout_changes_and_reach_every_outcome() -> None:
    versions, outcomes = Counter[int](), Counter[str]()
    for seed in range(60):
        world = play(seed, named=seed % 2 == 0)
        versions[world.topic.version] += 1
        outcomes.update(world.outcomes.values())
    assert sum(count for version, count in versions.items() if version >= 3) >= 15, versions
    assert min(outcomes[one] for one in "DRU") >= 20, outcomes


@pytest.mark.parametrize("machine_type", PLANTED, ids=lambda one: one.__name__)
def test_walks_find_a_planted_bug(machine_type: type[Inflight]) -> None:
    for seed in range(SEEDS_MAX):
        try:
            play(seed, named=seed % 2 == 1, machine_type=machine_type)
        except AssertionError:
            return
    pytest.fail(f"{SEEDS_MAX} walks find nothing")


def test_the_planted_bugs_are_those_of_the_rules() -> None:
    assert len(PLANTED) == 18
