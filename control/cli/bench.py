"""`ringfence bench`: measure write and read rates of a running node.

`python -m benchmarks` has the full benchmarks.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa

from ringfence.control.cli.connection import open_client
from ringfence.control.cli.embedded import embedded_node
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, format_bytes, json_option, progress, show_table

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ringfence import Client

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
    ]
)
# Batches made before the measurement and sent in turn.
DISTINCT_BATCHES = 4


@click.command()
@click.option(
    "--address", envvar="RINGFENCE_ADDRESS", help="Address of a running node. [default: a temporary node]"
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    show_default=True,
    help="Duration of the writes.",
)
@click.option(
    "--rows", type=click.IntRange(1, 1 << 20), default=50_000, show_default=True, help="Rows per send."
)
@click.option(
    "--partitions", type=click.IntRange(1, 4_096), default=8, show_default=True, help="Number of partitions."
)
@click.option(
    "--window",
    type=click.IntRange(1, 4_096),
    default=32,
    show_default=True,
    help="Maximum number of pending sends.",
)
@json_option
def command(
    *, address: str | None, seconds: float, rows: int, partitions: int, window: int, as_json: bool
) -> int:
    """Send rows for some seconds, read them back, and show rates and acknowledgement latencies.

    Creates a topic and deletes it at the end. The figures include the cost of this process, which creates,
    routes and encodes the rows.

    \b
    Example:
      ringfence bench --seconds 5 --rows 1000
    """  # noqa: D301
    topic = f"bench-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        address = address or stack.enter_context(embedded_node())
        client = stack.enter_context(open_client(address))
        client.create_topic(topic, schema=SCHEMA, key=["id"], partitions=partitions)
        stack.callback(client.delete_topic, topic, missing_ok=True)
        write = _write(client, topic, seconds, rows, window, quiet=as_json)
        read = _read(client, topic)
    if read["rows"] != write["rows"]:
        raise AssertionError(f"{write['rows']} rows were acknowledged, {read['rows']} read")
    if as_json:
        emit({"step": "write", **write})
        emit({"step": "read", **read})
    else:
        _show(write, read)
    return Exit.OK


def _write(
    client: Client, topic: str, seconds: float, rows: int, window: int, *, quiet: bool
) -> dict[str, Any]:
    batches = _batches(rows)
    latencies_ms: list[float] = []
    pending: deque[tuple[Future[Any], float]] = deque()

    def take() -> None:
        future, began = pending.popleft()
        future.result()
        latencies_ms.append((time.perf_counter() - began) * 1e3)

    sends = 0
    size = batches[0].nbytes
    began = time.perf_counter()
    with client.producer(topic) as producer, progress("writing", quiet=quiet) as bar:
        while time.perf_counter() - began < seconds:
            batch = batches[sends % len(batches)]
            pending.append((producer.send(batch), time.perf_counter()))
            sends += 1
            bar.advance(rows=rows, size=size)
            while len(pending) >= window:
                take()
        while pending:
            take()
        elapsed = time.perf_counter() - began
    return {
        "rows": sends * rows,
        "bytes": sends * size,
        "seconds": round(elapsed, 3),
        "rows_per_s": round(sends * rows / elapsed),
        "bytes_per_s": round(sends * size / elapsed),
        "ack_p50_ms": round(float(np.percentile(latencies_ms, 50)), 3),
        "ack_p99_ms": round(float(np.percentile(latencies_ms, 99)), 3),
    }


def _read(client: Client, topic: str) -> dict[str, Any]:
    began = time.perf_counter()
    rows = size = 0
    for batch in client.read(topic):
        rows += batch.num_rows
        size += batch.nbytes
    elapsed = time.perf_counter() - began
    return {
        "rows": rows,
        "bytes": size,
        "seconds": round(elapsed, 3),
        "rows_per_s": round(rows / elapsed),
        "bytes_per_s": round(size / elapsed),
    }


def _batches(rows: int) -> list[pa.RecordBatch]:
    generator = np.random.default_rng(1)
    batches = []
    for place in range(DISTINCT_BATCHES):
        ids = np.arange(place * rows, (place + 1) * rows, dtype=np.int64)
        text = pa.array([f"row {number % 1000}" for number in range(rows)])
        batches.append(
            pa.record_batch([pa.array(ids), pa.array(generator.random(rows)), text], schema=SCHEMA)
        )
    return batches


def _show(write: dict[str, Any], read: dict[str, Any]) -> None:
    rows = [
        [
            step,
            f"{values['rows']:,}",
            format_bytes(values["bytes"]),
            f"{values['rows_per_s']:,}",
            f"{format_bytes(values['bytes_per_s'])}/s",
            values.get("ack_p50_ms"),
            values.get("ack_p99_ms"),
        ]
        for step, values in (("write, on disk", write), ("read", read))
    ]
    show_table("", ("", "rows", "bytes", "rows/s", "rate", "p50 ms", "p99 ms"), rows)
