"""Bodies that are routed again keep their rows, their order, their notes and their places in a send."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.arrow.body_router import BodyRouter
from ringfence.arrow.decode import has_dictionary, read_body
from ringfence.arrow.encode import Body, TopicEncoder
from ringfence.arrow.partition_choice import PartitionChoice
from ringfence.common.routing import Layout, layout_of
from ringfence.native._node import crc32c
from ringfence.native.errors import BatchError
from ringfence.native.messages import NodeEntry, PartitionEntry, Table
from ringfence.native.slots import slots

PLAIN = pa.schema([pa.field("k", pa.int64()), pa.field("text", pa.string())])
CODED = pa.schema([pa.field("k", pa.int64()), pa.field("text", pa.dictionary(pa.int8(), pa.string()))])


def layout(
    active: dict[int, tuple[int, int]],
    sealed: dict[int, tuple[int, int]] | None = None,
    *,
    schema: pa.Schema = PLAIN,
    key: tuple[str, ...] = ("k",),
) -> Layout:
    entries = [
        PartitionEntry(partition=number, lo=lo, hi=hi, state=state, owner=1, epoch=1)
        for state, group in (("ACTIVE", active), ("SEALED", sealed or {}))
        for number, (lo, hi) in group.items()
    ]
    table = Table(
        topic=7,
        name="t",
        history=b"h",
        generation=5,
        version=1,
        key=list(key),
        schemas=[schema.serialize().to_pybytes()],
        replication=1,
        partitions=entries,
        nodes=[NodeEntry(node=1, addresses=["tcp://a:1"])],
    )
    return layout_of(table)


BEFORE = {1: (0, 65535)}
HALVES = {2: (0, 32767), 3: (32768, 65535)}


def rows(count: int, schema: pa.Schema = PLAIN) -> pa.RecordBatch:
    texts = pa.array([f"row {one % 7}" for one in range(count)]).cast(schema.field("text").type)
    return pa.record_batch([pa.array(range(count), pa.int64()), texts], schema=schema)


def decoded(body: Body, schema: pa.Schema = PLAIN) -> pa.RecordBatch:
    message = memoryview(body.data)[body.extension_bytes :]
    return read_body(schema.serialize(), schema, message, is_stream=has_dictionary(schema))


@given(st.integers(1, 200), st.sampled_from([PLAIN, CODED]), st.lists(st.integers(1, 65535), max_size=3))
@settings(max_examples=60, deadline=None)
def test_the_rows_of_a_body_go_to_the_partitions_of_their_slots(
    count: int, schema: pa.Schema, edges: list[int]
) -> None:
    bounds = [0, *sorted(set(edges)), 65536]
    children = {10 + at: (lo, hi - 1) for at, (lo, hi) in enumerate(itertools.pairwise(bounds))}
    (body,) = TopicEncoder(layout(BEFORE, schema=schema), split=True).bodies(rows(count, schema), b"note")
    after = layout(children, {1: (0, 65535)}, schema=schema)
    found: list[int] = []
    for part, slot in BodyRouter().routed(after, body, 1):
        batch = decoded(part, schema)
        hashed = slots(batch, ["k"])
        lo, hi = children[part.partition]
        assert (part.rows, part.crc) == (batch.num_rows, crc32c(part.data))
        assert lo <= hashed.min() <= hashed.max() <= hi
        assert slot == hashed[0]
        assert part.data[: part.extension_bytes] == body.data[: body.extension_bytes]
        ids = batch.column("k").to_pylist()
        assert ids == sorted(ids), "rows keep their order"
        assert part.order is None or part.order.tolist() == ids, "and their places in the send"
        found += ids
    assert sorted(found) == list(range(count))


def test_a_body_whose_rows_stay_together_keeps_its_bytes() -> None:
    (body,) = TopicEncoder(layout(BEFORE), split=True).bodies(rows(1))
    ((part, _),) = BodyRouter().routed(layout(HALVES, BEFORE), body, 1)
    assert part.data is body.data
    assert part.partition in HALVES


def test_two_parts_of_a_send_are_joined_in_the_order_of_its_rows() -> None:
    first, second = TopicEncoder(layout(HALVES), split=False).bodies(rows(100), b"note", keep_order=True)
    merged = layout({4: (0, 65535)}, HALVES)
    router = BodyRouter()
    ((one, _),), ((other, _),) = router.routed(merged, first, 1), router.routed(merged, second, 1)
    whole = router.joined(merged, one, other, 1 << 20)
    assert decoded(whole).equals(rows(100))
    assert (whole.partition, whole.rows, whole.crc) == (4, 100, crc32c(whole.data))
    assert whole.data[: whole.extension_bytes] == first.data[: first.extension_bytes]
    assert whole.order is not None
    assert np.array_equal(whole.order, np.arange(100))
    with pytest.raises(BatchError, match="together they are above the limit"):
        router.joined(merged, one, other, 100)


def test_a_named_send_of_a_topic_without_key_goes_to_the_partition_of_its_slot() -> None:
    (body,) = TopicEncoder(layout(BEFORE, key=()), split=True).bodies(rows(5))
    router = BodyRouter(lambda send: 40_000 if send == 1 else 7)
    after = layout(HALVES, BEFORE, key=())
    assert [router.routed(after, body, send)[0].body.partition for send in (1, 2)] == [3, 2]
    assert router.routed(after, body, 1)[0].body.data is body.data


def test_all_of_a_sealed_partition_without_key_goes_to_one_of_its_heirs_that_is_available() -> None:
    choice = PartitionChoice()
    router = BodyRouter(choice=choice)
    after = layout({2: (0, 99), 3: (100, 199), 4: (200, 65535)}, {1: (0, 199)}, key=())
    body = Body(1, bytearray(b"x"), 0, 1, 0, 0, None)
    choice.unavailable = frozenset({2})
    assert {router.routed(after, body, send)[0].body.partition for send in range(9)} == {3}
    again = layout({5: (100, 65535), 2: (0, 99)}, {1: (0, 199), 3: (100, 199), 4: (200, 65535)}, key=())
    assert router.routed(again, body, 1)[0].body.partition == 5, "the heir was merged: another one is chosen"
    only = BodyRouter(choice=choice)
    choice.unavailable = frozenset({2, 3})
    assert only.routed(after, body, 1)[0].body.partition in {2, 3}, "an heir, also if none is available"
