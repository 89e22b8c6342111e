"""Spark reads a topic whose owner was chosen by force: a place among lost rows is used for no other rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import ringfence
from ringfence.native.errors import InvalidArgumentError, TruncatedError
from ringfence.spark.source import RingfenceSource
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import batch
from tests.system import test_force_owner as forced

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other

four = forced.four
IDS = StructType([StructField("id", LongType())])
LOST = "has another history now: the checkpoint has read row 199 of epoch"


def ids_in(folder: Path) -> list[int]:
    return sorted(pq.read_table(folder)["id"].to_pylist())


class Streams:
    """Streams out of a topic into Parquet files, each with a checkpoint beside its files."""

    def __init__(self, spark: SparkSession, topic: str, root: Path) -> None:
        self._spark, self._topic, self._root = spark, topic, root

    def run(self, name: str, address: str, **options: str) -> list[int]:
        """Read what there is; returns the ids of all rows that the stream has written so far."""
        source = self._spark.readStream.format("ringfence").option("address", address)
        sink = source.options(columns="id", **options).load(self._topic).writeStream.format("parquet")
        sink = sink.option("checkpointLocation", str(self._root / f"{name}-checkpoint"))
        query = sink.option("path", str(self._root / name)).trigger(availableNow=True).start()
        try:
            query.awaitTermination(120)
            assert not query.isActive, "the stream ends"
        finally:
            query.stop()
        return ids_in(self._root / name)

    def kept(self, name: str, part: int) -> tuple[int, int]:
        """Offset and epoch of the newest offset in a stream's checkpoint."""
        folder = self._root / f"{name}-checkpoint" / "offsets"
        newest = max(
            (path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name)
        )
        place = json.loads(newest.read_text().splitlines()[-1])["partitions"][str(part)]
        return place["offset"], place["epoch"]


def batch_reader(address: str, topic: str, **options: str) -> Any:
    source = RingfenceSource({"address": address, "topic": topic, "columns": "id", **options})
    return source.reader(source.schema())


def read(reader: Any) -> list[int]:
    parts = reader.partitions()
    return sorted(row["id"] for part in parts for rows in reader.read(part) for row in rows.to_pylist())


def test_a_stream_ends_where_its_rows_were_lost_and_goes_on_where_the_log_has_them(
    four: ThreeNodes, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of three replicas have rows 100 to 199 and are lost; the third one gets others in their place."""
    ids, asked = {four.id(place): place for place in range(4)}, forced.Asked(four, capsys)
    topic, part, left, second, spare = forced.level_replicas(four, asked)
    here, streams = ids[left], Streams(spark, topic, tmp_path)
    there = four.nodes[ids[second]].address
    assert streams.run("common", four.nodes[here].address) == list(range(100))
    four.nodes[here].kill()
    with ringfence.connect(there, timeout_s=60) as client:
        with client.producer(topic) as producer:
            producer.send(batch(100, 100))
        with client.read(topic) as reader:
            assert sum(rows.num_rows for rows in reader) == 200
            positions = reader.positions()
    assert streams.run("ahead", there) == list(range(200))
    assert streams.kept("ahead", part) == (200, positions[0].epoch)
    loaded = batch_reader(",".join(node.address for node in four.nodes), topic)
    for node in (four.id(3), second):
        four.nodes[ids[node]].kill()
    four.nodes[here].start()
    asked.force(part, here, left, spare, second)
    address = four.nodes[here].address
    with ringfence.connect(address, timeout_s=60) as client:
        with client.producer(topic) as producer:
            producer.send(batch(1_000, 300))
        with pytest.raises(TruncatedError):  # what a plain reader says
            list(client.read(topic, start=positions))

    mended = [*range(100), *range(1_000, 1_300)]
    for _ in range(2):
        with pytest.raises(PySparkException, match=LOST) as caught:
            streams.run("ahead", address)
        assert "TruncatedError" in str(caught.value)
        assert ids_in(tmp_path / "ahead") == list(range(200))
    assert streams.run("common", address) == mended
    assert streams.run("way-out", address, start=json.dumps({part: 100})) == mended[100:]

    with pytest.raises(TruncatedError, match="another history"):
        read(loaded)
    for kept in (json.dumps(positions), json.dumps({part: {"offset": 200, "epoch": positions[0].epoch}})):
        with pytest.raises(TruncatedError, match="another history now: the option start has read row 199"):
            read(batch_reader(address, topic, start=kept))
    assert len(read(batch_reader(address, topic, start=json.dumps({part: 200})))) == 200, "an offset is one"
    with pytest.raises(InvalidArgumentError, match="not in the log"):
        read(batch_reader(address, topic, start=json.dumps({part: 401})))
