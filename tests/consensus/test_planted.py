"""Each planted bug is found: by a random walk, or by the story in which it alone does harm."""

from __future__ import annotations

import pytest

from ringfence.control.consensus.errors import ConsensusError
from tests.consensus.cluster import Cluster
from tests.consensus.planted import BUGS, planted
from tests.consensus.scenarios import SCENARIOS, vote_for_a_log_that_is_lost

SEEDS_MAX = 120
"""Seen needed: 1 to 70 seeds, see docs/design/consensus.md."""
STEPS = 3000


def walk_until_found(seeds: int = SEEDS_MAX) -> str | None:
    for seed in range(seeds):
        try:
            cluster = Cluster(seed)
            cluster.walk(STEPS)
            cluster.heal()
        except (AssertionError, ConsensusError) as found:
            return f"seed {seed}: {found}"
    return None


@pytest.mark.parametrize("name", sorted(BUGS.keys() - SCENARIOS.keys()))
def test_a_random_walk_finds_the_planted(name: str) -> None:
    with planted(name):
        found = walk_until_found()
    assert found is not None, f"{name} lived through {SEEDS_MAX} seeds"
    print(f"{name}: {found}")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_story_that_ends_well_ends_badly_with_the_planted(name: str) -> None:
    SCENARIOS[name]()
    with planted(name), pytest.raises((AssertionError, ConsensusError)):
        SCENARIOS[name]()


def test_a_vote_is_asked_for_only_once_the_log_that_it_claims_is_durable() -> None:
    vote_for_a_log_that_is_lost(campaign_after_append=True)
    with pytest.raises(AssertionError, match="leader completeness"):
        vote_for_a_log_that_is_lost(campaign_after_append=False)
