"""What a query tells its cohort: once each, under the id of its checkpoint, and never as an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringfence.cluster.offsets import Position
from ringfence.consumer.values import Point
from ringfence.native.errors import FencedError, InvalidArgumentError
from ringfence.spark import stream_cohort
from ringfence.spark.options import BATCH_READ, STREAM_READ, SourceOptions
from ringfence.spark.stream_cohort import QueryMember, positions_of_offset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.consumer.settings import Settings


class FakeReports:
    """What would go to the cluster."""

    made: list[FakeReports]

    def __init__(self, address: str | None, token_file: str | None, settings: Settings) -> None:
        self.name, self.said, self.is_open = settings.member, list[dict[int, Point]](), False
        self.error: Exception | None = None
        FakeReports.made.append(self)

    def begin(self) -> None:
        self.is_open = True

    def report(self, reached: Mapping[int, Point]) -> None:
        if self.error is not None:
            raise self.error
        self.said.append(dict(reached))

    def close(self) -> None:
        self.is_open = False


@pytest.fixture(autouse=True)
def reports(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeReports.made = []
    monkeypatch.setattr(stream_cohort, "Reports", FakeReports)


def member() -> QueryMember:
    return QueryMember(SourceOptions({"topic": "t", "cohort": "loads"}), "loads")


def test_a_new_query_draws_an_id_and_a_restarted_one_has_that_of_its_checkpoint() -> None:
    one, again = member(), member()
    one.join({"partitions": {}})
    again.join(None, {"query": one.query})
    again.join({"query": "0"})
    assert again.query == one.query
    assert [made.name for made in FakeReports.made] == [f"spark-{one.query}"] * 2


def test_a_position_is_told_once_and_others_beside_it() -> None:
    one = member()
    one.report([Position(1, 5, 2)])
    one.join()
    one.report([Position(1, 5, 2), Position(2, 0)])
    one.report([Position(1, 5, 2), Position(2, 0)])
    one.report([Position(1, 9, 2), Position(2, 0)])
    assert FakeReports.made[0].said == [{1: Point(5, 2), 2: Point(0, 0)}, {1: Point(9, 2)}]


def test_what_ends_the_member_does_not_end_the_query() -> None:
    one = member()
    one.join()
    (made,) = FakeReports.made
    made.error = FencedError("a newer process has this name")
    one.report([Position(1, 5)])
    one.report([Position(1, 6)])
    assert (made.is_open, made.said) == (False, [])


def test_positions_of_an_offset_are_those_it_lists() -> None:
    offset = {"format": 1, "partitions": {"9": {"offset": 7}, "10": {"offset": 3, "epoch": 4}}}
    assert positions_of_offset(offset) == [Position(9, 7, 0), Position(10, 3, 4)]


@pytest.mark.parametrize("name", ["no name", "x" * 65, "é"])
def test_an_option_that_is_no_name_is_refused_and_so_are_batch_reads(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="the option cohort"):
        SourceOptions({"topic": "t", "cohort": name}).check_use(STREAM_READ)
    with pytest.raises(InvalidArgumentError, match="a batch read does not have"):
        SourceOptions({"topic": "t", "cohort": "c"}).check_use(BATCH_READ)
