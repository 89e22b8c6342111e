"""What the node takes, Arrow C++ reads: sound bodies of every type, one byte of them changed at a time.

A body that the node took and pyarrow did not would end every reader at its record, for ever. The node is the
stepped one, so that thousands of bodies cost seconds; pyarrow reads as the client does, then validates fully.
"""

from __future__ import annotations

import decimal
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest

from ringfence.arrow.decode import has_dictionary
from ringfence.common.codec import request_header
from ringfence.native import _node, messages
from ringfence.native._node import Encoder, Order, SimDisk, SimNode
from ringfence.native.frame import open_answer
from ringfence.native.wire import Code, Opcode, Status
from tests.harness.raw_client import message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 5
TOPIC, PARTITION = 7, 9
# Each lowest bit (offsets and alignment), a high one (signs, what lies far), and both ends.
CHANGES = (1, 2, 4, 8, 0x80)
ENDS = (0, 0xFF)


def _union(mode: str) -> pa.Array:
    types = pa.array([0, 1, 0, 1, 1], pa.int8())
    texts = pa.array(["a", "b", "c", "d", "e"])
    if mode == "sparse":
        return pa.UnionArray.from_sparse(types, [pa.array(range(ROWS), pa.int32()), texts])
    offsets = pa.array([0, 0, 1, 1, 2], pa.int32())
    return pa.UnionArray.from_dense(types, offsets, [pa.array([3, None], pa.int32()), texts.slice(0, 3)])


def _decimals(kind: pa.DataType) -> pa.Array:
    return pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-9.5")] + [decimal.Decimal(0)] * 2, kind)


LONG = ["", "short", None, "a value that is longer than a view", "å" * 9]
NESTED: pa.DataType = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.field("item", pa.string())))])
COLUMNS: dict[str, pa.Array] = {
    "null": pa.nulls(ROWS),
    "bool": pa.array([True, False, None, True, False]),
    "bool_dense": pa.array([True, False, True, True, False]),
    "int8": pa.array([1, None, 3, 4, 5], pa.int8()),
    "int64": pa.array([1, 2, 3, 4, 5], pa.int64()),
    "date64": pa.array([0, None, 86_400_000, 0, 0], pa.date64()),
    "time32": pa.array([1, None, 3, 4, 5], pa.time32("ms")),
    "interval": pa.array([None, (1, 2, 3), (4, 5, 6), None, None], pa.month_day_nano_interval()),
    "fixed": pa.array([b"abc", None, b"def", b"ghi", b"jkl"], pa.binary(3)),
    "decimal32": _decimals(pa.decimal32(7, 2)),
    "decimal128": _decimals(pa.decimal128(15, 2)),
    "decimal256": _decimals(pa.decimal256(50, 4)),
    "utf8": pa.array(LONG),
    "large_binary": pa.array([b"", b"x", None, b"yz", b"\xff"], pa.large_binary()),
    "utf8_view": pa.array(LONG, pa.string_view()),
    "list": pa.array([[1], None, [], [2, None], [3]], pa.list_(pa.int16())),
    "list_view": pa.array([[1], None, [], [2, None], [3]], pa.list_view(pa.int16())),
    "fixed_list": pa.array([[1, 2], None, [3, None], [4, 5], [6, 7]], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}, {}, {"b": []}], NESTED),
    "map": pa.array([[("k", 1)], None, [], [("l", None), ("m", 2)], []], pa.map_(pa.string(), pa.int32())),
    "dictionary": pa.array(["x", "y", None, "x", "z"]).dictionary_encode(),
    "list_dictionary": pa.array(
        [["x"], ["y", "x"], None, [], ["z"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))
    ),
    "run_end": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["r", None])),
    "union_sparse": _union("sparse"),
    "union_dense": _union("dense"),
}
ALL_VALUES = {("null", "ours"), ("bool", "lz4")}
"""Every byte of their metadata takes every value: the least metadata, and that whose harm was seen first."""


class Topic(NamedTuple):
    """A stepped node with one topic of one partition, and a pyarrow reader of it."""

    node: SimNode
    schema: pa.Schema
    message: bytes
    stored: list[bytes]

    def publish(self, body: bytes) -> tuple[Code | None, str]:
        """The node's verdict: None, or the code and text of its refusal."""
        header = request_header(
            Opcode.PUBLISH,
            1,
            topic=TOPIC,
            partition=PARTITION,
            layout_version=1,
            owner_epoch=1,
            producer_id=5,
            producer_epoch=5,
            sequence=len(self.stored),
            rows=ROWS,
            body_bytes=len(body),
            body_crc=_node.crc32c(body),
        )
        assert self.node.request(1, bytes(header), body)
        answers = self.node.take_answers()
        while not answers:
            shards, _ = self.node.turn()
            for shard in shards:
                self.node.run_job(shard)
            answers = self.node.take_answers()
        [(_, answer, text)] = answers
        found = open_answer(answer)
        if found.status == Status.OK:
            self.stored.append(body)
            return None, ""
        assert found.status == Status.REFUSED
        return Code(found.code), messages.decode(messages.Refused, text).message

    def read(self, body: bytes) -> pa.RecordBatch:
        """What `client/arrow/decode.py` reads, fully validated."""
        if has_dictionary(self.schema):
            batch = pa.ipc.open_stream(pa.BufferReader(self.message + body)).read_next_batch()
        else:
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(body)), self.schema)
        batch.validate(full=True)
        return batch


