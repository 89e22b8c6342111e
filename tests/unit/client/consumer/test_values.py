"""Places and their tokens."""

from __future__ import annotations

import pytest

from ringfence.consumer.values import NUMBER_MAX, ConsumerPlace, Point, partitions_text
from ringfence.native.errors import InvalidArgumentError


def test_a_token_names_the_place_after_the_last_row() -> None:
    place = ConsumerPlace(7, 100, 500, 3, 12)
    assert place.token() == "1:7:500:3:12"
    assert ConsumerPlace.parse(place.token()) == ConsumerPlace(7, 500, 500, 3, 12)
    assert (place.rows, place.end, ConsumerPlace.parse(place.token()).rows) == (400, Point(500, 3), 0)


def test_the_largest_token_fits_into_a_short_column_and_comes_back() -> None:
    largest = ConsumerPlace(NUMBER_MAX, 0, NUMBER_MAX, NUMBER_MAX, NUMBER_MAX)
    assert len(largest.token()) <= 88
    assert ConsumerPlace.parse(largest.token()).token() == largest.token()


@pytest.mark.parametrize(
    "text",
    ["", "1:7:500:3", "2:7:500:3:12", "1:7:-5:3:12", "1:7:500:3:12:1", "1:7:5e3:3:12", "1:٣:500:3:12",
     f"1:7:{NUMBER_MAX + 1}:3:12", "1:7:500:3: 12", None, b"1:7:500:3:12", 5],
)  # fmt: skip
def test_a_text_that_is_no_token_is_refused_and_shown(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="a position must be a text") as refused:
        ConsumerPlace.parse(text)
    assert refused.value.details["token"] == repr(text)


def test_long_lists_of_partitions_are_cut() -> None:
    assert partitions_text([3, 1]) == "1, 3"
    assert partitions_text(range(20)) == "0, 1, 2, 3, 4, 5, 6, 7, ..."
