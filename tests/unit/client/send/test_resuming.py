"""What a successor of a name leaves out of its sends."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ringfence.arrow.encode import Body
from ringfence.common.routing import Layout, layout_of
from ringfence.native.errors import ConflictError, InvalidArgumentError
from ringfence.native.messages import NodeEntry, PartitionEntry, ResumePoint, Table
from ringfence.native.slots import slots
from ringfence.send.resume import Rule, name_slot, send_slot
from ringfence.send.resuming import Resuming

SCHEMA = pa.schema([pa.field("k", pa.int64())])


def layout(key: tuple[str, ...] = ("k",)) -> Layout:
    entries = [
        PartitionEntry(partition=number, lo=lo, hi=hi, state="ACTIVE", owner=1, epoch=1)
        for number, (lo, hi) in {1: (0, 32767), 2: (32768, 65535)}.items()
    ]
    table = Table(
        topic=7,
        name="t",
        history=b"h",
        generation=5,
        version=1,
        key=list(key),
        schemas=[SCHEMA.serialize().to_pybytes()],
        replication=1,
        partitions=entries,
        nodes=[NodeEntry(node=1, addresses=["tcp://a:1"])],
    )
    return layout_of(table)


def point(partition: int, send: int, rows: int = 4) -> ResumePoint:
    return ResumePoint(partition=partition, sequence=0, send=send, note=None, first_offset=0, rows=rows)


def rows(count: int = 50) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(count), pa.int64())], schema=SCHEMA)


def test_rows_are_left_out_by_the_point_of_their_slot() -> None:
    resuming = Resuming(layout(), "n", Rule.NONE, [point(1, 4), point(2, 6)])
    (left,) = resuming.without_stored([rows()], 5, SCHEMA)
    assert slots(left, ["k"]).max() <= 32767
    assert 0 < left.num_rows < 50
    assert resuming.without_stored([rows()], 4, SCHEMA) == []
    (whole,) = resuming.without_stored([rows()], 7, SCHEMA)
    assert whole.num_rows == 50


def test_a_send_without_number_is_never_left_out() -> None:
    resuming = Resuming(layout(), "n", Rule.NONE, [point(1, 4), point(2, 6)])
    batch = rows()
    assert resuming.without_stored([batch], None, SCHEMA) == [batch]
    assert resuming.numbers.draw(None) == 7


def test_numbers_of_a_line_go_on_after_its_point() -> None:
    assert name_slot("loader") >= 32768
    resuming = Resuming(layout(()), "loader", Rule.LINE, [point(1, 9), point(2, 6)])
    assert resuming.without_stored([rows()], 6, SCHEMA) == []
    assert resuming.without_stored([rows(3)], 7, SCHEMA) == [rows(3)], "9 is of another slot"
    assert resuming.numbers.draw(None) == 7
    resuming.check_number(None)


def test_a_spread_send_needs_a_number_and_the_rows_that_are_stored() -> None:
    resuming = Resuming(layout(()), "wide", Rule.SPREAD, [point(1, 4), point(2, 6)])
    with pytest.raises(InvalidArgumentError, match="needs number="):
        resuming.check_number(None)
    assert send_slot(4) <= 32767
    assert resuming.without_stored([rows(4)], 4, SCHEMA) == []
    with pytest.raises(ConflictError, match="send 4 is stored with 4 rows, and this call has 3"):
        resuming.without_stored([rows(3)], 4, SCHEMA)
    assert resuming.without_stored([rows(3)], 2, SCHEMA) == [], "only the last one of a partition is known"
    assert resuming.without_stored([rows(3)], 5, SCHEMA) == [rows(3)]


def test_an_older_name_compares_the_point_of_the_partition_that_is_chosen() -> None:
    resuming = Resuming(layout(()), "old", Rule.NONE, [point(1, 4), point(2, 6)])
    bodies = [Body(number, bytearray(), 0, 1, 0, 0, None) for number in (1, 2)]
    assert resuming.unstored(bodies, 5) == bodies[:1]
    assert resuming.unstored(bodies, 4) == []
    assert Resuming(layout(), "n", Rule.NONE, [point(1, 9)]).unstored(bodies, 5) == bodies


def ranged(partition: int, send: int, lo: int, hi: int) -> ResumePoint:
    return ResumePoint(
        partition=partition, sequence=0, send=send, note=b"n", first_offset=0, rows=1, lo=lo, hi=hi
    )


def test_an_older_name_leaves_out_what_a_partition_that_was_split_has_stored() -> None:
    """Its topic had one partition, and no child has a point of its own yet."""
    bodies = [Body(number, bytearray(), 0, 1, 0, 0, None) for number in (1, 2)]
    resuming = Resuming(layout(()), "old", Rule.NONE, [ranged(9, 6, 0, 32767), ranged(9, 6, 32768, 65535)])
    assert resuming.resume_from == (6, b"n")
    assert resuming.unstored(bodies, 5) == resuming.unstored(bodies, 6) == []
    assert resuming.unstored(bodies, 7) == bodies


def test_an_older_name_leaves_out_the_last_sends_of_partitions_that_were_merged() -> None:
    bodies = [Body(3, bytearray(), 0, 1, 0, 0, None)]
    resuming = Resuming(layout(()), "old", Rule.NONE, [ranged(1, 9, 0, 99), ranged(2, 6, 100, 65535)])
    assert resuming.resume_from is None
    assert [number for number in range(1, 11) if not resuming.unstored(bodies, number)] == [*range(1, 7), 9]