def topic_of(schema: pa.Schema) -> Topic:
    node = SimNode(SimDisk(1), node=1, cluster=b"c" * 16, history=b"h" * 16, store=b"s" * 16)
    node.recover(1_000_000, 1_000)
    node.connect(1)
    message = schema.serialize().to_pybytes()
    node.order(Order.install_topic(TOPIC, [message], [], 0, 0))
    node.order(Order.install_table(TOPIC, 1, 1, b"\x80", [(PARTITION, 0, 65_535, 1, 1)], b"\x80"))
    node.order(Order.open(TOPIC, PARTITION, 0, 65_535, 1))
    while any(work := node.turn()):
        for shard in work[0]:
            node.run_job(shard)
    assert [outcome[2] for outcome in node.poll()] == [None] * 3
    return Topic(node, schema, message, [])


def sound_bodies(name: str) -> Iterator[tuple[str, bytes]]:
    """One batch as several writers lay it out."""
    batch = pa.record_batch({"c": COLUMNS[name]})
    yield "ours", bytes(Encoder(batch.schema.serialize().to_pybytes()).whole(batch)[0])
    for codec in (None, "lz4", "zstd"):
        yield str(codec), message_of(batch, codec)


def metadata_bytes(body: bytes) -> list[int]:
    """Positions of all metadata of the body's messages."""
    positions: list[int] = []
    at = 0
    while at < len(body):
        end = at + 8 + int.from_bytes(body[at + 4 : at + 8], "little")
        positions += range(at, end)
        message = pa.ipc.read_message(pa.py_buffer(body[at:]))
        at = end + (0 if message.body is None else message.body.size)
    return positions


def altered(body: bytes, is_whole: bool) -> Iterator[bytes]:
    """The body with one byte changed: of its metadata to many values, of its buffers to a few."""
    metadata = set(metadata_bytes(body))
    for at, byte in enumerate(body):
        if at in metadata:
            values = range(256) if is_whole else {*(byte ^ change for change in CHANGES), *ENDS}
        else:
            values = {byte ^ 1, 0xFF - byte}
        for value in values:
            if value != byte:
                yield b"".join([body[:at], bytes([value]), body[at + 1 :]])


@pytest.mark.parametrize("name", COLUMNS)
def test_what_the_node_takes_of_altered_bodies_pyarrow_reads(name: str) -> None:
    topic = topic_of(pa.schema([pa.field("c", COLUMNS[name].type)]))
    verdicts: Counter[bool] = Counter()
    for writer, sound in sound_bodies(name):
        assert topic.publish(sound) == (None, ""), writer
        for body in altered(sound, (name, writer) in ALL_VALUES):
            code, _ = topic.publish(body)
            verdicts[code is None] += 1
            if code is None:
                assert topic.read(body).num_rows == ROWS, (writer, body.hex())
            else:
                assert code in (Code.BAD_BODY, Code.WRONG_SCHEMA, Code.TOO_LARGE), writer
    # Most bytes decide something; those of padding and of values do not.
    assert verdicts[True] > 200 and verdicts[False] > 500, verdicts


def test_a_dense_union_whose_offsets_go_back_within_a_child_is_refused() -> None:
    offsets = {"ascending": [0, 0, 1, 1, 2], "descending": [0, 1, 1, 0, 2]}
    types = pa.array([0, 1, 0, 1, 1], pa.int8())
    children = [pa.array([3, 4], pa.int32()), pa.array(["a", "b", "c"])]
    found: dict[str, Code | None] = {}
    for name, values in offsets.items():
        union = pa.UnionArray.from_dense(types, pa.array(values, pa.int32()), children)
        batch = pa.record_batch({"c": union})
        topic = topic_of(batch.schema)
        found[name], _ = topic.publish(message_of(batch, None))
        if found[name] is not None:
            with pytest.raises(pa.ArrowInvalid):
                batch.validate(full=True)
    assert found == {"ascending": None, "descending": Code.BAD_BODY}
