"""A stream query as Spark runs it, without Spark: over a fake node whose topic is split and merged."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ringfence.spark.source import RingfenceSource
from ringfence.spark.stream_read import StreamReader
from tests.fakes.lineage_node import LineageNode

STRUCT = StructType([StructField("id", LongType(), nullable=False), StructField("text", StringType())])


class Query:
    """A stream as Spark runs it: offsets are logged, a planned batch may be run again by a new process."""

    def __init__(self, node: LineageNode, **options: str) -> None:
        self.options = {"address": node.address, "topic": "t", **options}
        self.reader = self.make()
        self.log = [json.dumps(self.reader.initialOffset())]
        self.batches: list[list[tuple[int, int]]] = []  # (partition, id)

    def make(self) -> StreamReader:
        reader = RingfenceSource(self.options).streamReader(STRUCT)
        assert isinstance(reader, StreamReader)
        return reader

    def restart(self) -> None:
        self.reader.stop()
        self.reader = self.make()

    def plan(self, limit: Any = None) -> str:
        start = json.loads(self.log[-1])
        return json.dumps(self.reader.latestOffset(start, limit or ReadAllAvailable()))

    def run(self, end: str) -> list[tuple[int, int]]:
        found = []
        for part in self.reader.partitions(json.loads(self.log[-1]), json.loads(end)):
            for batch in self.reader.read(part):
                found += [(part.span.partition, one) for one in batch.column("id").to_pylist()]
        return found

    def batch(self, limit: Any = None) -> bool:
        """One micro-batch, if Spark would run one."""
        end = self.plan(limit)
        if end == self.log[-1]:
            return False
        self.batches.append(self.run(end))
        self.log.append(end)
        return True

    def drain(self, limit: Any = None) -> None:
        for _ in range(200):
            if not self.batch(limit):
                return
        raise AssertionError("the stream does not end")

    @property
    def ids(self) -> list[int]:
        return [one for batch in self.batches for _, one in batch]
