"""The offset of a stream in a checkpoint: three formats are read, two written, damaged ones refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfence.cluster.offsets import Position
from ringfence.common.arguments import NUMBER_MAX
from ringfence.common.lineage import Part, View
from ringfence.native.errors import InvalidArgumentError
from ringfence.spark.stream_offset import FORMAT, StreamOffset, decode, encode, query_of, version_of

VIEW = View(7, 1, 3, {one: Part(one, 1) for one in (2, 9, 10)}, {})
SPLIT = View(7, 2, 4, {2: Part(2, 1), 9: Part(9, 1, is_sealed=True), (9 << 16): Part(9 << 16, 4, (9,))}, {})
KEPT = {9: Position(9, 1200, 31), 10: Position(10, 0)}
FORMAT_1 = '{"format":1,"topic":7,"version":0,"partitions":{"9":{"offset":1200},"10":{"offset":0}}}'
FORMAT_2 = (
    '{"format": 2, "topic": 7, "version": 3, "partitions": '
    '{"9": {"offset": 1200, "epoch": 31}, "10": {"offset": 0, "epoch": 0}}}'
)


def test_equal_positions_give_the_same_text_in_whatever_order() -> None:
    """Spark compares the texts: where they differ, it runs a micro-batch."""
    assert json.dumps(encode(VIEW, KEPT.values())) == FORMAT_2
    assert json.dumps(encode(VIEW, reversed(KEPT.values()))) == FORMAT_2


def test_what_is_written_is_read_with_its_epochs() -> None:
    assert decode("t", VIEW, json.loads(FORMAT_2)) == StreamOffset(KEPT, frozenset())


def test_an_offset_of_format_1_is_read_without_epochs_and_written_with_them() -> None:
    found = decode("t", VIEW, json.loads(FORMAT_1))
    assert found.positions == {9: Position(9, 1200), 10: Position(10, 0)}
    assert encode(VIEW, found.positions.values())["format"] == FORMAT == 2


def test_format_3_is_written_once_a_partition_was_split_and_says_what_has_ended() -> None:
    child = 9 << 16
    kept = [Position(9, 1200, 31), Position(child, 0), Position(2, 5, 7)]
    text = json.dumps(encode(SPLIT, kept, [9]))
    assert text == (
        '{"format": 3, "topic": 7, "version": 4, "partitions": {"2": {"offset": 5, "epoch": 7}, '
        '"9": {"offset": 1200, "epoch": 31, "ended": true}, "589824": {"offset": 0, "epoch": 0}}}'
    )
    assert decode("t", SPLIT, json.loads(text)) == StreamOffset(
        {one.partition: one for one in kept}, frozenset({9})
    )
    assert version_of(json.loads(text)) == 4


def test_an_ended_partition_may_have_been_pruned_and_one_that_is_not_ended_if_the_table_shows_it() -> None:
    gone = View(7, 3, 4, {(9 << 16): Part(9 << 16, 4, (9,))}, {9: 1200})
    for place in ({"offset": 1200, "epoch": 31}, {"offset": 1200, "epoch": 31, "ended": True}):
        given = changed(format=3, version=4, partitions={"9": place})
        assert decode("t", gone, given).positions == {9: Position(9, 1200, 31)}
    with pytest.raises(InvalidArgumentError, match="no partition 9"):
        decode("t", View(7, 1, 3, {2: Part(2, 1)}, {}), changed())


@pytest.mark.parametrize("version", [None, "3", True, -1, 2**70])
def test_a_version_that_no_layout_has_asks_for_no_newer_table(version: object) -> None:
    assert version_of(changed(version=version)) == 0
    assert version_of("text") == 0


def changed(**change: Any) -> dict[str, Any]:
    return {**json.loads(FORMAT_2), **change}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "has no format"),
        ("text", "has no format"),
        ({}, "has no format"),
        (changed(format=4), "use a newer ringfence"),
        (
            changed(format=3, partitions={"9": {"offset": 1, "epoch": 1, "ended": 1}}),
            '"ended" of partition 9 is 1',
        ),
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
        decode("t", VIEW, given)


def test_the_id_of_a_query_is_kept_and_changes_no_other_offset() -> None:
    given = encode(VIEW, KEPT.values(), query="0a1b-2c")
    assert given == {**json.loads(FORMAT_2), "query": "0a1b-2c"}
    assert decode("t", VIEW, given) == StreamOffset(KEPT, frozenset(), "0a1b-2c")
    assert query_of(given) == "0a1b-2c"
    assert query_of(json.loads(FORMAT_2)) == query_of(None) == query_of({"query": "a b"}) == ""


@pytest.mark.parametrize("query", [7, "a b", "x" * 37, None])
def test_an_id_that_this_source_cannot_have_written_is_refused(query: object) -> None:
    with pytest.raises(InvalidArgumentError, match="no query"):
        decode("t", VIEW, {**json.loads(FORMAT_2), "query": query})
