"""End to end through a Spark stream: from a row's send to the moment when it can be read in another topic.

First the greatest rate (a full topic is copied by one run of the stream), then rows come at half of it while
the stream triggers every second, and a reader of its target notes how old each row is.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.query import StreamingQuery

import ringfence
from benchmarks.spark.jobs import Bench

ID = pa.field("id", pa.int64(), nullable=False)
SCHEMA = pa.schema([ID, pa.field("sent_ns", pa.int64()), pa.field("text", pa.string())])
TEXT = "x" * 120  # a row of about 140 bytes, as lineitem's
SENDS_A_SECOND = 20
SETTLE_S = 8.0  # Spark's first triggers start Python workers; they are no part of what is asked
PARTITIONS = 4


def batch(start: int, rows: int) -> pa.RecordBatch:
    ids = np.arange(start, start + rows, dtype=np.int64)
    sent = np.full(rows, time.time_ns(), np.int64)
    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array(sent), pa.repeat(TEXT, rows)], schema=SCHEMA)


def copying(bench: Bench, source: str, target: str, checkpoint: str, **trigger: Any) -> StreamingQuery:
    rows = bench.spark.readStream.format("ringfence").option("address", bench.address).load(source)
    sink = rows.writeStream.format("ringfence").option("address", bench.address).option("topic", target)
    return sink.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def measure(bench: Bench, rows: int, seconds: float) -> dict[str, float]:
    """Rates in rows/s, ages in seconds. `rows`: of the run that finds the greatest rate."""
    with ringfence.connect(bench.address) as client, tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        for name in ("fast-in", "fast-out", "paced-in", "paced-out"):
            client.delete_topic(name, missing_ok=True)
            client.create_topic(name, schema=SCHEMA, key=["id"], partitions=PARTITIONS)
        with client.producer("fast-in") as producer:
            for start in range(0, rows, 20_000):
                producer.send(batch(start, min(20_000, rows - start)))
        began = time.perf_counter()
        copying(bench, "fast-in", "fast-out", f"{folder}/fast", availableNow=True).awaitTermination()
        greatest = rows / (time.perf_counter() - began)
        assert client.count("fast-out") == rows
        query = copying(bench, "paced-in", "paced-out", f"{folder}/paced", processingTime="1 second")
        try:
            ages, sent = _paced(client, greatest / 2, seconds)
        finally:
            query.stop()
    ages_s = {f"age_p{part}_s": round(float(np.percentile(ages, part)), 3) for part in (50, 99, 100)}
    rate = round(sent / (seconds + SETTLE_S))
    return {"stream_rows_per_s_max": round(greatest), "rows_per_s": rate, "rows": len(ages), **ages_s}


def _paced(client: ringfence.Client, rate: float, seconds: float) -> tuple[Any, int]:
    """Ages of the rows that were sent behind the settling time, and how many were sent in all."""
    found: list[Any] = []
    reader = client.read("paced-out", follow=True, columns=["sent_ns"])

    def follow() -> None:
        with contextlib.suppress(ringfence.ClosedError):  # the client is closed when all is there
            for rows in reader:
                sent = rows.column(0).to_numpy()
                found.append(np.stack([sent, time.time_ns() - sent]))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    a_send = max(1, round(rate / SENDS_A_SECOND))
    sent = 0
    began = time.perf_counter()
    counted_from = time.time_ns() + int(SETTLE_S * 1e9)
    with client.producer("paced-in") as producer:
        while (now := time.perf_counter() - began) < seconds + SETTLE_S:
            producer.send(batch(sent, a_send))
            sent += a_send
            time.sleep(max(0.0, sent / a_send / SENDS_A_SECOND - now))
    end = time.monotonic() + 60
    while client.count("paced-out") < sent:
        assert time.monotonic() < end, "the stream does not come to the end of what was sent"
        time.sleep(0.2)
    time.sleep(1.0)  # what can be read is on its way to the reader
    client.close()
    thread.join(10)
    all_ages = np.concatenate(found, axis=1)
    return all_ages[1][all_ages[0] >= counted_from] / 1e9, sent
