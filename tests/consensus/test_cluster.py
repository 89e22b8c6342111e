"""Clusters under faults keep Raft's promises, and recover when the faults end."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.consensus.cluster import WEIGHTS, Cluster

SEEDS = 300
PART = 50
STEPS = 3000


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_a_cluster_under_faults_stays_safe_and_recovers(first: int, soak: int) -> None:
    """The seed of a failure is in its text: Cluster(seed), walk(STEPS), heal()."""
    applied = reads = leaders = 0
    for seed in range(first * soak, (first + PART) * soak):
        cluster = Cluster(seed)
        try:
            cluster.walk(STEPS)
            cluster.heal()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        applied += cluster.safety.applied_max
        reads += cluster.reads_answered
        leaders += len(cluster.safety.leaders)
    # A walk in which nothing happens proves nothing.
    assert applied > 10 * PART
    assert reads > PART
    assert leaders > 2 * PART


NUMBER = st.integers(0, (1 << 16) - 1)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    st.integers(0, 7),
    st.lists(st.tuples(st.integers(0, WEIGHTS - 1), NUMBER, NUMBER), min_size=20, max_size=300),
)
def test_no_short_list_of_actions_breaks_a_cluster(seed: int, actions: list[tuple[int, int, int]]) -> None:
    """The same actions as in a walk, drawn by hypothesis, which shrinks what it finds."""
    cluster = Cluster(seed)
    for kind, a, b in actions:
        cluster.act(kind, a, b)
    cluster.heal()


def test_the_same_seed_gives_the_same_run() -> None:
    def run(seed: int) -> list[tuple[int, bytes]]:
        cluster = Cluster(seed)
        cluster.walk(1000)
        return [(entry.term, entry.data) for _, entry in sorted(cluster.safety.committed.items())]

    assert run(5) == run(5)
    assert run(5) != run(7)
