"""Write a topic's rows to Parquet files with a manifest: each row in exactly one file, also after crashes.

    DIR/_manifest.parquet                       which files count, and where the next run begins
    DIR/p-9/000000000000-000000120000.parquet

A reader that lists the directory, and one that reads the manifest, see no row twice; the manifest has all
rows. `compaction/manifest.py` has the order of the steps. Before rows are added, the log must prove that it
still holds the last row that files have: the manifest keeps the epoch and the time of that row.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ringfence.cluster.offsets import Position
from ringfence.compaction.file_types import FileForm, parquet_form
from ringfence.compaction.manifest import (
    MANIFEST,
    Manifest,
    Piece,
    Reached,
    make_folder,
    manifest_path,
    read,
    sync,
)
from ringfence.compaction.sort import Sorting
from ringfence.native import messages
from ringfence.native.errors import (
    InvalidArgumentError,
    RecordError,
    RefusedError,
    SchemaError,
    StoreLockedError,
    TruncatedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringfence.client import Client
    from ringfence.cluster.offsets import Ends
    from ringfence.native.messages import PartitionStats
    from ringfence.reader import Reader
    from ringfence.topic_info import TopicInfo

ROWS_A_FILE = 5_000_000
"""About 150 MB of TPC-H lineitem."""
METADATA_KEY = b"ringfence"
CODECS = ("zstd", "snappy", "lz4", "gzip", "none")


class Compacted(NamedTuple):
    """Files, rows and bytes that one run added."""

    files: int
    rows: int
    bytes: int
    given_up: int = 0
    """Rows that were removed from the topic because retention had waited for this run."""


def compact(
    client: Client,
    topic: str,
    directory: str | os.PathLike[str],
    *,
    rows_per_file: int = ROWS_A_FILE,
    sort: Sequence[str] = (),
    compression: str = "zstd",
) -> Compacted:
    """Write the rows that a topic received since the last run, up to its current end.

    For a topic with the property `ringfence.retention=compacted` it then removes the rows that exceed the
    topic's retention and are in a file; nothing else removes them. The token must allow that (operator).

    A partition that cannot be compacted does not stop the others: its error is raised after them.

    Args:
        client: connected to the cluster.
        topic: its name.
        directory: for this topic only, and for one run at a time; created if it is missing.
        rows_per_file: maximum; a run with fewer rows writes smaller files.
        sort: columns by which the rows of each file are sorted; none keeps the order of the log.
        compression: of Parquet: zstd, snappy, lz4, gzip, none.

    Returns:
        The files, rows and bytes that this run added.

    Raises:
        TruncatedError: retention removed rows that are in no file, or the log differs from the one that was
            compacted (a node was restored from an older copy, or an owner was chosen by force).
        StoreLockedError: another run uses the directory.
        SchemaError: Parquet cannot hold a column, or one of its values.
        InvalidArgumentError: the directory belongs to another topic, has files that the manifest does not
            name, or lacks files; or a column or the compression is unknown.
    """
    if rows_per_file < 1:
        raise InvalidArgumentError("rows_per_file must be at least 1", rows_per_file=rows_per_file)
    if compression.lower() not in CODECS:
        raise InvalidArgumentError(
            "this compression is not supported", compression=compression, known=list(CODECS)
        )
    root = Path(directory)
    make_folder(root)
    with _alone(root):
        return _compact(client, topic, root, rows_per_file, list(sort), compression)


def files(directory: str | os.PathLike[str]) -> list[str]:
    """Paths of the files in the manifest, in the order of their rows."""
    root = Path(directory)
    return [os.fspath(root / piece.path) for piece in read(manifest_path(root) or root / MANIFEST).files]


def _compact(
    client: Client, topic: str, root: Path, rows_per_file: int, sort: list[str], compression: str
) -> Compacted:
    info = client.topic(topic)
    schema = info.schemas[-1]
    missing = [name for name in sort if name not in schema.names]
    if missing:
        raise InvalidArgumentError(
            "the topic has no such column", topic=topic, columns=missing, known=schema.names
        )
    writer = _FileWriter(info.name, parquet_form(schema), Sorting(schema, sort), compression.lower())
    history = client.status().history.hex()
    manifest = Manifest.open(root, info.topic, info.name, history, writer.schema)
    ends = client.end_offsets(topic)
    failures: dict[int, RefusedError | RecordError] = {}
    found = _last_rows(client, manifest, info.name, ends)
    done, learned = Compacted(0, 0, 0), False
    for partition, end in sorted(ends.items()):
        try:
            reached = _proven(manifest, info.name, end, found.get(partition))
            learned |= reached != manifest.reached.get(partition, reached)
            manifest.reached[partition] = reached
            for size, rows in _pieces(client, manifest, writer, reached, end, rows_per_file):
                done = Compacted(done.files + 1, done.rows + rows, done.bytes + size)
        except (RefusedError, RecordError) as error:
            failures[partition] = error
    if learned and not done.files:  # else a commit has saved it
        manifest.save()
    done = done._replace(given_up=_give_up(client, info, manifest, failures))
    if failures:
        raise _first_of(failures, info.name, done)
    return done


def _first_of(
    failures: dict[int, RefusedError | RecordError], topic: str, done: Compacted
) -> RefusedError | RecordError:
    """The error of the first partition, with a note that others were compacted."""
    partition, error = next(iter(failures.items()))
    others = f"; {done.rows} rows of other partitions were written" if done.rows else ""
    values = {**error.details, "partitions": list(failures)} if len(failures) > 1 else error.details
    made = type(error)(
        f"partition {partition}: {error.message}{others}",
        topic=topic,
        partition=partition,
        code=error.code,
        **values,
    )
    made.__cause__ = error
    return made


# ---- the log that was compacted ---------------------------------------------------------------------------


def _last_rows(client: Client, manifest: Manifest, topic: str, ends: dict[int, Ends]) -> dict[int, Reached]:
    """Epoch and time of each partition's last compacted row, if the log still has that row."""
    wanted = {
        partition: at.offset
        for partition, at in manifest.reached.items()
        if partition in ends and ends[partition].start < at.offset <= ends[partition].end
    }
    return {
        point.partition: Reached(point.offset, point.epoch, point.time_ms)
        for point in client.log_points(topic, wanted)
    }


