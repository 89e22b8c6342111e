"""Transformers in simulated clusters write each row of their input once, and in the order of its key."""

from __future__ import annotations

from tests.sim.consumed import quiet, run_seed


def test_a_transformer_alone_copies_every_row() -> None:
    result = run_seed(quiet(2))
    assert result.violation is None, result.violation
    assert result.counts["block_committed"] > 10
    assert result.counts["block_aborted"] > 0
    assert result.counts["rows_copied"] > 1_000
