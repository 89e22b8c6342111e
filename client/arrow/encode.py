"""Encode record batches as publish bodies: hash rows, group them by partition, gather each group."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ringfence.arrow import array_checks
from ringfence.arrow.batches import ROWS_MAX
from ringfence.arrow.casts import exact_columns, in_exact_types
from ringfence.arrow.decode import has_dictionary, read_body
from ringfence.arrow.keys import in_types_of
from ringfence.arrow.pandas_frames import other_case
from ringfence.arrow.partition_choice import PartitionChoice
from ringfence.common.routing import WeightedRoundRobin
from ringfence.native import wire
from ringfence.native._node import Encoder
from ringfence.native.errors import BatchError, InvalidArgumentError, RingfenceError, SchemaError
from ringfence.native.group import rows_by_partition
from ringfence.native.slots import slots

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ringfence.common.routing import Layout

EXTENSION_ITEM = struct.Struct("<HHI")  # kind, zero, length
# Encoded before the budget is taken: each thread can exceed the limit by one such send.
FEW_ROWS = 16


class Body(NamedTuple):
    """The message for one partition: Arrow data, after an optional note."""

    partition: int
    data: bytearray
    crc: int
    rows: int
    schema_id: int
    extension_bytes: int
    # Row numbers in the batch, if requested; None: not requested, or all rows.
    order: NDArray[np.uint32] | None


def checked_note(note: Any) -> bytes | None:
    """The note as bytes.

    Raises:
        InvalidArgumentError: the note is not bytes, or above `note_bytes_max`.
    """
    if note is None:
        return None
    if not isinstance(note, bytes | bytearray | memoryview):
        raise InvalidArgumentError("a note must be bytes; encode text before", note=type(note).__name__)
    held = bytes(note)
    if len(held) > wire.NOTE_BYTES_MAX:
        raise InvalidArgumentError(
            "a note is above the limit; it is meant for a position in a source",
            bytes=len(held),
            note_bytes_max=wire.NOTE_BYTES_MAX,
        )
    return held


def note_extension(note: bytes | None) -> bytes:
    """The extension that carries a checked note; empty without one."""
    if note is None:
        return b""
    item = EXTENSION_ITEM.pack(wire.ExtensionKind.NOTE, 0, len(note)) + note
    return item + bytes(-len(item) % wire.BODY_ALIGN_BYTES)


class TopicEncoder:
    """Encodes bodies for one layout of a topic. Thread-safe: the kernels have no state."""

    def __init__(
        self,
        layout: Layout,
        *,
        split: bool,
        choice: PartitionChoice | None = None,
        slot_of_send: Callable[[int], int] | None = None,
    ) -> None:
        """`split`: divide a body above the limit; False: refuse it, since a send must have one body each.

        `choice`: the partitions that a topic without a key avoids. `slot_of_send`: by the number of a send,
        of a named producer in such a topic; it chooses the partition.
        """
        self.layout, self._slot_of_send = layout, slot_of_send
        self._message = pa.py_buffer(layout.schemas[layout.schema_id])
        self.schema: pa.Schema = pa.ipc.read_schema(self._message)
        self._is_stream = has_dictionary(self.schema)
        self._encoder = Encoder(layout.schemas[layout.schema_id])
        self._chooser = WeightedRoundRobin(layout)
        self.split, self._choice = split, choice or PartitionChoice()
        self._partitions = [entry.partition for entry in layout.active]
        self._key = list(layout.key)
        self._exact = exact_columns(self.schema)

    def room_for(self, rows: int, size: int, note: bytes | None) -> int:
        """Upper estimate of the bytes of the bodies for `rows` rows of `size` bytes."""
        bodies = min(rows, len(self._partitions)) if self._key else 1
        # Per body: message and extension; per column: three buffers padded to 64 bytes, with their offsets.
        return size + bodies * (512 + 256 * len(self.schema) + len(note or b""))

    def bodies(
        self,
        batch: pa.RecordBatch,
        note: bytes | None = None,
        *,
        bytes_max: int = wire.MESSAGE_BYTES_MAX,
        keep_order: bool = False,
        extension: bytes | None = None,
        begin: int = 0,
        number: int = 0,
    ) -> list[Body]:
        """One body for each partition with rows; several only above a limit of messages.

        Args:
            batch: rows in the topic's columns, matched by name.
            note: stored with every body.
            bytes_max: the node's limit of a message.
            keep_order: set `Body.order`.
            extension: of each message, instead of the note's extension.
            begin: number of rows of the same send before these, for the text of an error.
            number: of the send, if it chooses the partition.

        Raises:
            BatchError: the columns do not match (SchemaError), or a single row is too large.
        """
        extension = note_extension(note) if extension is None else extension
        sizes = _Sizes(bytes_max, begin)
        try:
            if self._exact:
                batch = in_exact_types(self.schema, batch, self._exact)
            if not self._key:
                return self._whole(batch, extension, sizes, self._chosen(number))
            if len(self._partitions) == 1 and not keep_order:
                # With one partition no hashing is needed; the owner checks the slots anyway.
                return self._whole(batch, extension, sizes, self._partitions[0])
            return self._gather(batch, extension, sizes, keep_order=keep_order)
        except SchemaError as error:
            raise self._with_case(error) from error.__cause__
        except RingfenceError:
            raise
        except BaseException as error:
            raise _invalid(error, batch, self.layout.name) from error

    def _chosen(self, number: int) -> int | None:
        if self._slot_of_send is None:
            return None
        index = int(self.layout.index_of_slot[self._slot_of_send(number)])
        return self._partitions[index]

    def owned(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A copy of the rows in the topic's types, so that the caller may change its buffers.

        Refuses all rows that `bodies` refuses, except for their size.

        Raises:
            BatchError: as for `bodies`.
        """
        try:
            if self._exact:
                batch = in_exact_types(self.schema, batch, self._exact)
            message, _ = self._encoder.whole(batch, 0, batch.num_rows, b"")
            return read_body(self._message, self.schema, message, is_stream=self._is_stream)
        except SchemaError as error:
            raise self._with_case(error) from error.__cause__
        except RingfenceError:
            raise
        except BaseException as error:
            raise _invalid(error, batch, self.layout.name) from error

    def _with_case(self, error: SchemaError) -> SchemaError:
        """The error, with a hint at a column whose name differs only in upper and lower case."""
        column = error.details.get("column")
        hint = other_case(column, self.schema.names) if isinstance(column, str) else ""
        if not hint or column in self.schema.names:
            return error
        return SchemaError(error.message + hint, topic=error.topic, code=error.code, **error.details)

    def check(self, schema: pa.Schema) -> None:
        """Check whether rows of this schema can be sent, before there are any rows.

        Raises:
            SchemaError: a column is missing, unknown, or has another type; it names both types.
        """
        nothing = pa.RecordBatch.from_pylist([], schema=schema)
        if self._exact:
            nothing = in_exact_types(self.schema, nothing, self._exact)
        try:
            self._encoder.whole(nothing, 0, 0, b"")
        except SchemaError as error:
            raise self._with_case(error) from error.__cause__

    def _gather(
        self, batch: pa.RecordBatch, extension: bytes, sizes: _Sizes, *, keep_order: bool, first: int = 0
    ) -> list[Body]:
        # `first`: row number of a half in the whole batch; `Body.order` counts from there.
        if batch.num_rows > ROWS_MAX:
            self._check_split(batch.num_rows, 0, sizes, first)
            return self._halves(batch, extension, sizes, keep_order=keep_order, first=first)
        hashed = slots(in_types_of(self.schema, batch, self._key), self._key)
        order, bounds = rows_by_partition(hashed, self.layout.index_of_slot, len(self._partitions))
        messages = self._encoder.gather(batch, order, bounds, extension)
        found: list[Body] = []
        schema_id, ends = self.layout.schema_id, bounds.tolist()
        for index, (message, crc) in enumerate(messages):
            start, end = ends[index], ends[index + 1]
            if start == end:
                continue
            if len(message) > sizes.bytes_max:  # rare: the rows are much larger than estimated
                self._check_split(end - start, len(message), sizes, first + int(order[start]))
                return self._halves(batch, extension, sizes, keep_order=keep_order, first=first)
            rows = order[start:end] + np.uint32(first) if keep_order else None
            body = Body(self._partitions[index], message, crc, end - start, schema_id, len(extension), rows)
            found.append(body)
        return found

    def _halves(
        self, batch: pa.RecordBatch, extension: bytes, sizes: _Sizes, *, keep_order: bool, first: int
    ) -> list[Body]:
        middle = batch.num_rows // 2
        return [
            body
            for begin, half in ((first, batch.slice(0, middle)), (first + middle, batch.slice(middle)))
            if half.num_rows
            for body in self._gather(half, extension, sizes, keep_order=keep_order, first=begin)
        ]

    def _whole(
        self,
        batch: pa.RecordBatch,
        extension: bytes,
        sizes: _Sizes,
        partition: int | None,
        first: int | None = None,
    ) -> list[Body]:
        # `first`: row number of a half in the whole batch; None: this is the whole batch.
        chosen = self._chooser.choose(self._choice.unavailable) if partition is None else partition
        message, crc = bytearray(), 0
        if batch.num_rows <= ROWS_MAX:
            message, crc = self._encoder.whole(batch, 0, batch.num_rows, extension)
        if not message or len(message) > sizes.bytes_max:
            begin = first or 0
            self._check_split(batch.num_rows, len(message), sizes, begin)
            middle = batch.num_rows // 2
            halves = (begin, batch.slice(0, middle)), (begin + middle, batch.slice(middle))
            return [body for at, half in halves for body in self._whole(half, extension, sizes, chosen, at)]
        rows = None if first is None else np.arange(first, first + batch.num_rows, dtype=np.uint32)
        return [Body(chosen, message, crc, batch.num_rows, self.layout.schema_id, len(extension), rows)]

    def _check_split(self, rows: int, size: int, sizes: _Sizes, first: int) -> None:
        """Raises BatchError for rows that must not be split; `first`: number of the first row."""
        if rows == 1:
            row = sizes.begin + first
            raise BatchError(
                f"row {row} (counted from 0) is above the limit of a message; leave it out, or make it "
                "smaller",
                topic=self.layout.name,
                row=row,
                bytes=size,
                bytes_max=sizes.bytes_max,
            )
        if not self.split:
            limits: dict[str, Any] = (
                {"rows": rows, "rows_max": ROWS_MAX}
                if rows > ROWS_MAX
                else {"bytes": size, "bytes_max": sizes.bytes_max}
            )
            raise BatchError(
                "the rows for one partition are above the limit of a message, and a named producer sends one "
                "message to each partition, so that its resume point is exact; send fewer rows in one call",
                topic=self.layout.name,
                **limits,
            )


class _Sizes(NamedTuple):
    """The limit of a message, and the number of rows of the same send before the batch."""

    bytes_max: int
    begin: int


def _invalid(error: BaseException, batch: pa.RecordBatch, topic: str) -> BaseException:
    """A BatchError if the rows caused the error; else the error itself.

    Invalid arrays may be noticed only when they are used: by pyarrow, or by a panic of the native encoder
    (which is not an `Exception`).
    """
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        found = array_checks.fault(batch, full=True, topic=topic)
        if found is not None:
            return found
        why = f"{type(error).__name__}: {error}"
        return BatchError(
            f"the rows cannot be encoded; check their offsets, views and lengths: {why}", topic=topic
        )
    return error