def _proven(manifest: Manifest, topic: str, ends: Ends, found: Reached | None) -> Reached:
    """The position to continue at, if the log is still the one that was compacted.

    Raises:
        TruncatedError: rows that are in no file were removed, or it is another log.
    """
    kept = manifest.reached.get(ends.partition, Reached(ends.start))
    if kept.offset < ends.start:
        raise TruncatedError(
            f"rows {kept.offset} to {ends.start - 1} were removed before they were compacted; compact more "
            "often, or keep rows longer",
            topic=topic,
            partition=ends.partition,
            rows_lost=ends.start - kept.offset,
        )
    if kept.offset > ends.end:
        raise _other_log(topic, ends.partition, kept, f"the log ends at {ends.end}")
    if found is None:
        return kept  # the log no longer has the row; the first FETCH verifies its epoch
    if kept.epoch and (kept.epoch, kept.time_ms) != (found.epoch, found.time_ms):
        why = f"its row {kept.offset - 1} is of epoch {found.epoch} and time {found.time_ms}"
        raise _other_log(topic, ends.partition, kept, why)
    return found


def _other_log(topic: str, partition: int, kept: Reached, why: str) -> TruncatedError:
    return TruncatedError(
        f"files have rows up to {kept.offset - 1} of another log: {why}, the last row in a file is of epoch "
        f"{kept.epoch} and time {kept.time_ms}. The node was restored from an older copy, or its owner was "
        "chosen by force. No rows were written or removed; compact into a new directory, which gets "
        "every row that the log has now, and keep this one for rows that the log has lost",
        topic=topic,
        partition=partition,
        offset=kept.offset,
        epoch=kept.epoch,
    )


# ---- rows to files ----------------------------------------------------------------------------------------


def _pieces(
    client: Client, manifest: Manifest, writer: _FileWriter, reached: Reached, ends: Ends, rows_max: int
) -> Iterator[tuple[int, int]]:
    """Write a partition's new rows. Yields bytes and rows of each committed file."""
    while reached.offset < ends.end:
        last = min(ends.end, reached.offset + rows_max)
        piece = Piece.named(ends.partition, reached.offset, last)
        position = Position(piece.partition, piece.first, reached.epoch)
        with client.read(writer.topic, partition=piece.partition, start=[position]) as reader:
            rows = _Rows(reader, piece)
            try:
                size = writer.write(manifest.root, piece, rows)
            except TruncatedError as error:
                if error.details.get("rows_lost"):
                    raise
                raise _other_log(writer.topic, piece.partition, reached, error.message) from error
        manifest.commit(piece._replace(size=size), rows.reached)
        reached = rows.reached
        yield size, piece.last - piece.first


