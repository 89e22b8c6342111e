"""Where a successor of a name goes on: points by slot, and slots of sends."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.arrow.keys import slots
from ringfence.native.messages import ResumePoint
from ringfence.native.wire import SLOT_COUNT
from ringfence.send.resume import ResumeFrom, ResumePoints, Rule, name_slot, send_slot, slot_of_send

HALVES = {1: (0, 32767), 2: (32768, 65535)}


def point(
    partition: int, send: int, lo: int | None = None, hi: int | None = None, rows: int = 1
) -> ResumePoint:
    values = {} if lo is None else {"lo": lo, "hi": hi}
    return ResumePoint(
        partition=partition,
        sequence=0,
        send=send,
        note=b"note %d" % send,
        first_offset=0,
        rows=rows,
        **values,  # type: ignore[arg-type]
    )


def points_of(*points: ResumePoint) -> ResumePoints:
    return ResumePoints(points, lambda partition: HALVES.get(partition, (0, -1)))


def test_the_slot_of_a_number_is_that_of_the_protocol() -> None:
    vectors = {1: 40503, 2: 15470, 3: 55974, 1000: 2227, 2**63 - 1: 57800}
    assert {number: send_slot(number) for number in vectors} == vectors


def test_the_slot_of_a_name_is_that_of_a_text_key() -> None:
    for name in ("loader", "", "größe", "x" * 300):
        (slot,) = slots(pa.record_batch({"k": [name]}), "k").tolist()
        assert name_slot(name) == slot


@pytest.mark.parametrize("parts", [2, 3, 7, 16, 100])
def test_successive_numbers_fall_evenly(parts: int) -> None:
    size = -(-SLOT_COUNT // parts)
    for first in (1, 1_000, 10**12):
        counts = Counter(send_slot(number) // size for number in range(first, first + 64))
        assert max(counts.values()) <= 64 / parts + 2


def test_the_rule_of_a_name_decides_the_slot_of_its_sends() -> None:
    assert slot_of_send(Rule.NONE, "loader") is None
    line, spread = slot_of_send(Rule.LINE, "loader"), slot_of_send(Rule.SPREAD, "loader")
    assert line is not None
    assert spread is not None
    assert {line(number) for number in range(9)} == {name_slot("loader")}
    assert [spread(number) for number in (1, 2)] == [40503, 15470]


def test_a_point_without_slots_has_those_of_its_partition() -> None:
    points = points_of(point(2, 6), point(1, 4))
    assert points.has_stored(4, 0)
    assert not points.has_stored(5, 32767)
    assert points.has_stored(6, 32768)
    assert (points.greatest, points.point_of(40_000)) == (6, point(2, 6))


def test_a_partition_with_several_ranges_shows_the_least_one() -> None:
    low, high = point(3, 4, 0, 99), point(3, 9, 100, 65535)
    assert points_of(high, low).by_partition == {3: low}
    assert [one for _, one in points_of(high, low).points] == [low, high]


def test_a_topic_with_key_goes_on_after_the_least_point_and_never_after_the_greatest() -> None:
    def from_(*points: ResumePoint) -> ResumeFrom | None:
        return points_of(*points).resume_from(Rule.NONE, "n", has_key=True)

    assert from_(point(1, 4), point(2, 6)) == ResumeFrom(4, b"note 4")
    assert from_(point(2, 6)) is None, "nothing is stored of the slots of partition 1"
    assert from_() is None


def test_an_older_name_in_a_topic_without_key_is_known_where_all_slots_have_one_point() -> None:
    points = points_of(point(1, 4), point(2, 6))
    assert points.resume_from(Rule.NONE, "n", has_key=False) is None
    one = points_of(point(1, 4, 0, 65535))
    assert one.resume_from(Rule.NONE, "n", has_key=False) == ResumeFrom(4, b"note 4")
    merged = points_of(point(3, 4, 0, 99), point(3, 9, 100, 65535))
    assert merged.resume_from(Rule.NONE, "n", has_key=False) is None, "some of 5 to 8 may be stored"


def test_a_line_goes_on_after_the_point_of_its_slot() -> None:
    points = points_of(point(1, 4), point(2, 6))
    assert name_slot("loader") >= 32768
    assert points.resume_from(Rule.LINE, "loader", has_key=False) == ResumeFrom(6, b"note 6")


def test_a_spread_with_a_hole_goes_on_before_the_hole() -> None:
    """Numbers 1 to 8: 2, 4, 5, 7 in partition 1; 1, 3, 6, 8 in partition 2. 5 was lost, 7 and 8 not sent."""
    points = points_of(point(1, 4), point(2, 6))
    assert [number for number in range(1, 9) if points.has_stored(number, send_slot(number))] == [
        1,
        2,
        3,
        4,
        6,
    ]
    assert points.spread_end() == 4
    assert points.resume_from(Rule.SPREAD, "n", has_key=False) == ResumeFrom(4, b"note 4")


def test_a_spread_whose_lagging_partition_has_no_point_yet_is_counted_from_zero() -> None:
    points = points_of(point(2, 6))
    assert points.spread_end() == 1, "1 is in partition 2, 2 is not"
    assert points.resume_from(Rule.SPREAD, "n", has_key=False) is None
    assert points_of(point(2, 1)).resume_from(Rule.SPREAD, "n", has_key=False) == ResumeFrom(1, b"note 1")


def test_a_range_of_one_slot_is_met_after_at_most_121393_numbers() -> None:
    points = points_of(point(1, 1 << 40, 0, 65534), point(2, 0, 65535, 65535))
    assert points.spread_end() < 121_393


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.data())
@settings(max_examples=200, deadline=None)
def test_every_send_up_to_the_end_of_a_spread_is_stored_and_the_next_one_is_not(
    sends: list[int], data: st.DataObject
) -> None:
    inner = data.draw(
        st.lists(st.integers(1, 65534), min_size=len(sends) - 1, max_size=len(sends) - 1, unique=True)
    )
    edges = [0, *sorted(inner), SLOT_COUNT]
    points = points_of(*(point(1, send, edges[at], edges[at + 1] - 1) for at, send in enumerate(sends)))
    end = points.spread_end()
    assert all(points.has_stored(number, send_slot(number)) for number in range(1, end + 1))
    assert not points.has_stored(end + 1, send_slot(end + 1))
