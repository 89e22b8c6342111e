"""Loads: rates out of counters, bounded on the wire, forgotten when they are old."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.rebalance.loads import (
    PARTS_MAX,
    STALE_MS,
    Load,
    LoadBoard,
    LoadReport,
    Meter,
    advertised_loads,
)
from tests.fakes.metadata_commands import cluster, create, entry

ONE, TWO = NodeId(1), NodeId(2)


def counted(partition: int, records: int, size: int, **more: Any) -> dict[str, Any]:
    rows = {"start_offset": 0, "end_offset": 10 * records}
    return {"partition": partition, "open": True, "records": records, "bytes": size, **rows, **more}


def test_rates_are_of_what_came_between_two_looks_and_smoothed() -> None:
    meter = Meter()
    assert meter.is_due(0)
    assert meter.read([counted(7, 10, 1_000)], 0) == LoadReport()
    assert not meter.is_due(1_999)
    assert meter.is_due(2_000)
    assert meter.read([counted(7, 30, 5_000)], 2_000) == LoadReport((Load(7, 2_000, 10),))
    assert meter.read([counted(7, 30, 5_000)], 4_000) == LoadReport((Load(7, 1_000, 5),))
    assert meter.read([counted(7, 30, 5_000, open=False)], 6_000) == LoadReport(), "a follower tells nothing"
    assert meter.read([counted(7, 90, 9_000)], 8_000) == LoadReport(), "another owner's batches"


def test_retention_takes_no_load_away() -> None:
    meter = Meter()
    meter.read([counted(7, 10, 1_000)], 0)
    shorter = counted(7, 30, 500, start_offset=250)  # 50 rows of 10 bytes each are left, 200 came
    assert meter.read([shorter], 2_000) == LoadReport((Load(7, 1_000, 10),))
    meter = Meter()
    meter.read([counted(7, 10, 1_000)], 0)
    assert meter.read([counted(7, 30, 0, start_offset=300)], 2_000) == LoadReport((Load(7, 0, 10),))


def test_a_node_tells_of_its_busiest_partitions_and_the_sum_of_the_others() -> None:
    meter, count = Meter(), 3 * PARTS_MAX
    meter.read([counted(number, 0, 0) for number in range(count)], 0)
    told = meter.read([counted(number, 2, 2 * number) for number in range(count)], 2_000)
    assert [load.partition for load in told.parts] == list(range(count - 1, count - 1 - PARTS_MAX, -1))
    assert (told.bytes_s, told.requests_s) == (sum(range(count)), count)
    assert len(msgspec.msgpack.encode(told)) < 8_000
    too_long = msgspec.msgpack.encode(LoadReport((Load(1, 1, 1),) * (PARTS_MAX + 1)))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(too_long, type=LoadReport)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode([[[1, -5, 1]], 0, 0]), type=LoadReport)


def test_the_board_knows_the_newest_word_and_forgets_the_silent() -> None:
    board = LoadBoard()
    board.record(ONE, LoadReport((Load(7, 100, 1), Load(8, 50, 1)), 5), 0)
    board.record(TWO, LoadReport((Load(7, 30, 1),)), 1_000)
    assert board.by_partition(1_000) == {PartitionId(7): 30.0, PartitionId(8): 50.0}, "7 has moved"
    assert board.unlisted(1_000) == {ONE: 5.0}
    assert [told.bytes_s for told in board.by_node(1_000).values()] == [155, 30]
    assert set(board.by_node(STALE_MS)) == {TWO}
    assert board.by_partition(STALE_MS) == {PartitionId(7): 30.0}


def test_producers_are_told_of_every_partition_whose_load_is_known() -> None:
    """F34, F35: one that its owner did not name is idle only if it named all that move."""
    state, _ = apply(cluster(2), entry(20, create(partitions=3, nodes=((1,), (2,), (1,)))))
    topic = state.topics[TopicId(20)]
    first, second, third = topic.assignments
    assert advertised_loads(topic, {}) == {}
    assert advertised_loads(topic, {ONE: LoadReport((Load(first, 100, 1),))}) == {first: 100, third: 0}
    reports = {ONE: LoadReport((Load(first, 100, 1),), 7), TWO: LoadReport()}
    assert advertised_loads(topic, reports) == {first: 100, second: 0}
    assert advertised_loads(topic, {TWO: LoadReport((Load(first, 100, 1),))}) == {second: 0}, "it has moved"
