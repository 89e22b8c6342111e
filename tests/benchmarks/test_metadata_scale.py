"""The scale script measures what it says, on sizes that take a moment."""

from __future__ import annotations

import pytest

from benchmarks.metadata_scale import cluster, measured


@pytest.mark.parametrize("replication", [1, 3])
def test_every_step_is_measured(replication: int) -> None:
    figures = measured(5, 300, replication)
    assert all(value > 0 for value in figures.values()), figures
    assert {"apply create ms", "snapshot MB", "state MB", "plan: add a node s", "a table ms"} <= set(figures)


def test_the_cluster_has_the_size_that_the_column_names() -> None:
    state = cluster(4, 200, 3).state
    assert len(state.ring.members) == 4
    assert sum(len(topic.assignments) for topic in state.topics.values()) == 200
