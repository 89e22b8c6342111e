"""The offset of a stream in a checkpoint: two formats are read, one is written, damaged ones are refused."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringfence.cluster.offsets import Position
from ringfence.common.arguments import NUMBER_MAX
from ringfence.native.errors import InvalidArgumentError
from ringfence.native.messages import TopicInfo
from ringfence.spark.stream_offset import FORMAT, decode, encode

INFO = cast(
    "TopicInfo",
    SimpleNamespace(
        name="t", topic=7, version=3, partitions=[SimpleNamespace(partition=one) for one in (2, 9, 10)]
    ),
)
KEPT = {9: Position(9, 1200, 31), 10: Position(10, 0)}
FORMAT_1 = '{"format":1,"topic":7,"version":0,"partitions":{"9":{"offset":1200},"10":{"offset":0}}}'
FORMAT_2 = (
    '{"format": 2, "topic": 7, "version": 3, "partitions": '
    '{"9": {"offset": 1200, "epoch": 31}, "10": {"offset": 0, "epoch": 0}}}'
)


def test_equal_positions_give_the_same_text_in_whatever_order() -> None:
    """Spark compares the texts: where they differ, it runs a micro-batch."""
    assert json.dumps(encode(INFO, KEPT.values())) == FORMAT_2
    assert json.dumps(encode(INFO, reversed(KEPT.values()))) == FORMAT_2


def test_what_is_written_is_read_with_its_epochs() -> None:
    assert decode(INFO, json.loads(FORMAT_2)) == KEPT


def test_an_offset_of_format_1_is_read_without_epochs_and_written_with_them() -> None:
    found = decode(INFO, json.loads(FORMAT_1))
    assert found == {9: Position(9, 1200), 10: Position(10, 0)}
    assert encode(INFO, found.values())["format"] == FORMAT == 2


def changed(**change: Any) -> dict[str, Any]:
    return {**json.loads(FORMAT_2), **change}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "has no format"),
        ("text", "has no format"),
        ({}, "has no format"),
        (changed(format=3), "use a newer ringfence"),
        (changed(format=None), "use a newer ringfence"),
        (changed(format=True), "use a newer ringfence"),
        (changed(format="2"), "use a newer ringfence"),
        (changed(topic=8), "of another topic"),
        (changed(topic=None), "of another topic"),
        (changed(partitions=None), "no map of offsets and epochs"),
        (changed(partitions={"9": 1200}), "no map of offsets and epochs"),
        (changed(partitions={"9": {"offset": 1200}}), "no map of offsets and epochs.*epoch"),
        (changed(partitions={"x": {"offset": 1, "epoch": 1}}), "no map of offsets and epochs"),
        (changed(partitions={"1": {"offset": 1, "epoch": 1}}), "no partition 1"),
        (changed(partitions={"9": {"offset": "7", "epoch": 1}}), "has no offset '7'"),
        (changed(partitions={"9": {"offset": -5, "epoch": 1}}), "has no offset -5"),
        (changed(partitions={"9": {"offset": 1.0, "epoch": 1}}), r"has no offset 1\.0"),
        (changed(partitions={"9": {"offset": 1, "epoch": None}}), "has no epoch None"),
        (changed(partitions={"9": {"offset": 1, "epoch": -1}}), "has no epoch -1"),
        (changed(partitions={"9": {"offset": 1, "epoch": True}}), "has no epoch True"),
        (
            changed(partitions={"9": {"offset": 1, "epoch": NUMBER_MAX + 1}}),
            "has no epoch 9223372036854775808",
        ),
        (
            changed(partitions={"9": {"offset": NUMBER_MAX + 1, "epoch": 1}}),
            "has no offset 92233720368547758",
        ),
        (changed(partitions={"9": {"offset": 1, "epoch": 1}, "09": {"offset": 2, "epoch": 1}}), "twice"),
        ({**json.loads(FORMAT_1), "partitions": {"9": {"epoch": 3}}}, "no map of offsets: "),
        ({**json.loads(FORMAT_1), "partitions": {"9": {"offset": None}}}, "has no offset None"),
    ],
)
def test_what_this_source_has_not_written_is_refused_by_what_is_wrong(given: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        decode(INFO, given)
