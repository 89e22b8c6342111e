"""Compressed bodies: what no reader could inflate is refused, and bombs leave others their turns."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from ringfence.native import wire
from tests.harness.processes import SCHEMA, NodeProcess, batch
from tests.harness.raw_client import RawClient, RawTopic, message_of

Code, Op, Status = wire.Code, wire.Opcode, wire.Status
BOMBS = 24
BOMB_BYTES = 48 << 20
LZ4_MAGIC = 0x184D2204


def lz4_end(data: bytes, at: int) -> int:
    """Where the frame that begins at `at` ends, its end mark included; pyarrow writes no checksums."""
    flags = data[at + 4]
    assert not flags & 0b10101, "neither checksums nor a dictionary"
    at += 7 + (8 if flags & 8 else 0)
    while size := struct.unpack_from("<I", data, at)[0]:
        at += 4 + (size & 0x7FFFFFFF)
    return at + 4


def test_a_frame_that_arrow_readers_refuse_is_not_stored(client: RawClient) -> None:
    rows = pa.record_batch({"n": pa.array(range(1000), pa.int64())})
    whole = message_of(rows, "lz4")
    frame = whole.index(struct.pack("<I", LZ4_MAGIC))
    declared = lz4_end(whole, frame) - (frame - 8)
    assert whole[:frame].count(struct.pack("<q", declared)) == 1, "its length stands in the metadata, once"
    at = whole.index(struct.pack("<q", declared))
    cut = whole[:at] + struct.pack("<q", declared - 4) + whole[at + 8 :]
    with pytest.raises(OSError, match="less than one frame"):
        pa.ipc.read_record_batch(pa.ipc.read_message(cut), rows.schema)
    topic = RawTopic(client, "frames", rows.schema, [])
    answer = topic.publish(cut, 0, rows=1000)
    assert answer.code == Code.BAD_BODY, answer
    assert topic.publish(whole, 0, rows=1000).status == Status.OK
    assert topic.ends() == (0, 1000)


def test_tiny_bodies_that_inflate_greatly_leave_others_their_turns(
    node: NodeProcess, client: RawClient
) -> None:
    """One connection hands in a gigabyte of work in 50 KB; another's rows are taken between two of them."""
    zeros = pa.LargeStringArray.from_buffers(
        1, pa.array([0, BOMB_BYTES], pa.int64()).buffers()[1], pa.py_buffer(bytes(BOMB_BYTES))
    )
    bomb = pa.record_batch([zeros], names=["s"])
    body = message_of(bomb, "zstd")
    assert len(body) < BOMB_BYTES // 10_000
    bombs = RawTopic(client, "bombs", bomb.schema, [])
    with RawClient(node.address) as other:
        assert other.hello().status == Status.READY
        topic = RawTopic(other, "others", SCHEMA, ["id"])
        for number in range(BOMBS):
            client.send(Op.PUBLISH, body, **bombs.fields(1, number, deadline_ms=60_000))
        first = client.receive(60_000)
        assert first is not None and first.status == Status.OK, first
        for number in range(3):
            assert topic.publish(batch(number, 1), number).status == Status.OK
        answered = 1
        while client.receive(0) is not None:
            answered += 1
        assert answered < BOMBS // 2, f"{answered} of {BOMBS} were served before three small requests were"
        while answered < BOMBS:
            answer = client.receive(60_000)
            assert answer is not None and answer.status == Status.OK, answer
            answered += 1
    assert bombs.ends() == (0, BOMBS)
