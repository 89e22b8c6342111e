"""What a batch costs at the producer: slots, grouping, gathering, headers. Beside pyarrow and numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.dataset import batches_of
from benchmarks.workload import load_all
from ringfence.native import frame, group, slots, wire
from ringfence.native._node import Encoder

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

ROWS = 1 << 20
PARTITIONS = 8
RANDOM = np.random.default_rng(7)
PARTITION_OF_SLOT = (np.arange(wire.SLOT_COUNT) * PARTITIONS // wire.SLOT_COUNT).astype(np.uint16)


def keys(kind: str) -> pa.RecordBatch:
    if kind == "int64":
        return pa.record_batch({"key": pa.array(RANDOM.integers(0, 1 << 62, ROWS))})
    data = pa.py_buffer(RANDOM.integers(97, 122, ROWS * 16, dtype=np.uint8).tobytes())
    offsets = pa.py_buffer((np.arange(ROWS + 1) * 16).astype(np.int32).tobytes())
    return pa.record_batch({"key": pa.StringArray.from_buffers(ROWS, offsets, data)})


@pytest.mark.parametrize("kind", ["int64", "16-byte strings"])
def test_slots(benchmark: BenchmarkFixture, kind: str) -> None:
    batch = keys(kind)
    found = benchmark(slots.slots, batch, ["key"])
    assert found.shape == (ROWS,)
    if benchmark.stats is not None:  # None with --benchmark-disable
        benchmark.extra_info["keys_per_s"] = round(ROWS / benchmark.stats.stats.min)


def test_group_rows_by_partition(benchmark: BenchmarkFixture) -> None:
    of_row = RANDOM.integers(0, wire.SLOT_COUNT, ROWS, dtype=np.uint16)
    order, bounds = benchmark(group.rows_by_partition, of_row, PARTITION_OF_SLOT, PARTITIONS)
    assert (len(order), int(bounds[-1])) == (ROWS, ROWS)


def test_group_rows_by_partition_with_numpy(benchmark: BenchmarkFixture) -> None:
    of_row = RANDOM.integers(0, wire.SLOT_COUNT, ROWS, dtype=np.uint16)
    order = benchmark(lambda: np.argsort(PARTITION_OF_SLOT[of_row], kind="stable"))
    assert len(order) == ROWS


def test_pack_a_header(benchmark: BenchmarkFixture) -> None:
    header = bytearray(wire.HEADER_BYTES)
    benchmark(frame.pack_request, header, 0, wire.Opcode.PUBLISH, 7, topic=1, partition=2, sequence=3, rows=4)
    assert frame.open_request(header).sequence == 3


@pytest.fixture(scope="module")
def lineitem() -> tuple[pa.RecordBatch, Any, Any]:
    """A batch of 8 MiB, and its rows grouped by partition."""
    batch = batches_of(load_all()["lineitem_8mib"])[0]
    order, bounds = group.rows_by_partition(slots.slots(batch, ["l_orderkey"]), PARTITION_OF_SLOT, PARTITIONS)
    return batch, order, bounds


def test_gather_rows_into_bodies(
    benchmark: BenchmarkFixture, lineitem: tuple[pa.RecordBatch, Any, Any]
) -> None:
    batch, order, bounds = lineitem
    encoder = Encoder(batch.schema.serialize().to_pybytes())
    bodies = benchmark(encoder.gather, batch, order, bounds)
    read = (pa.ipc.read_record_batch(pa.py_buffer(body), batch.schema) for body, _ in bodies)
    assert sum(part.num_rows for part in read) == len(order)


def test_gather_rows_with_pyarrow(
    benchmark: BenchmarkFixture, lineitem: tuple[pa.RecordBatch, Any, Any]
) -> None:
    """The bare gather that the first is compared with, and the encoding which it includes."""
    batch, order, bounds = lineitem

    def gather() -> list[Any]:
        parts = (order[bounds[at] : bounds[at + 1]] for at in range(PARTITIONS))
        return [batch.take(pa.array(part)).serialize() for part in parts]

    assert len(benchmark(gather)) == PARTITIONS


def test_whole_batch_without_a_gather(
    benchmark: BenchmarkFixture, lineitem: tuple[pa.RecordBatch, Any, Any]
) -> None:
    batch = lineitem[0]
    encoder = Encoder(batch.schema.serialize().to_pybytes())
    body, _ = benchmark(encoder.whole, batch, 0, None)
    assert pa.ipc.read_record_batch(pa.py_buffer(body), batch.schema).equals(batch)
