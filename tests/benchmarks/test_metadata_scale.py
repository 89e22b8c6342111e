"""The scale script measures what it says, on sizes that take a moment."""

from __future__ import annotations

import pytest

from benchmarks.metadata_scale import cluster, faults_of, grow_too_fast, measured

LAYOUT_ROWS = {
    f"{before} {name}{after} ms"
    for name in ("split", "repartition", "wide split", "wide repartition")
    for before, after in (
        ("plan a", ""),
        ("apply", " PREPARE"),
        ("apply", " COMMIT"),
        ("apply", " FINALIZED"),
        ("hash after", ""),
        ("orders of", ""),
        ("table after", ""),
        ("leader's round of", ""),
    )
}


@pytest.mark.parametrize("replication", [1, 3])
def test_every_step_is_measured(replication: int) -> None:
    figures = measured(5, 300, replication)
    assert all(value > 0 for value in figures.values()), figures
    assert {"apply create ms", "snapshot MB", "state MB", "plan: add a node s", "a table ms"} <= set(figures)
    assert {*LAYOUT_ROWS, "pushes to half of the connections ms"} <= set(figures)


def test_the_cluster_has_the_size_that_the_column_names() -> None:
    state = cluster(4, 200, 3).state
    assert len(state.ring.members) == 4
    assert sum(len(topic.assignments) for topic in state.topics.values()) == 200


def figures(step_ms: float, **others: float) -> dict[str, float]:
    given = {"plan: all on one s": 0.5, "snapshot MB": 50.0}
    commits = {f"apply {name} COMMIT ms": 1.0 for name in ("split", "repartition")}
    return {**given, **commits, "a step ms": step_ms, **others}


def test_a_step_that_is_quadratic_is_named_and_one_of_n_log_n_is_not() -> None:
    sizes = ("10x1000", "100x10000", "1000x100000")
    quadratic = dict(zip(sizes, map(figures, (0.1, 1.0, 100.0)), strict=True))
    assert grow_too_fast(quadratic) == ["a step ms"]
    assert grow_too_fast(dict(zip(sizes, map(figures, (0.1, 1.0, 12.5)), strict=True))) == []
    assert faults_of(quadratic) == ["a step ms grows faster than n log n"]


def test_each_limit_that_does_not_hold_is_named() -> None:
    sizes = ("10x1000", "100x10000")
    named = {
        "plan: all on one s": (1.1, "slowest plan 1.10 s, at most 1.0"),
        "snapshot MB": (101.0, "snapshot 101.0 MB, at most 100"),
        "apply split COMMIT ms": (5.1, "COMMIT of a layout 5.10 ms, at most 5"),
        "apply repartition COMMIT ms": (5.2, "COMMIT of a layout 5.20 ms, at most 5"),
    }
    for name, (value, fault) in named.items():
        columns = {sizes[0]: figures(1.0), sizes[1]: figures(1.0, **{name: value})}
        assert faults_of(columns) == [fault]
