"""The ways that are compared: each function does one of them once, with the rows of one Parquet file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import ringfence
import ringfence.spark

KEY = "l_orderkey"
PARTITIONS = 8
Batches = Iterator[pa.RecordBatch]
COUNTED = "rows bigint"


@dataclass
class Bench:
    """A session, a node and the rows. `made`: topics so far; each write gets a topic of its own."""

    spark: SparkSession
    address: str
    source: Path
    rows: int
    folder: Path
    made: list[str] = field(default_factory=list)

    @property
    def frame(self) -> DataFrame:
        """Read anew by every way, so that reading the file costs all of them the same."""
        return self.spark.read.parquet(os.fspath(self.source))

    def topic(self) -> str:
        """An empty topic; those before it are deleted, so that none measures a full disk."""
        schema = ringfence.spark.arrow_schema(self.frame.schema)
        name = f"rows-{len(self.made)}"
        with ringfence.connect(self.address) as client:
            for old in self.made[-1:]:
                client.delete_topic(old, missing_ok=True)
            client.create_topic(name, schema=schema, key=[KEY], partitions=PARTITIONS)
        self.made.append(name)
        return name

    def check(self, topic: str) -> None:
        """All rows can be read now: the clock stops behind this."""
        with ringfence.connect(self.address) as client:
            found = client.count(topic)
        assert found == self.rows, f"{found} rows of {self.rows} can be read in {topic}"


def nothing(bench: Bench) -> None:
    """Through Python and away: what any sink in Python costs at least."""

    def count(batches: Batches) -> Batches:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    total = bench.frame.mapInArrow(count, COUNTED).agg({"rows": "sum"}).head()
    assert total is not None
    assert total[0] == bench.rows


def sink(bench: Bench, topic: str) -> None:
    """The data source, exactly once."""
    writer = bench.frame.write.format("ringfence").option("address", bench.address)
    writer.mode("append").save(topic)
    bench.check(topic)


def staged(bench: Bench, topic: str) -> None:
    """`ringfence.spark.write`, exactly once."""
    ringfence.spark.write(bench.frame, address=bench.address, topic=topic)
    bench.check(topic)


def repartitioned(bench: Bench, topic: str) -> None:
    """The same, shuffled so that a task writes one partition."""
    ringfence.spark.write(bench.frame, address=bench.address, topic=topic, repartition=True)
    bench.check(topic)


def at_least_once(bench: Bench, topic: str) -> None:
    """An unnamed producer a task and no commit: a task that is run again doubles its rows."""
    address = bench.address

    def send(batches: Batches) -> Batches:
        rows = 0
        with ringfence.connect(address) as client, client.producer(topic) as producer:
            for batch in batches:
                producer.send(batch)
                rows += batch.num_rows
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    bench.frame.mapInArrow(send, COUNTED).agg({"rows": "sum"}).head()
    bench.check(topic)


def to_parquet(bench: Bench) -> None:
    """Spark's own sink, no Python."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as out:
        bench.frame.write.option("compression", "none").parquet(f"{out}/rows")


def to_parquet_by_python(bench: Bench) -> None:
    """Spark's own sink behind a `mapInArrow` that changes nothing."""

    def same(batches: Batches) -> Batches:
        yield from batches

    with tempfile.TemporaryDirectory(dir=bench.folder) as out:
        frame = bench.frame.mapInArrow(same, bench.frame.schema)
        frame.write.option("compression", "none").parquet(f"{out}/rows")


def read(bench: Bench, topic: str) -> None:
    """The data source into nothing, as many tasks as the Parquet files have row groups."""
    source = bench.spark.read.format("ringfence").option("address", bench.address)
    source.option("rowsPerTask", 250_000).load(topic).write.format("noop").mode("overwrite").save()


def read_parquet_by_python(bench: Bench) -> None:
    """Python workers read the same rows from uncompressed Parquet by pyarrow, and hand them to Spark."""
    path, schema = os.fspath(plain(bench)), bench.frame.schema
    groups = pq.ParquetFile(path).num_row_groups

    def load(batches: Batches) -> Batches:
        file = pq.ParquetFile(path)
        for batch in batches:
            for group in batch.column(0).to_pylist():
                yield from file.iter_batches(65_536, row_groups=[group])

    frame = bench.spark.range(0, groups, numPartitions=groups).mapInArrow(load, schema)
    frame.write.format("noop").mode("overwrite").save()


def plain(bench: Bench) -> Path:
    """The rows uncompressed, in row groups of 250,000."""
    path = bench.folder / "plain.parquet"
    if not path.exists():
        table = pq.read_table(bench.source)
        texts = [(f.name, pa.string() if pa.types.is_string_view(f.type) else f.type) for f in table.schema]
        pq.write_table(table.cast(pa.schema(texts)), path, compression="none", row_group_size=250_000)
    return path


WRITES: dict[str, Callable[[Bench, str], None]] = {
    "sink": sink,
    "staged": staged,
    "repartitioned": repartitioned,
    "at_least_once": at_least_once,
}
OTHERS: dict[str, Callable[[Bench], None]] = {
    "nothing": nothing,
    "to_parquet": to_parquet,
    "to_parquet_by_python": to_parquet_by_python,
    "read_parquet_by_python": read_parquet_by_python,
}
