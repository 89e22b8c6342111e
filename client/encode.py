"""Rows in, publish bodies out.

Whatever speaks Arrow is hashed, grouped and gathered in one pass per partition.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from ringfence import sound
from ringfence.frames import from_pandas
from ringfence.keys import in_types_of
from ringfence.native import wire
from ringfence.native._node import Encoder
from ringfence.native.errors import BatchError, InvalidArgumentError, RingfenceError, SchemaError
from ringfence.native.group import rows_by_partition
from ringfence.native.slots import slots
from ringfence.nested import exact_columns, in_exact_types
from ringfence.reach import Reach
from ringfence.routing import Chooser

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ringfence.routing import Layout

EXTENSION_ITEM = struct.Struct("<HHI")  # kind, zero, length
# Half of the largest message: what is estimated to be this big stays below the limit even if the estimate is
# off by two.
CHUNK_BYTES_MAX = wire.MESSAGE_BYTES_MAX // 2
# Below it all that a batch refers to is counted, also where a slice uses less: the exact count takes 17 us
# instead of 0.7, as long as the encoding of one row.
SMALL_BYTES_MAX = 4096
FEW_ROWS = 16  # encoded before there is room for them: what a thread holds beyond the limit is one such send


class Body(NamedTuple):
    """What one partition gets: an Arrow message, perhaps with the note in front."""

    partition: int
    data: bytearray
    crc: int
    rows: int
    schema_id: int
    extension_bytes: int
    order: (
        NDArray[np.uint32] | None
    )  # which rows of the batch, where somebody must know; None = not kept, or all


def record_batches(data: Any, schema: pa.Schema) -> list[pa.RecordBatch]:
    """`data` as record batches with at least one row each, without a copy where it is Arrow already.

    Args:
        data: a pyarrow RecordBatch or Table, anything with `__arrow_c_array__` or `__arrow_c_stream__`
            (polars, duckdb, nanoarrow, ...), or a pandas DataFrame. A stream is read to its end.
        schema: of the topic; pandas columns are converted to it.

    Raises:
        InvalidArgumentError: it is none of these.
        BatchError: it cannot be read as rows.
    """
    try:
        if isinstance(data, pa.RecordBatch):
            return _sound([data])
        if type(data).__module__.partition(".")[0] == "pandas":
            batches = from_pandas(data, schema).to_batches()
        elif isinstance(data, pa.Table):
            batches = data.to_batches()
        elif hasattr(data, "__arrow_c_array__"):
            batches = [pa.record_batch(data)]
        elif hasattr(data, "__arrow_c_stream__"):
            batches = list(pa.RecordBatchReader.from_stream(data))
        else:
            raise InvalidArgumentError(
                f"a {type(data).__name__} has neither __arrow_c_array__ nor __arrow_c_stream__; pass a "
                "pyarrow, polars, duckdb or pandas object"
            )
        return _sound(batches)
    except RingfenceError:  # some of them are ValueErrors, too
        raise
    except (
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        ValueError,  # pa.ArrowInvalid is one; pandas' nulls for a column without are another
        KeyError,
    ) as error:
        raise BatchError(f"the {type(data).__name__} cannot be read as rows: {error}") from error


class _Checked:
    """The schema whose names were looked at last; comparing takes a tenth of looking."""

    schema: ClassVar[pa.Schema | None] = None


def _check_names(schema: pa.Schema) -> None:
    names = schema.names
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise SchemaError(f'two columns are named "{twice}"; rename or drop one', column=twice)
    if "\0" in "".join(names):
        raise sound.cut_error(next(name for name in names if "\0" in name))
    _Checked.schema = schema


def _sound(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Those with rows. BatchError if one is not sound: what reads them next knows no lengths of buffers."""
    if batches:  # all have one schema
        schema = batches[0].schema
        if _Checked.schema is None or not schema.equals(_Checked.schema):
            _check_names(schema)
    for batch in batches:
        sound.require(batch)
    return [batch for batch in batches if batch.num_rows]


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches of one schema as one, copied if there are several."""
    if len(batches) == 1:
        return batches[0]
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            sound.require_used(name, column)
    table = pa.Table.from_batches(batches).combine_chunks()
    found = table.to_batches()
    if len(found) != 1:  # a string column above 2 GiB stays in chunks
        raise BatchError("the rows are too many for one batch; send fewer at once", rows=table.num_rows)
    return found[0]


def bytes_of(batch: pa.RecordBatch) -> int:
    """About how many bytes the rows take. Views cannot be told apart in a slice.

    Then it is all they refer to.
    """
    referred = int(batch.get_total_buffer_size())
    if referred <= SMALL_BYTES_MAX:
        return referred + int(batch.num_rows)
    try:
        size = int(batch.nbytes)
    except (TypeError, pa.ArrowNotImplementedError):
        size = referred
    return size + int(batch.num_rows)  # never zero


def checked_note(note: Any) -> bytes | None:
    """The note as bytes.

    Raises:
        InvalidArgumentError: it is something else, or above `note_bytes_max`.
    """
    if note is None:
        return None
    if not isinstance(note, bytes | bytearray | memoryview):
        raise InvalidArgumentError("a note is bytes; encode text yourself", note=type(note).__name__)
    held = bytes(note)
    if len(held) > wire.NOTE_BYTES_MAX:
        raise InvalidArgumentError(
            "a note is a place in a source, not a payload",
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
    """Bodies for one layout of one topic. Used by many threads at once: the kernels hold no state."""

    def __init__(self, layout: Layout, *, split: bool, reach: Reach | None = None) -> None:
        """`split`: a body above the limit becomes several.

        False refuses it, for one send must be one body a partition. `reach`: what a topic without key leaves
        out.
        """
        self.layout = layout
        self.schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(layout.schemas[layout.schema_id]))
        self._encoder = Encoder(layout.schemas[layout.schema_id])
        self._chooser = Chooser(layout)
        self._split, self._reach = split, reach or Reach()
        self._partitions = [entry.partition for entry in layout.active]
        self._key = list(layout.key)
        self._exact = exact_columns(self.schema)

    def room_for(self, rows: int, size: int, note: bytes | None) -> int:
        """About the most bytes that the bodies of `rows` rows of `size` bytes take.

        They, and what a body needs besides.
        """
        bodies = min(rows, len(self._partitions)) if self._key else 1
        # Per body: message and extension; per column: three buffers padded to 64 bytes, with their places.
        return size + bodies * (512 + 256 * len(self.schema) + len(note or b""))

    def chunks(self, batch: pa.RecordBatch) -> list[tuple[pa.RecordBatch, int]]:
        """Slices that stay well below the limit of a message, with their bytes.

        Just the batch if it may not split.
        """
        size, rows = bytes_of(batch), batch.num_rows
        if not self._split or size <= CHUNK_BYTES_MAX:
            return [(batch, size)]
        step = max(1, rows * CHUNK_BYTES_MAX // size)
        parts = [batch.slice(start, step) for start in range(0, rows, step)]
        for part in parts:
            sound.require(part)  # its last offset is another one
        return [(part, size * part.num_rows // rows) for part in parts]

    def bodies(
        self,
        batch: pa.RecordBatch,
        note: bytes | None = None,
        *,
        bytes_max: int = wire.MESSAGE_BYTES_MAX,
        keep_order: bool = False,
        extension: bytes | None = None,
    ) -> list[Body]:
        """One body for each partition that gets rows; more only where one would be above `bytes_max`.

        Args:
            batch: rows in the topic's columns, matched by name.
            note: kept with every body.
            bytes_max: the node's limit of a message.
            keep_order: fill in `Body.order`.
            extension: what stands in front of each message instead of the note's.

        Raises:
            BatchError: the columns do not fit (SchemaError), or a row alone is too large.
        """
        extension = note_extension(note) if extension is None else extension
        try:
            if self._exact:
                batch = in_exact_types(self.schema, batch, self._exact)
            if not self._key:
                return self._whole(batch, extension, bytes_max, None)
            if len(self._partitions) == 1 and not keep_order:
                # The owner checks the slots in any case; with one partition there is nothing to choose.
                return self._whole(batch, extension, bytes_max, self._partitions[0])
            return self._gather(batch, extension, bytes_max, keep_order=keep_order)
        except RingfenceError:
            raise
        except BaseException as error:
            raise _unsound(error, batch, self.layout.name) from error

    def check(self, schema: pa.Schema) -> None:
        """Could rows of this schema be sent? Tells before the first row comes.

        Raises:
            SchemaError: a column is missing, is not the topic's, or has another type; it names both types.
        """
        nothing = pa.RecordBatch.from_pylist([], schema=schema)
        if self._exact:
            nothing = in_exact_types(self.schema, nothing, self._exact)
        self._encoder.whole(nothing, 0, 0, b"")

    def _gather(
        self, batch: pa.RecordBatch, extension: bytes, bytes_max: int, *, keep_order: bool, first: int = 0
    ) -> list[Body]:
        # `first`: where a half begins in the batch that somebody sent; `Body.order` counts from there.
        hashed = slots(in_types_of(self.schema, batch, self._key), self._key)
        order, bounds = rows_by_partition(hashed, self.layout.index_of_slot, len(self._partitions))
        messages = self._encoder.gather(batch, order, bounds, extension)
        found: list[Body] = []
        schema_id, ends = self.layout.schema_id, bounds.tolist()
        for index, (message, crc) in enumerate(messages):
            start, end = ends[index], ends[index + 1]
            if start == end:
                continue
            if len(message) > bytes_max:
                self._check_split(end - start, len(message), bytes_max)
                middle = batch.num_rows // 2  # rare: much bigger rows than the estimate says
                halves = (first, batch.slice(0, middle)), (first + middle, batch.slice(middle))
                return [
                    body
                    for begin, half in halves
                    if half.num_rows
                    for body in self._gather(half, extension, bytes_max, keep_order=keep_order, first=begin)
                ]
            rows = order[start:end] + np.uint32(first) if keep_order else None
            body = Body(self._partitions[index], message, crc, end - start, schema_id, len(extension), rows)
            found.append(body)
        return found

    def _whole(
        self,
        batch: pa.RecordBatch,
        extension: bytes,
        bytes_max: int,
        partition: int | None,
        first: int | None = None,
    ) -> list[Body]:
        # `first`: where a half begins in the batch that somebody sent; None: it is all of it.
        message, crc = self._encoder.whole(batch, 0, batch.num_rows, extension)
        chosen = self._chooser.choose(self._reach.away) if partition is None else partition
        if len(message) > bytes_max:
            self._check_split(batch.num_rows, len(message), bytes_max)
            middle = batch.num_rows // 2
            begin = first or 0
            halves = (begin, batch.slice(0, middle)), (begin + middle, batch.slice(middle))
            return [
                body for at, half in halves for body in self._whole(half, extension, bytes_max, chosen, at)
            ]
        rows = None if first is None else np.arange(first, first + batch.num_rows, dtype=np.uint32)
        return [Body(chosen, message, crc, batch.num_rows, self.layout.schema_id, len(extension), rows)]

    def _check_split(self, rows: int, size: int, bytes_max: int) -> None:
        if rows == 1:
            raise BatchError(
                "one row is above the limit of a message",
                topic=self.layout.name,
                bytes=size,
                bytes_max=bytes_max,
            )
        if not self._split:
            raise BatchError(
                "the rows for one partition are above the limit of a message, and a named producer sends one "
                "message a partition, so that its resume point is exact; send fewer rows at once",
                topic=self.layout.name,
                bytes=size,
                bytes_max=bytes_max,
            )


def _unsound(error: BaseException, batch: pa.RecordBatch, topic: str) -> BaseException:
    """What the rows' own fault is, as one; anything else as it is.

    What an array says of itself may be found untrue only where it is used: by pyarrow, or by a panic of the
    native encoder (no `Exception`).
    """
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        found = sound.fault(batch, full=True, topic=topic)
        if found is not None:
            return found
        why = f"{type(error).__name__}: {error}"
        return BatchError(
            f"the rows cannot be encoded; is an offset, view or length in them unsound? {why}", topic=topic
        )
    return error
