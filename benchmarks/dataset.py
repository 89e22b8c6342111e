"""Tables to send, and files of publish bodies made of them. Made once, then kept in the work directory.

Types are utf8, decimal128 and date32: pyarrow reads TPC-H strings as `string_view`, whose slices drag their
whole buffers along (1,000 rows became 3.6 MB), and peers do not all store views.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.paths import work_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.workload import Workload

ENTRY = struct.Struct("<QQ")  # rows, bytes; core of the format that native/src/bodies.rs reads


def _tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed; `pip install {name}` puts it beside python")
    return found


def _normal(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_string_view(kind) or pa.types.is_large_string(kind) else kind


def lineitem(scale: float) -> pa.Table:
    """TPC-H lineitem; at scale 0.1: 600,572 rows, 16 columns, about 100 MB."""
    path = work_directory() / f"lineitem-{scale}" / "lineitem.parquet"
    if not path.exists():
        part = path.parent.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        command = [_tool("tpchgen-cli"), "parquet", "-s", str(scale), "--tables", "lineitem", "--output-dir"]
        subprocess.run([*command, str(part)], check=True, stdout=subprocess.DEVNULL, timeout=600)
        shutil.rmtree(path.parent, ignore_errors=True)
        part.rename(path.parent)
    table = pq.read_table(path)
    schema = pa.schema([pa.field(field.name, _normal(field.type)) for field in table.schema])
    return table.cast(schema)


def two_columns(rows: int) -> pa.Table:
    """`id` int64 and `value` int64: the smallest row that says anything."""
    ids = pa.array(range(rows), pa.int64())
    return pa.table({"id": ids, "value": ids})


def table_of(workload: Workload) -> pa.Table:
    if workload.table == "lineitem":
        return lineitem(workload.scale)
    return two_columns(workload.batch_rows * workload.distinct_batches)


def batches_of(workload: Workload) -> list[pa.RecordBatch]:
    """`distinct_batches` batches of exactly `batch_rows` rows. ValueError when the table is too short."""
    table = table_of(workload)
    wanted = workload.batch_rows * workload.distinct_batches
    if table.num_rows < wanted:
        raise ValueError(f"workload {workload.name} wants {wanted} rows of {table.num_rows}; raise its scale")
    whole = table.slice(0, wanted).combine_chunks().to_batches()[0]
    starts = range(0, wanted, workload.batch_rows)
    return [whole.slice(start, workload.batch_rows) for start in starts]


def schema_of(workload: Workload) -> pa.Schema:
    return batches_of(workload)[0].schema


def _messages(batches: list[pa.RecordBatch]) -> Iterator[tuple[int, memoryview]]:
    for batch in batches:
        yield batch.num_rows, memoryview(batch.serialize())


def bodies_file(workload: Workload) -> Path:
    """The file of publish bodies of a workload: one Arrow IPC record batch message each."""
    name = f"{workload.table}-{workload.scale}-{workload.batch_rows}x{workload.distinct_batches}.bodies"
    path = work_directory() / name
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            for rows, message in _messages(batches_of(workload)):
                file.write(ENTRY.pack(rows, len(message)))
                file.write(message)
        part.rename(path)
    return path