class _Rows:
    """The rows of one file, from a reader that begins with the first of them.

    Attributes:
        reached: the position after the last returned row.
    """

    def __init__(self, reader: Reader, piece: Piece) -> None:
        self._reader, self._piece = reader, piece
        self.reached = Reached(piece.first)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            place = self._reader.place
            assert place is not None, "a batch has a place"
            rows = min(batch.num_rows, self._piece.last - place.first_offset)
            self.reached = Reached(place.first_offset + rows, place.epoch, place.time_ms)
            yield batch.slice(0, rows)
            if self.reached.offset == self._piece.last:
                return


class _FileWriter:
    """Writes rows to hidden files, on disk when `write` returns."""

    def __init__(self, topic: str, form: FileForm, sorting: Sorting, compression: str) -> None:
        self.topic = topic
        self.schema = form.schema
        self._form, self._sorting, self._compression = form, sorting, compression

    def write(self, root: Path, piece: Piece, rows: _Rows) -> int:
        """Write one file and return its length in bytes. An incomplete file is removed."""
        path = root / piece.hidden
        make_folder(path.parent)
        try:
            with path.open("wb") as file:  # pyarrow accepts only names in UTF-8
                schema = self._with_metadata(piece)
                with pq.ParquetWriter(file, schema, compression=self._compression) as writer:
                    for batch in self._sorting.batches(rows, self._form):
                        writer.write_batch(batch)
                file.flush()
                os.fsync(file.fileno())
        except pa.ArrowException as error:
            path.unlink(missing_ok=True)
            raise SchemaError(f"rows cannot be written as Parquet: {error}", topic=self.topic) from error
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        assert rows.reached.offset == piece.last, f"rows up to {rows.reached.offset} were read of {piece}"
        sync(path.parent)
        return path.stat().st_size

    def _with_metadata(self, piece: Piece) -> pa.Schema:
        values = {
            "topic": self.topic,
            "partition": piece.partition,
            "first_offset": piece.first,
            "end_offset": piece.last,
        }
        schema = self.schema
        return schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: json.dumps(values)})


# ---- retention --------------------------------------------------------------------------------------------


def _give_up(
    client: Client, info: TopicInfo, manifest: Manifest, failures: dict[int, RefusedError | RecordError]
) -> int:
    """Remove rows that exceed the retention of a topic and are in files, if its retention waits for that.

    A partition with a failure keeps its rows: it is not proven that its log is the compacted one. Each log is
    verified again, because a run takes long and an owner may have been chosen by force meanwhile. Age is
    measured by the clock of this process; bytes are converted to rows by the mean row size of the partition.
    """
    if info.properties.get(messages.RETENTION) != messages.COMPACTED:
        return 0
    young = {}
    if info.retention_ms:
        age = dt.timedelta(milliseconds=info.retention_ms)
        young = client.offsets_at(info.name, dt.datetime.now(dt.UTC) - age)
    held = {part.partition: part for part in client.topic(info.name).partitions}
    gone = 0
    now = client.end_offsets(info.name)
    found = _last_rows(client, manifest, info.name, now)
    for partition, ends in sorted(now.items()):
        compacted = manifest.reached.get(partition, Reached(ends.start)).offset
        wanted = max(young.get(partition, ends.start), _within(info.retention_bytes, held.get(partition)))
        before = min(wanted, compacted)
        if partition in failures or before <= ends.start:
            continue
        try:
            _proven(manifest, info.name, ends, found.get(partition))
        except TruncatedError as error:
            failures[partition] = error
            continue
        client.truncate(info.name, partition=partition, before_offset=before)
        gone += before - ends.start
    return gone


def _within(bytes_max: int | None, part: PartitionStats | None) -> int:
    """Offset of the first of the last rows that fit into `bytes_max`."""
    if not bytes_max or part is None or part.bytes <= bytes_max:
        return 0
    kept = -(-(part.end_offset - part.start_offset) * bytes_max // part.bytes)
    return part.end_offset - kept


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Lock the directory for one run. The kernel releases the lock when the process ends."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreLockedError(
            "another run uses this directory; wait for its end, or use another directory",
            directory=os.fspath(root),
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)
