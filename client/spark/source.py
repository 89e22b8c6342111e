"""Define the data source `ringfence`. START HERE. Spark finds it by the package `pyspark_ringfence`.

    spark.read.format("ringfence").option("address", A).option("topic", T).load()       batch_read.py
    spark.readStream.format("ringfence")...load()                                        stream_read.py
    df.write.format("ringfence").mode("append")...save()                                 batch_write.py
    df.writeStream.format("ringfence")...start()                                         stream_write.py

This module imports pyspark at its top: only Spark and tests import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource

from ringfence.arrow.decode import Decoder
from ringfence.client import connect
from ringfence.native.errors import InvalidArgumentError
from ringfence.spark.batch_read import BatchReader, FilteringReader
from ringfence.spark.batch_write import BatchWriter
from ringfence.spark.options import BATCH_READ, BATCH_WRITE, STREAM_READ, STREAM_WRITE, SourceOptions
from ringfence.spark.ranges import METADATA
from ringfence.spark.schema import spark_schema
from ringfence.spark.stream_read import StreamReader
from ringfence.spark.stream_write import StreamWriter

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.types import StructType

    from ringfence.cluster.offsets import Ends


class RingfenceSource(DataSource):
    """Topics as tables and streams."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = SourceOptions(options)
        self._ends: dict[int, Ends] | None = None

    @classmethod
    def name(cls) -> str:
        return "ringfence"

    def schema(self) -> StructType:
        """The topic's newest columns, or `columns`, and the metadata columns with the option `metadata`.

        Spark calls this once for each `load` and keeps this object. So the ends are fixed here: every scan of
        the DataFrame reads the same rows, also two scans of one query.

        Raises:
            NotFoundError: no such topic.
            InvalidArgumentError: no such column, or a column with the name of a metadata column.
            SchemaError: Spark has no type for a column.
        """
        options = self._options
        with connect(options.address, token_file=options.token_file) as client:
            info = client.topic(options.topic)
            if options.may_be(BATCH_READ):  # a stream fetches the ends itself, for each micro-batch
                self._ends = dict(client.end_offsets(options.topic))
        columns = options.names("columns")
        if len(set(columns)) < len(columns):
            raise InvalidArgumentError("columns: name each column once", given=columns)
        arrow = Decoder(info.name, info.schema_messages, columns or None).schema
        if options.flag("metadata", default=False):
            refuse_duplicates(info.name, arrow)
            arrow = pa.schema([*arrow, *METADATA])
        return spark_schema(arrow)

    def reader(self, schema: StructType) -> BatchReader:
        self._options.check_use(BATCH_READ)
        filters = self._options.flag("filters", default=False)
        return (FilteringReader if filters else BatchReader)(self._options, schema, self._ends)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        self._options.check_use(STREAM_READ)
        return StreamReader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's signature
        """Raises InvalidArgumentError for mode overwrite."""
        refuse_overwrite(overwrite=overwrite)
        self._options.check_use(BATCH_WRITE)
        return BatchWriter(self._options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001, N802
        """Raises InvalidArgumentError for output mode complete, which overwrites."""
        refuse_overwrite(overwrite=overwrite)
        self._options.check_use(STREAM_WRITE)
        return StreamWriter(self._options, schema)


def refuse_duplicates(topic: str, schema: pa.Schema) -> None:
    """Raises InvalidArgumentError for columns of the topic that have the name of a metadata column."""
    duplicates = [name for name in METADATA.names if name in schema.names]
    if duplicates:
        raise InvalidArgumentError(
            "the topic has columns with names of metadata columns; read it without metadata, or leave the "
            "columns out with the option columns",
            topic=topic,
            columns=duplicates,
        )


def refuse_overwrite(*, overwrite: bool) -> None:
    """Raises InvalidArgumentError for writes that overwrite: rows can only be appended to a topic."""
    if overwrite:
        raise InvalidArgumentError(
            'rows can only be appended to a topic; use mode "append" (streams: output mode append or '
            "update). To start from scratch, truncate or delete the topic first"
        )
