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
    PartitionLoad,
    Pressure,
    RowReport,
    advertised_loads,
    known_loads,
)
from tests.fakes.metadata_commands import cluster, create, entry
from tests.fakes.metadata_log import MetadataLog

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


def test_rows_are_reported_beside_bytes_and_known_loads_have_both() -> None:
    log = MetadataLog(3, partitions=3)
    topic = log.state.topics[log.topic]
    one, two, three = sorted(topic.assignments)
    meter = Meter()

    def counters(part: int, rows: int, size: int) -> dict[str, Any]:
        return {
            "partition": part,
            "open": True,
            "records": rows // 10,
            "start_offset": 0,
            "end_offset": rows,
            "bytes": size,
        }

    idle = counters(three, 0, 0)
    meter.read([counters(one, 0, 0), counters(two, 0, 0), idle], 0)
    report = meter.read([counters(one, 4_000, 900), counters(two, 2_000, 5_000), idle], 2_000)
    assert [load.partition for load in report.parts] == [two, one]
    assert meter.rows == RowReport((1_000, 2_000), 0)
    board = LoadBoard()
    board.record(NodeId(1), report, 2_000, meter.rows)
    known = known_loads(topic, board.by_node(2_000), board.rows_by_node(2_000))
    assert known[one] == PartitionLoad(450, 2_000)
    assert known[two] == PartitionLoad(2_500, 1_000)
    assert known[three] == PartitionLoad(0, 0, is_exact=False), "at most what is not listed: nothing"


def test_a_partition_that_is_not_listed_has_an_upper_bound_and_one_without_a_report_has_nothing() -> None:
    log = MetadataLog(3, partitions=2)
    topic = log.state.topics[log.topic]
    one, two = sorted(topic.assignments)
    report = LoadReport((Load(one, 500, 9),), others_bytes_s=90_000, others_requests_s=7)
    reports = {NodeId(1): report}
    assert known_loads(topic, reports, {}) == {}, "a program of a lower level tells no rows"
    known = known_loads(topic, reports, {NodeId(1): RowReport((40,), 700)})
    assert known[two] == PartitionLoad(500, 700, is_exact=False), "less busy than the least busy one listed"
    assert known_loads(topic, {NodeId(2): report}, {NodeId(2): RowReport((40,), 700)}) == {}


def test_a_report_replaces_all_that_its_node_said_before() -> None:
    """S3."""
    board = LoadBoard()
    full = RowReport((5,), 0, disk_percent=95)
    board.record(NodeId(1), LoadReport((Load(7, 10, 1), Load(8, 20, 1))), 0, full, lags=True)
    assert board.pressures(0) == {1: Pressure(is_full=True, lags=True, bytes_s=30)}
    board.record(NodeId(1), LoadReport((Load(8, 5, 1),)), 1_000, RowReport((5,)))
    assert board.by_partition(1_000) == {8: 5.0}
    assert board.pressures(1_000) == {1: Pressure(bytes_s=5)}
    board.record(NodeId(1), LoadReport(), 2_000)
    assert (board.by_partition(2_000), board.rows_by_node(2_000), board.pressures(2_000)) == ({}, {}, {})
    board.record(NodeId(1), LoadReport(), 3_000, RowReport())
    assert board.rows_by_node(3_000 + STALE_MS) == {}
