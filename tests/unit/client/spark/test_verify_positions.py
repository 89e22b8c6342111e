"""Epochs that positions are compared by: always those of the log, asked for seldom."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, cast

import pytest

from ringfence.client import Client
from ringfence.cluster.offsets import Ends, LogPoint, Position
from ringfence.native.errors import TruncatedError
from ringfence.spark.ranges import Range, split
from ringfence.spark.verify_positions import History

PART = 9


class Logs:
    """Partitions with the epoch of each row, and what a client is asked of them."""

    def __init__(self, *, start: int = 0, tells_ends: bool = True, **rows: list[int]) -> None:
        self._rows = {int(name[1:]): epochs for name, epochs in rows.items()}
        self.asked: list[dict[int, int]] = []
        self.ends = {
            part: Ends(part, start, len(epochs), epochs[-1] if tells_ends and epochs else 0)
            for part, epochs in self._rows.items()
        }

    def log_points(self, topic: str, offsets: Mapping[int, int]) -> list[LogPoint]:
        assert topic == "t"
        self.asked.append(dict(offsets))
        for part, offset in offsets.items():
            assert self.ends[part].start < offset <= self.ends[part].end, "it is refused otherwise"
        return [LogPoint(part, offset, self._rows[part][offset - 1], 0) for part, offset in offsets.items()]

    @property
    def history(self) -> History:
        return History(cast("Client", self), "t", self.ends)

    def prove(self, *positions: Position) -> None:
        self.history.prove(positions, whose="the checkpoint", way_out="begin elsewhere")


def test_a_position_of_the_last_rows_epoch_and_one_at_the_mark_are_proven_without_a_question() -> None:
    logs = Logs(p9=[3] * 10 + [5] * 10)
    logs.prove(Position(PART, 15, 5), Position(PART, 20, 5), Position(PART, 20), Position(PART, 7))
    with pytest.raises(TruncatedError, match="has read row 19 of epoch 4, it is of epoch 5 now"):
        logs.prove(Position(PART, 20, 4))
    assert logs.asked == []


def test_a_position_of_an_older_epoch_is_compared_with_its_row() -> None:
    logs = Logs(p9=[3] * 10 + [5] * 10, p8=[3] * 4)
    logs.prove(Position(PART, 10, 3), Position(8, 2, 3))
    assert logs.asked == [{PART: 10}]
    for lost in (Position(PART, 11, 3), Position(PART, 10, 4), Position(PART, 10, 7)):
        with pytest.raises(TruncatedError, match=r"another history.*begin elsewhere") as caught:
            logs.prove(lost)
        told = caught.value.details
        assert (caught.value.partition, told["offset"], told["epoch"]) == (PART, lost.offset, lost.epoch)


@pytest.mark.parametrize("epoch", [0, 5, 9])
def test_a_position_beyond_the_log_is_of_another_one_with_or_without_an_epoch(epoch: int) -> None:
    with pytest.raises(TruncatedError, match="the checkpoint is at row 21, the log ends at 20"):
        Logs(p9=[5] * 20).prove(Position(PART, 21, epoch))


def test_what_no_row_can_prove_is_left_to_the_owner() -> None:
    """The row before the log start is gone; the FETCH from there names the epoch."""
    logs = Logs(start=10, p9=[3] * 10 + [5] * 10)
    logs.prove(Position(PART, 10, 4), Position(PART, 3, 4), Position(7, 5, 2))
    assert logs.asked == []


@pytest.mark.parametrize("seed", range(40))
def test_each_range_has_the_epochs_of_the_log_with_few_questions(seed: int) -> None:
    draw = random.Random(seed)
    parts: dict[str, list[int]] = {}
    epochs = draw.randrange(1, 6)
    for part in range(1, draw.randrange(2, 5)):
        ends = sorted(draw.randrange(1, 2_000) for _ in range(epochs))
        parts[f"p{part}"] = [
            epoch + 1
            for epoch in range(epochs)
            for _ in range(ends[epoch] - (ends[epoch - 1] if epoch else 0))
        ]
    start = draw.randrange(min(map(len, parts.values())))
    logs = Logs(start=start, tells_ends=draw.random() < 0.8, **parts)
    spans = [Range(end.partition, end.start, end.end, 0, end.epoch) for end in logs.ends.values()]
    ranges = split(spans, draw.randrange(5, 500))
    found = logs.history.with_epochs(ranges)
    assert [span._replace(epoch=0, last_epoch=0) for span in found] == [
        span._replace(epoch=0, last_epoch=0) for span in ranges
    ]
    for span in found:
        rows = parts[f"p{span.partition}"]
        assert span.epoch == (rows[span.first - 1] if span.first > start else 0)
        assert span.last_epoch == rows[span.last - 1]
    each = max([sum(part == one.partition for one in ranges) for part in logs.ends], default=0)
    assert len(logs.asked) <= epochs * (each.bit_length() + 1) + 2, (
        "a search, not one question for each range"
    )


def test_one_range_a_partition_and_one_epoch_a_log_ask_nothing_or_once() -> None:
    one = Logs(p1=[4] * 100, p2=[4, 6])
    spans = [Range(end.partition, end.start, end.end, 0, end.epoch) for end in one.ends.values()]
    assert one.history.with_epochs(spans) == spans
    assert one.asked == []
    ranges = one.history.with_epochs(split(spans[:1], 10))
    assert {(span.epoch, span.last_epoch) for span in ranges[1:]} == {(4, 4)}
    assert one.asked == [{1: 1}]


def test_a_part_of_a_range_keeps_the_epochs_of_the_ends_that_stay() -> None:
    span = Range(PART, 10, 90, 3, 5)
    assert span.within(0, 1_000) == span
    assert span.within(20, 90) == Range(PART, 20, 90, 0, 5)
    assert span.within(10, 89) == Range(PART, 10, 89, 3, 0)
    assert [tuple(part) for part in split([span], 40)] == [(PART, 10, 50, 3, 0), (PART, 50, 90, 0, 5)]


def test_positions_and_ranges_between_them() -> None:
    between: Any = Range.between(Position(PART, 10, 3), Position(PART, 90, 5))
    assert between == (PART, 10, 90, 3, 5)
