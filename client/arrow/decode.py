"""Decode fetched records as record batches. Columns are views into the received frame.

Compressed columns, and all columns of a schema with dictionaries, are decoded into memory of their own. A
record that is not aligned is copied first: ZeroMQ receives small frames one behind another, at any address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ringfence.common.codec import column_names
from ringfence.native import wire
from ringfence.native._node import RecordReader
from ringfence.native.errors import InvalidArgumentError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

_UNPACK = wire.RECORD_STRUCT.unpack
_MAKE = wire.RecordHeader._make
# Who takes over columns may read numbers of this size in place; no type of Arrow needs more.
ALIGNED_BYTES = 8
WITH_ROWS = frozenset({wire.RecordKind.ROWS, wire.RecordKind.PUBLISH})


class Place(NamedTuple):
    """Place of a batch: `rows` rows from `first_offset` on, appended under `epoch` at `time_ms`."""

    partition: int
    first_offset: int
    rows: int
    epoch: int
    time_ms: int


def has_dictionary(schema: pa.Schema) -> bool:
    """Whether a column, at any depth, is dictionary-encoded: a body then begins with dictionary messages."""
    return any(_has_dictionary(field.type) for field in schema)


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(index).type) for index in range(kind.num_fields))


def read_body(
    schema_message: pa.Buffer, schema: pa.Schema, message: Buffer, *, is_stream: bool
) -> pa.RecordBatch:
    """A body's Arrow message as rows of its schema; `is_stream`: `has_dictionary(schema)`.

    Raises:
        pa.ArrowException, OSError, EOFError, StopIteration: the bytes are not a batch of the schema.
    """
    if is_stream:
        # pyarrow reads dictionaries only from streams, so the body is appended to the schema message.
        stream = pa.BufferReader(b"".join([schema_message, message]))
        return pa.ipc.open_stream(stream).read_next_batch()
    buffer = pa.py_buffer(message)
    if buffer.address % ALIGNED_BYTES:
        buffer = pa.py_buffer(bytes(message))
    return pa.ipc.read_record_batch(pa.ipc.read_message(buffer), schema)


class Decoder:
    """Decodes bodies of all schemas of a topic to one `schema`: the newest one when the decoder was created.

    Columns that the schema of a batch lacks are null; additional columns are left out.
    """

    def __init__(self, topic: str, schemas: Sequence[bytes], columns: str | Sequence[str] | None) -> None:
        """Raises InvalidArgumentError for a column that the topic lacks."""
        self._topic = topic
        self._messages = [pa.py_buffer(message) for message in schemas]
        self._schemas = [pa.ipc.read_schema(message) for message in self._messages]
        newest: pa.Schema = self._schemas[-1]
        columns = None if columns is None else column_names("columns", columns)
        missing = [name for name in columns or () if name not in newest.names]
        if missing:
            raise InvalidArgumentError(
                "the topic has no such column", topic=topic, columns=missing, known=newest.names
            )
        self.schema: pa.Schema = (
            newest
            if columns is None
            else pa.schema([newest.field(name) for name in columns], metadata=newest.metadata)
        )
        self._streams = [has_dictionary(schema) for schema in self._schemas]

    def knows(self, schema_id: int) -> bool:
        """Whether the decoder has this schema."""
        return schema_id < len(self._schemas)

    def learn(self, schemas: Sequence[bytes]) -> None:
        """Add newer schemas of the topic.

        `schema` stays, so that all batches of a reader have equal columns.
        """
        for message in schemas[len(self._schemas) :]:
            self._messages.append(pa.py_buffer(message))
            self._schemas.append(pa.ipc.read_schema(self._messages[-1]))
            self._streams.append(has_dictionary(self._schemas[-1]))

    def records(self, body: memoryview) -> Iterator[tuple[wire.RecordHeader, memoryview]]:
        """(header, message) of each record with rows in a FETCH body: Arrow data, or a publish list.

        Raises RecordError on damage.
        """
        for header, start, length in RecordReader(body):
            record = _MAKE(_UNPACK(header))
            if record.kind in WITH_ROWS:
                yield record, body[start + record.extension_bytes : start + length]

    def batch(self, record: wire.RecordHeader, message: memoryview, offset: int) -> pa.RecordBatch:
        """The rows of one record in the columns of `schema`; the first row has the given `offset`.

        Raises:
            ProtocolError: the bytes are not a batch of the record's schema. `offset` and `rows` name the rows
                that cannot be read; a read can continue at `next_offset`.
        """
        schema = self._schemas[record.schema_id]
        try:
            batch = read_body(
                self._messages[record.schema_id], schema, message, is_stream=self._streams[record.schema_id]
            )
        # pyarrow raises any of these for invalid bytes; EOFError for a message that ends early.
        except (pa.ArrowException, OSError, EOFError, StopIteration) as error:
            after = offset + record.rows
            raise ProtocolError(
                f"rows {offset} to {after - 1} are stored as a batch that cannot be decoded ({error}); "
                f"continue after them with partition={record.partition}, start={after}; if several "
                f"partitions are read, from its `positions()`, but partition {record.partition} at {after}",
                topic=self._topic,
                partition=record.partition,
                offset=offset,
                rows=record.rows,
                next_offset=after,
            ) from error
        return batch if schema is self.schema else self._fitted(batch)

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        columns = [
            batch.column(names.index(field.name))
            if field.name in names
            else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        if not columns:
            return batch.select([])
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
