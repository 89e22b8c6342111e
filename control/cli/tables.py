"""Read and write rows of Parquet files, Arrow files and Arrow streams, batch by batch."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

import click
import pyarrow as pa
import pyarrow.parquet as pq

from ringfence.compaction.file_types import FileForm, arrow_file_form, parquet_form
from ringfence.control.cli.exit_codes import output_errors
from ringfence.control.cli.output import refuse_binary_to_terminal

_STREAM = ".arrows"
_ARROW = (".arrow", ".ipc", ".feather")
_PARQUET = (".parquet", ".pq")
_SUFFIXES = ", ".join((*_PARQUET, *_ARROW, _STREAM))
_PARQUET_KEYS = b"PARQUET:"
_FILE_MAGIC = b"ARROW1"
# Rows per send: 8 MiB of TPC-H lineitem, enough that the disk and not the call limits the rate.
BATCH_ROWS = 65_536


class Source:
    """Batches and schema of one file.

    View types become plain types, because a slice of a view keeps all of its buffers.
    """

    def __init__(self, path: str, *, batch_rows: int = BATCH_ROWS, columns: list[str] | None = None) -> None:
        """`path` may be `-` for an Arrow stream on stdin. UsageError if it cannot be read."""
        self.path, self._batch_rows, self._columns = path, batch_rows, columns
        self.rows: int | None = None
        self._stack = ExitStack()
        try:
            self._open()
            self.schema = plain_schema(self._schema)
            for field in self.schema:
                _check_text(path, field)
        except (OSError, pa.ArrowException) as error:
            self._stack.close()
            raise click.UsageError(f"{path}: {_reason(path, error)}") from error
        except UnicodeDecodeError as error:
            self._stack.close()
            raise click.UsageError(
                f"{path}: the name of a column is not UTF-8: {error.object!r}; rename the column"
            ) from error
        except click.UsageError:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                yield from self._pieces(batch)
        except (OSError, pa.ArrowException) as error:
            if self.path == "-":  # the schema was readable
                raise click.UsageError(
                    f"-: the Arrow stream on stdin is truncated or damaged: {error}"
                ) from error
            raise click.UsageError(f"{self.path}: {_reason(self.path, error)}") from error

    def _open(self) -> None:
        if self.path == "-":
            if sys.stdin is None:
                raise click.UsageError("-: stdin is closed; pipe an Arrow stream to it")
            self._read_stream(sys.stdin.buffer)
        elif Path(self.path).suffix.lower() in _PARQUET:
            source = _path_or_file(self.path, self._stack)
            # Verify checksums if the writer stored them: without them a flipped bit reads as another value.
            file = self._stack.enter_context(pq.ParquetFile(source, page_checksum_verification=True))
            self._schema, self.rows = file.schema_arrow, file.metadata.num_rows
            if self._columns is not None:
                self._schema = pa.schema([self._schema.field(name) for name in self._columns])
            self._batches = file.iter_batches(self._batch_rows, columns=self._columns)
        elif Path(self.path).suffix.lower() in (*_ARROW, _STREAM):
            source = _path_or_file(self.path, self._stack)
            mapped = pa.memory_map(source) if isinstance(source, str) else pa.PythonFile(source, mode="r")
            self._read_arrow(self._stack.enter_context(mapped))
        else:
            Path(self.path).stat()  # report a missing file before an unknown suffix
            raise click.UsageError(
                f"{self.path}: the suffix is none of {_SUFFIXES}; convert the file to one of these formats, "
                "or pipe an Arrow stream to `ringfence publish TOPIC -`"
            )

    def _read_arrow(self, mapped: Any) -> None:
        if mapped.read(len(_FILE_MAGIC)) != _FILE_MAGIC:
            mapped.seek(0)
            self._read_stream(mapped)
            return
        reader = pa.ipc.open_file(mapped)
        self._schema = reader.schema
        self.rows = sum(reader.get_batch(place).num_rows for place in range(reader.num_record_batches))
        self._batches = (reader.get_batch(place) for place in range(reader.num_record_batches))

    def _read_stream(self, source: Any) -> None:
        reader = self._stack.enter_context(pa.ipc.open_stream(source))
        self._schema, self._batches = reader.schema, self._until_end(reader, source)

    def _until_end(self, reader: Iterator[pa.RecordBatch], source: Any) -> Iterator[pa.RecordBatch]:
        """Yield all batches. UsageError if data follows: a second stream must not be dropped silently."""
        yield from reader
        if source.read(1):
            raise click.UsageError(
                f"{self.path}: data after the end of the Arrow stream was not sent; pass one stream per file"
            )

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        plain = batch if batch.schema.equals(self.schema) else batch.cast(self.schema)
        for start in range(0, plain.num_rows, self._batch_rows):
            yield plain.slice(start, self._batch_rows)


def _path_or_file(path: str, stack: ExitStack) -> str | BinaryIO:
    """Return the path, or the open file if its name is not UTF-8: pyarrow rejects such names."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return cast("BinaryIO", stack.enter_context(Path(path).open("rb")))
    return path


