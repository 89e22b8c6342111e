"""Arrays whose offsets or views point nowhere: a refusal of that send, and of nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import ringfence
from tests.harness.processes import NodeProcess


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data") as running:
        yield running
        assert running.stop() == 0


def viewed(rows: int) -> pa.Array:
    """Views of 20 bytes; the middle one names a buffer that is not there."""
    views = [struct.pack("<i4sii", 20, b"abcd", 0, 0)] * rows
    views[rows // 2] = struct.pack("<i4sii", 20, b"abcd", 9, 0)
    return pa.Array.from_buffers(
        pa.string_view(), rows, [None, pa.py_buffer(b"".join(views)), pa.py_buffer(b"abcd" * 25)]
    )


def descending(rows: int) -> pa.Array:
    """Offsets that go back in the middle; first and last are sound."""
    offsets = [4 * number for number in range(rows + 1)]
    offsets[rows // 2] = 1 << 40
    places = pa.array(offsets, pa.int64()).buffers()[1]
    return pa.Array.from_buffers(pa.large_string(), rows, [None, places, pa.py_buffer(bytes(4 * rows))])


def batch(text: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(len(text)), pa.int64()), text], ["id", "text"])


@pytest.mark.parametrize(
    ("unsound", "rows", "key"),
    [(kind, 200, key) for kind in (viewed, descending) for key in ([], ["id"])]
    + [(viewed, 5, []), (viewed, 5, ["id"])],
)
@pytest.mark.parametrize("linger_ms", [0, 20])
def test_the_send_is_refused_and_its_neighbours_go_on(
    node: NodeProcess, unsound: Callable[[int], pa.Array], rows: int, linger_ms: int, key: list[str]
) -> None:
    wrong = batch(unsound(rows))
    topic = f"{unsound.__name__}-{rows}-{linger_ms}-{'-'.join(key)}"
    sound = batch(pa.array(["right", "too"], wrong.schema.field("text").type))
    with ringfence.connect(node.address) as client:
        client.create_topic(topic, schema=wrong.schema, key=key, partitions=3)
        other = client.producer(topic, linger_ms=linger_ms)
        producer = client.producer(topic, linger_ms=linger_ms)
        before = producer.send(sound)
        with pytest.raises(ringfence.BatchError):
            producer.send(wrong).result(60)
        after = producer.send(sound), other.send(sound)
        for future in (before, *after):
            assert sum(part.rows for part in future.result(60)) == 2
        other.close()
        producer.close()
        assert producer.bytes_in_flight == 0
        assert client.count(topic) == 6
