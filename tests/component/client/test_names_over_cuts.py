"""Named producers over layout changes: exact resume with a key, on one line, and spread by numbers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import ringfence
from ringfence.arrow.decode import read_body
from ringfence.native import wire
from ringfence.native.wire import Opcode
from ringfence.send.resume import ResumeFrom, name_slot, send_slot
from tests.fakes.client_topic import SCHEMA, rows
from tests.fakes.cut_node import CutNode
from tests.fakes.socket_node import Drop


@contextmanager
def topic(partitions: int, key: tuple[str, ...] = ()) -> Iterator[tuple[CutNode, ringfence.Client]]:
    with CutNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=key, partitions=partitions)
        node.topic_of("t").version = 1
        yield node, client
        node.hook = None


def stored_ids(node: CutNode) -> dict[int, list[int]]:
    """By partition, ancestors first."""
    found: dict[int, list[int]] = {}
    for partition in node.lineage_ids("t"):
        ids = found.setdefault(partition, [])
        for record in node.topic_of("t").logs[partition].records:
            header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack_from(record))
            start = wire.RECORD_HEADER_BYTES + header.extension_bytes
            message = record[start : wire.RECORD_HEADER_BYTES + header.body_bytes]
            batch = read_body(pa.py_buffer(SCHEMA.serialize()), SCHEMA, message, is_stream=False)
            ids += batch.column("id").to_pylist()
    return found


def flat(stored: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(stored))


def killed(producer: ringfence.Producer) -> None:
    """What a killed process leaves: nothing is flushed, nothing is told."""
    producer._sender.abandon(ringfence.ClosedError("killed"))
    producer._outcomes._shown = producer._outcomes._failed


def test_all_sends_of_a_name_without_key_are_on_one_line_in_order() -> None:
    with topic(4) as (node, client), client.producer("t", name="loader") as producer:
        for number in range(40):
            producer.send(rows(number))
            if number in {10, 20}:
                has_slot = [log.lo <= name_slot("loader") <= log.hi for log in node.active("t")]
                node.split("t", first=has_slot.index(True))
        producer.flush(10)
        stored = [ids for ids in stored_ids(node).values() if ids]
        assert flat(stored) == list(range(40)), "the line goes through the children of its slot"
        assert producer.resume_from is None


def test_a_line_goes_on_after_its_point_and_skips_what_is_stored() -> None:
    with topic(2) as (node, client):
        first = client.producer("t", name="loader")
        for number in range(5):
            first.send(rows(number), note=b"%d" % number)
        first.flush(10)
        node.split("t", first=1)
        second = client.producer("t", name="loader")
        assert second.resume_from == ResumeFrom(5, b"4") or second.resume_from == ResumeFrom(5, None)
        assert second.send(rows(4), number=5).result(5) == ()
        assert second.send(rows(5)).result(5)[0].rows == 1
        assert {header.send for log in node.topic_of("t").logs.values() for header in log.stored} == set(
            range(1, 7)
        )
        killed(first)
        second.close()


def test_numbers_of_a_spread_name_choose_its_partitions_whatever_the_layout() -> None:
    with topic(2) as (node, client), client.producer("t", name="wide", spread=True) as producer:
        for number in range(1, 31):
            producer.send(rows(number), number=number)
            if number == 10:
                node.split("t")
            if number == 20:
                node.merge("t", 2, first=1)
        producer.flush(10)
        for partition, ids in stored_ids(node).items():
            log = node.topic_of("t").logs[partition]
            assert all(log.lo <= send_slot(one) <= log.hi for one in ids)
            assert ids == sorted(ids), "numbers ascend in each partition"
        assert sorted(flat(stored_ids(node).values())) == list(range(1, 31))


def test_a_spread_name_that_dies_with_a_hole_resumes_exactly() -> None:
    """Numbers 1 to 4 and 6 are stored, 5 is lost with the process; the partition of 6 is split meanwhile."""
    dropped = threading.Event()

    def hook(header: wire.RequestHeader) -> Drop | None:
        if header.opcode == Opcode.PUBLISH and header.send == 5:
            dropped.set()
            return Drop(served=False)
        return None

    with topic(2) as (node, client):
        first = client.producer("t", name="wide", spread=True)
        for number in range(1, 5):
            first.send(rows(number), note=b"%d" % number, number=number).result(5)
        node.hook = hook
        first.send(rows(5), number=5)
        first.send(rows(6), number=6).result(5)
        dropped.wait(5)
        killed(first)
        node.hook = None
        node.split("t", first=1)
        with client.producer("t", name="wide", spread=True) as second:
            assert second.resume_from is not None
            assert second.resume_from.send == 4
            taken = [second.send(rows(number), number=number).result(5) for number in range(3, 9)]
            assert [len(one) for one in taken] == [0, 0, 1, 0, 1, 1]
        assert sorted(flat(stored_ids(node).values())) == list(range(1, 9))


def test_a_spread_name_needs_numbers_and_equal_rows() -> None:
    with topic(2) as (_, client):
        with client.producer("t", name="wide", spread=True) as first:
            first.send(rows(1, 3), number=1).result(5)
            with pytest.raises(ringfence.InvalidArgumentError, match="needs number="):
                first.send(rows(2))
        with client.producer("t", name="wide", spread=True) as second:
            with pytest.raises(ringfence.ConflictError, match="is stored with 3 rows, and this call has 2"):
                second.send(rows(1, 2), number=1)
            assert second.send(rows(1, 3), number=1).result(5) == ()
        with pytest.raises(ringfence.InvalidArgumentError, match="without linger_ms"):
            client.producer("t", name="wide", spread=True, linger_ms=5)


def test_rows_of_a_topic_with_key_are_skipped_by_the_point_of_their_slot() -> None:
    """Of send 3 the half of one partition is stored; the partition is split before the next open."""
    dropped = threading.Event()

    with topic(2, key=("id",)) as (node, client):
        low, high = node.active("t")

        def hook(header: wire.RequestHeader) -> Drop | None:
            if header.opcode == Opcode.PUBLISH and header.send == 3 and header.partition == high.partition:
                dropped.set()
                return Drop(served=False)
            return None

        first = client.producer("t", name="loader")
        first.send(rows(0, 20), number=1).result(5)
        first.send(rows(20, 20), number=2).result(5)
        node.hook = hook
        future = first.send(rows(40, 20), number=3)
        dropped.wait(5)
        while not (low.stored and low.stored[-1].send == 3):
            pass
        killed(first)
        del future
        node.hook = None
        node.split("t")
        with client.producer("t", name="loader") as second:
            assert second.resume_from is not None
            assert second.resume_from.send == 2
            assert len(second.resume_points) == 3
            again = second.send(rows(40, 20), number=3).result(5)
            assert {one.partition for one in again} == {high.partition}
            second.send(rows(60, 20), number=4).result(5)
        assert sorted(flat(stored_ids(node).values())) == list(range(80))


def test_a_hole_of_a_spread_name_ends_its_lane_and_no_other() -> None:
    def hook(header: wire.RequestHeader) -> Drop | None:
        return Drop(served=False) if header.opcode == Opcode.PUBLISH and header.send == 5 else None

    with topic(2) as (node, client):
        producer = client.producer("t", name="wide", spread=True, timeout_s=0.5)
        for number in range(1, 5):
            producer.send(rows(number), number=number).result(5)
        node.hook = hook
        with pytest.raises(ringfence.RingfenceError):
            producer.send(rows(5), number=5).result(5)
        node.hook = None
        assert producer.send(rows(6), number=6).result(5), "6 is in the other partition"
        with pytest.raises(ringfence.ClosedError, match="earlier send"):
            producer.send(rows(7), number=7).result(5)
        node.split("t")
        assert producer.send(rows(8), number=8).result(5)
        with pytest.raises(ringfence.ClosedError, match="earlier send"):
            producer.send(rows(10), number=10).result(5)
        assert send_slot(10) < 32768
        killed(producer)