def _reason(path: str, error: Exception) -> str:
    """Return the reason of an error in one sentence, without a repetition of the system's message."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    if path == "-":
        return f"stdin is not an Arrow IPC stream ({error}); pass a Parquet or Arrow file by its path"
    kind = "Parquet" if Path(path).suffix.lower() in _PARQUET else "Arrow"
    return (
        f"not a valid {kind} file, as its suffix says ({error}); write the file again, or rename it with the "
        f"suffix of its format: {_SUFFIXES}"
    )


def readable(source: Source) -> Iterator[pa.RecordBatch]:
    """Read the first batch, then return all batches. An unreadable file fails before a topic is created."""
    batches = iter(source)
    return chain([first for first in [next(batches, None)] if first is not None], batches)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with strings and binaries instead of views, and without the file's metadata.

    The metadata of fields stays, because it has Arrow extension types; Parquet's field ids are removed.
    """
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema(
        [
            field.with_type(plain.get(field.type, field.type)).with_metadata(_field_metadata(field))
            for field in schema
        ]
    )


def _check_text(path: str, field: pa.Field) -> None:
    """UsageError for damaged metadata, UnicodeDecodeError for a damaged name of a column, at any depth."""
    try:
        for text in chain.from_iterable((field.metadata or {}).items()):
            text.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"{path}: the metadata of column {field.name!r} is not UTF-8: {error.object!r}; write the file "
            "again with a valid extension type, or without one"
        ) from error
    for place in range(field.type.num_fields):
        _check_text(path, field.type.field(place))


def _field_metadata(field: pa.Field) -> dict[bytes, bytes] | None:
    metadata = field.metadata or {}
    return {key: value for key, value in metadata.items() if not key.startswith(_PARQUET_KEYS)} or None


class Sink:
    """Writes batches to a Parquet file, an Arrow file, or as an Arrow stream to stdout.

    A file gets its final name when it is complete; an aborted read leaves no file.
    """

    def __init__(self, path: str) -> None:
        """`-` is stdout, which must not be a terminal.

        UsageError for an unknown suffix; all methods raise OutputFailedError if the output cannot be written.
        """
        self.path = path
        self._writer: Any = None
        self._form: FileForm | None = None
        self._has_part = False
        self._stack = ExitStack()
        suffix = Path(path).suffix.lower()
        if path == "-":
            refuse_binary_to_terminal("an Arrow stream")
        elif suffix not in _PARQUET + _ARROW:
            raise click.UsageError(f"--output {path}: the suffix is none of {', '.join(_PARQUET + _ARROW)}")
        elif not Path(path).absolute().parent.is_dir():
            raise click.UsageError(f"--output {path}: the directory does not exist; create it first")
        elif Path(path).is_dir():  # otherwise only the final rename would fail
            with output_errors(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._part = Path(path + ".part")
        self._is_parquet = suffix in _PARQUET

    def begin(self, schema: pa.Schema) -> None:
        """Open the file. A read of no rows gives a file with its columns.

        Raises:
            SchemaError: the file cannot hold a column.
        """
        if self.path == "-":
            self._writer = pa.ipc.new_stream(sys.stdout.buffer, schema)
            return
        self._form = parquet_form(schema) if self._is_parquet else arrow_file_form(schema)
        schema = self._form.schema
        with output_errors(self.path):
            # Open the file here, because pyarrow accepts only UTF-8 names.
            file = self._stack.enter_context(self._part.open("wb"))
            self._has_part = True
            if self._is_parquet:
                self._writer = pq.ParquetWriter(file, schema, compression="zstd")
            else:
                self._writer = pa.ipc.new_file(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        assert self._writer is not None, "begin first"
        if self._form is not None:
            batch = self._form.convert(batch)
        with output_errors(self.path) if self.path != "-" else nullcontext():
            self._writer.write_batch(batch)

    def end(self, *, is_complete: bool) -> None:
        """Close the file. Remove the part file unless the content is complete."""
        if self.path == "-":
            if self._writer is not None and is_complete:
                self._writer.close()
            sys.stdout.buffer.flush()
            return
        with output_errors(self.path):
            try:
                self._close()
                if is_complete:
                    self._part.replace(self.path)
            finally:
                if self._has_part:
                    self._part.unlink(missing_ok=True)

    def _close(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._stack.close()
