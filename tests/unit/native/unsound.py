"""Batches whose buffers lie, each buffer in front of a page that nobody may read.

    python -m tests.unit.native.unsound SEED ROUNDS

A round makes sound columns, overwrites some of their offsets, views, indexes, run ends or bitmaps, and gives
the batch to all that a client does with one. It is encoded or refused; a read behind a buffer would end the
process.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
import sys
from typing import Any

import pyarrow as pa

from ringfence.arrow.batches import one_batch, record_batches
from ringfence.arrow.encode import TopicEncoder
from ringfence.arrow.keys import slots
from ringfence.common.routing import layout_of
from ringfence.native._node import schema_message
from ringfence.native.errors import BatchError
from ringfence.native.messages import NodeEntry, PartitionEntry, Table

LIBC = ctypes.CDLL(None, use_errno=True)
POWERS = [1 << bits for bits in (12, 20, 30, 31, 32, 40, 62)]
WORDS = [0, 1, 2, 7, 12, 13, 40, 255, *POWERS, *(power - 1 for power in POWERS)]
STRUCT = pa.struct([("a", pa.utf8()), ("b", pa.int32())])
KEYS: list[pa.DataType] = [
    pa.utf8(),
    pa.large_utf8(),
    pa.string_view(),
    pa.binary(),
    pa.binary_view(),
    pa.int64(),
    pa.bool_(),
    pa.dictionary(pa.int8(), pa.utf8()),
    pa.dictionary(pa.uint32(), pa.int64()),
    pa.list_(pa.utf8()),
    pa.large_list(pa.int32()),
    pa.list_(pa.int32(), 2),
    STRUCT,
    pa.list_(STRUCT),
]
MEMBERS = [pa.field("t", pa.utf8()), pa.field("l", pa.list_(pa.utf8()))]
TYPES = [
    *KEYS,
    pa.map_(pa.utf8(), pa.int32()),
    pa.run_end_encoded(pa.int32(), pa.list_(pa.utf8())),
    pa.run_end_encoded(pa.int16(), pa.utf8()),
    pa.list_view(pa.utf8()),
    pa.large_list_view(STRUCT),
    pa.sparse_union(MEMBERS),
    pa.dense_union(MEMBERS),
    pa.list_(pa.dictionary(pa.int8(), pa.utf8())),
]


class Guarded:
    """Memory that ends where a page without any rights begins."""

    def __init__(self, content: bytes) -> None:
        room = -(-max(1, len(content)) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(-1, room + mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        assert LIBC.mprotect(ctypes.c_void_p(start + room), mmap.PAGESIZE, 0) == 0
        self.bytes, self.address = len(content), start + room - len(content)
        self.write(0, content)

    def write(self, at: int, content: bytes) -> None:
        ctypes.memmove(self.address + at, content, len(content))

    def buffer(self) -> pa.Buffer:
        return pa.foreign_buffer(self.address, self.bytes, self)


def value(rng: random.Random, kind: pa.DataType) -> Any:
    types = pa.types
    if rng.random() < 0.1:
        return None
    if types.is_dictionary(kind):
        return value(rng, kind.value_type)
    if types.is_run_end_encoded(kind):
        return value(rng, kind.value_type)
    if types.is_map(kind):
        return [(f"{at}", at) for at in range(rng.randrange(3))]
    if types.is_fixed_size_list(kind):
        return [value(rng, kind.value_type) for _ in range(kind.list_size)]
    if types.is_struct(kind):
        return {field.name: value(rng, field.type) for field in kind}
    if kind.num_fields:
        return [value(rng, kind.value_type) for _ in range(rng.randrange(4))]
    if types.is_boolean(kind):
        return rng.random() < 0.5
    if types.is_integer(kind):
        return rng.randrange(5)
    text = rng.choice(["", "x", "abcdefgh" * 2, "y" * 40]) + str(rng.randrange(4))
    return text.encode() if types.is_binary(kind) or types.is_binary_view(kind) else text


def column(rng: random.Random, kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_union(kind):
        ids = pa.array([rng.randrange(kind.num_fields) for _ in range(rows)], pa.int8())
        parts = [column(rng, kind.field(place).type, rows) for place in range(kind.num_fields)]
        names = [kind.field(place).name for place in range(kind.num_fields)]
        if kind.mode == "sparse":
            return pa.UnionArray.from_sparse(ids, parts, names)
        return pa.UnionArray.from_dense(ids, pa.array(range(rows), pa.int32()), parts, names)
    if pa.types.is_dictionary(kind):
        plain = pa.array([value(rng, kind) for _ in range(rows)], kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(plain.indices.cast(kind.index_type), plain.dictionary)
    if pa.types.is_run_end_encoded(kind):
        ends = [*sorted(rng.sample(range(1, rows), min(rows - 1, 3))), rows]
        held = pa.array([value(rng, kind.value_type) for _ in ends], kind.value_type)
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, kind.run_end_type), held)
    return pa.array([value(rng, kind) for _ in range(rows)], kind)


def guarded(array: pa.Array, held: list[Guarded]) -> pa.Array:
    """The same array in memory that is guarded; `held` gets every buffer."""
    kind, types = array.type, pa.types

    def own(count: int) -> list[pa.Buffer | None]:
        found: list[pa.Buffer | None] = []
        for buffer in array.buffers()[:count]:
            if buffer is None:
                found.append(None)
                continue
            held.append(Guarded(buffer.to_pybytes()))
            found.append(held[-1].buffer())
        return found

    if types.is_dictionary(kind):
        return pa.DictionaryArray.from_buffers(kind, len(array), own(2), guarded(array.dictionary, held))
    if types.is_run_end_encoded(kind):
        parts = [guarded(part, held) for part in (array.run_ends, array.values)]
        return pa.RunEndEncodedArray.from_buffers(kind, len(array), [None], children=parts)
    if types.is_struct(kind):
        parts = [guarded(array.field(place), held) for place in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), own(1), children=parts)
    if types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        entries = pa.StructArray.from_arrays([array.keys, array.items], fields=fields)
        return pa.Array.from_buffers(kind, len(array), own(2), children=[guarded(entries, held)])
    if types.is_union(kind):
        parts = [guarded(array.field(place), held) for place in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), own(2 if kind.mode == "sparse" else 3), children=parts)
    if kind.num_fields:
        views = types.is_list_view(kind) or types.is_large_list_view(kind)
        count = 1 if types.is_fixed_size_list(kind) else 3 if views else 2
        return pa.Array.from_buffers(kind, len(array), own(count), children=[guarded(array.values, held)])
    return pa.Array.from_buffers(kind, len(array), own(len(array.buffers())))


def harm(rng: random.Random, held: list[Guarded]) -> None:
    for _ in range(rng.randrange(1, 4)):
        memory, word = rng.choice(held), rng.choice([*WORDS, *(-number for number in WORDS[1:12])])
        wide = struct.pack("<q", word - (1 << 64) if word >= 1 << 63 else word)[: rng.choice([1, 4, 4, 8])]
        room = memory.bytes - len(wide)
        if room >= 0:
            memory.write(rng.randrange(room // len(wide) + 1) * len(wide), wide)


def encoder(schema: pa.Schema, key: list[str]) -> TopicEncoder:
    edges = [(0, 20000), (20001, 40000), (40001, 65535)]
    partitions = [
        PartitionEntry(partition=place, lo=lo, hi=hi, state="ACTIVE", owner=1, epoch=1)
        for place, (lo, hi) in enumerate(edges, 1)
    ]
    schemas, nodes = [bytes(schema_message(schema))], [NodeEntry(node=1, addresses=["tcp://a:1"])]
    table = Table(
        topic=1,
        name="t",
        history=b"h",
        generation=1,
        version=1,
        key=key,
        schemas=schemas,
        replication=1,
        partitions=partitions,
        nodes=nodes,
    )
    return TopicEncoder(layout_of(table), split=True)


def tries(batch: pa.RecordBatch) -> int:
    """How many of the ways refuse the batch. AssertionError where one of them panics."""

    def rows() -> pa.RecordBatch:
        (sound,) = record_batches(batch, batch.schema)
        return sound

    ways = (
        lambda: slots(batch, ["k"]),
        lambda: encoder(batch.schema, []).bodies(rows()),
        lambda: encoder(batch.schema, ["k"]).bodies(rows()),
        lambda: encoder(batch.schema, ["k"]).bodies(one_batch([rows(), rows()])),
    )
    refused = 0
    for way in ways:
        try:
            way()
        except BatchError as error:
            assert type(error.__cause__).__name__ != "PanicException", error
            refused += 1
    return refused


def main(seed: int, rounds: int) -> None:
    refused = 0
    for at in range(seed, seed + rounds):
        rng = random.Random(at)
        rows = rng.choice([1, 3, 16, 17, 60])
        held: list[Guarded] = []
        kinds = {"k": rng.choice(KEYS), "v": rng.choice(TYPES)}
        print(at, rows, kinds, file=sys.stderr, flush=True)  # the last line is what ended the process
        batch = pa.record_batch(
            {name: guarded(column(rng, kind, rows), held) for name, kind in kinds.items()}
        )
        assert tries(batch) == 0
        harm(rng, held)
        start = rng.randrange(rows)
        refused += tries(batch.slice(start, rng.randrange(1, rows - start + 1)))
    print(f"{rounds} rounds, {refused} refusals")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
