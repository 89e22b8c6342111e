"""What counts as a planted bug that was found."""

from __future__ import annotations

import pytest

from tests.sim.checks.violation import ViolationError
from tests.sim.planted.__main__ import broken_by


def test_a_broken_promise_counts_and_so_does_an_assertion_of_the_product() -> None:
    assert broken_by(None) is None
    for violation in (
        ViolationError("I4", "a row is lost"),
        ViolationError("defect", "AssertionError: a bound"),
    ):
        assert broken_by(violation) is violation


def test_a_program_that_is_not_built_finds_nothing() -> None:
    stale = ViolationError("defect", "node 1: AttributeError: no attribute 'partitions_of'")
    with pytest.raises(AssertionError, match=r"the program fails .*partitions_of.*make setup"):
        broken_by(stale)
