"""The state of one partition of a member."""

from __future__ import annotations

import pytest

from ringfence.consumer.calls import Fetched
from ringfence.consumer.gate import Gate, Phase
from ringfence.consumer.values import Point

REPORTED, SAVED = 55, 248
"""Owner epochs: of the last row that the cohort was told of, and of the last one in the store."""


@pytest.mark.parametrize(
    ("position", "begins"),
    [
        (Point(171, SAVED), Point(171, SAVED)),
        (Point(150, SAVED), Point(171, REPORTED)),
        (None, Point(171, REPORTED)),
    ],
)
def test_a_store_that_is_ahead_of_the_last_report_begins_with_its_own_epoch(
    position: Point | None, begins: Point
) -> None:
    gate = Gate(1, Phase.OPENING)
    gate.position = position
    gate.opened(Fetched(5, 171, 171, REPORTED), lease_until=1.0)
    assert gate.fetched == gate.settled == begins
