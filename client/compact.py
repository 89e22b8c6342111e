"""Write a topic's rows to Parquet files with a manifest: each row in exactly one file, also after crashes.

    DIR/_manifest.parquet                       the valid files, and the offsets at which the next run begins
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
from ringfence.cluster.read_plan import lost_error
from ringfence.common.lineage import Finish, Lineage, Lost, restore, view_of
from ringfence.compaction.file_types import FileForm, parquet_form
from ringfence.compaction.manifest import (
    MANIFEST,
    FilesEnd,
    Generation,
    Manifest,
    Piece,
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
    from ringfence.common.lineage import View
    from ringfence.native.messages import PartitionStats
    from ringfence.reader import Reader
    from ringfence.topic_info import TopicInfo

# About 150 MB of TPC-H lineitem.
ROWS_A_FILE = 5_000_000
# Key of the offsets of a file in the metadata of its schema.
METADATA_KEY = b"ringfence"
CODECS = ("zstd", "snappy", "lz4", "gzip", "none")


class Compacted(NamedTuple):
    """Files, rows and bytes that one run added."""

    files: int
    rows: int
    bytes: int
    # Rows that were removed from the topic, because its retention had waited for this run.
    given_up: int = 0


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
    """Paths of the files in the manifest, in the order of their rows; partitions before their children."""
    root = Path(directory)
    manifest = read(manifest_path(root) or root / MANIFEST)
    return [os.fspath(root / piece.path) for piece in manifest.files_in_order]


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
    layout, ends = client.layout_and_ends(topic)
    failures: dict[int, RefusedError | RecordError] = {}
    lineage = dict(manifest.lineage)
    new = _follow_lineage(manifest, info.name, view_of(layout), failures)
    last_rows = _last_rows(client, manifest, info.name, ends)
    done, is_changed = Compacted(0, 0, 0), False
    for partition, end in sorted(ends.items()):  # ids ascend from parents to children
        try:
            begin = FilesEnd(0 if partition in new else end.start)
            file_end = _proven(manifest, info.name, end, last_rows.get(partition), begin)
            is_changed |= file_end != manifest.file_ends.get(partition, file_end)
            manifest.file_ends[partition] = file_end
            for size, rows in _pieces(client, manifest, writer, file_end, end, rows_per_file):
                done = Compacted(done.files + 1, done.rows + rows, done.bytes + size)
        except (RefusedError, RecordError) as error:
            failures[partition] = error
    _note_ended(manifest, ends)
    is_changed = (is_changed and not done.files) or manifest.lineage != lineage
    if is_changed:  # a commit of a file has saved the manifest, too
        manifest.save()
    done = done._replace(given_up=_remove_old_rows(client, info, manifest, failures))
    if failures:
        raise _first_of(failures, info.name, done)
    return done


# ---- partitions that were split or merged -----------------------------------------------------------------


def _follow_lineage(
    manifest: Manifest, topic: str, view: View, failures: dict[int, RefusedError | RecordError]
) -> frozenset[int]:
    """Add new partitions to the manifest's lineage; returns those whose first row must be there.

    A partition that was pruned before all of its rows were in files becomes a failure.
    """
    if not view.has_lineage:
        return frozenset()
    known = manifest.file_ends
    ended = {one for one, made in manifest.lineage.items() if made.ended}
    restored = restore(view, known)
    lineage = Lineage(view, restored._replace(pruned=tuple(set(restored.pruned) - ended)), grows=False)
    for effect in lineage.begin({one: file_end.offset for one, file_end in known.items()}):
        if isinstance(effect, Lost):
            failures[effect.partition] = lost_error(topic, effect)
        elif isinstance(effect, Finish):
            made = manifest.lineage.get(effect.partition, Generation(0))
            manifest.lineage[effect.partition] = made._replace(ended=True)
    for part in view.in_order():
        if part.partition not in manifest.lineage:
            manifest.lineage[part.partition] = Generation(part.created_version)
    return frozenset(restored.new)


def _note_ended(manifest: Manifest, ends: dict[int, Ends]) -> None:
    """Note the sealed partitions of which every row is in files: they may be pruned."""
    for partition, made in list(manifest.lineage.items()):
        end, file_end = ends.get(partition), manifest.file_ends.get(partition, FilesEnd(0))
        if end is not None and end.ended and file_end.offset == end.end:
            manifest.lineage[partition] = made._replace(ended=True)


def _first_of(
    failures: dict[int, RefusedError | RecordError], topic: str, done: Compacted
) -> RefusedError | RecordError:
    """The error of the first partition, with a note that others were compacted."""
    partition, error = next(iter(failures.items()))
    others = f"; {done.rows} rows of other partitions were written" if done.rows else ""
    values = {**error.details, "partitions": list(failures)} if len(failures) > 1 else error.details
    raised = type(error)(
        f"partition {partition}: {error.message}{others}",
        topic=topic,
        partition=partition,
        code=error.code,
        **values,
    )
    raised.__cause__ = error
    return raised


# ---- the log that was compacted ---------------------------------------------------------------------------


def _last_rows(client: Client, manifest: Manifest, topic: str, ends: dict[int, Ends]) -> dict[int, FilesEnd]:
    """Epoch and time of each partition's last compacted row, if the log still has that row."""
    offsets = {
        partition: file_end.offset
        for partition, file_end in manifest.file_ends.items()
        if partition in ends and ends[partition].start < file_end.offset <= ends[partition].end
    }
    return {
        point.partition: FilesEnd(point.offset, point.epoch, point.time_ms)
        for point in client.log_points(topic, offsets)
    }


def _proven(
    manifest: Manifest, topic: str, ends: Ends, last_row: FilesEnd | None, begin: FilesEnd | None = None
) -> FilesEnd:
    """The end of the files, to continue at, if the log is still the one that was compacted.

    `last_row`: from the log; None: the log no longer has the row. `begin`: of a partition without files;
    default: its log start.

    Raises:
        TruncatedError: rows that are in no file were removed, or it is another log.
    """
    file_end = manifest.file_ends.get(ends.partition, begin or FilesEnd(ends.start))
    if file_end.offset < ends.start:
        raise TruncatedError(
            f"rows {file_end.offset} to {ends.start - 1} were removed before they were compacted; compact "
            "more often, or keep rows longer",
            topic=topic,
            partition=ends.partition,
            rows_lost=ends.start - file_end.offset,
        )
    if file_end.offset > ends.end:
        raise _other_log(topic, ends.partition, file_end, f"the log ends at {ends.end}")
    if last_row is None:
        return file_end  # the first FETCH verifies the epoch
    if file_end.epoch and (file_end.epoch, file_end.time_ms) != (last_row.epoch, last_row.time_ms):
        why = f"its row {file_end.offset - 1} is of epoch {last_row.epoch} and time {last_row.time_ms}"
        raise _other_log(topic, ends.partition, file_end, why)
    return last_row


def _other_log(topic: str, partition: int, file_end: FilesEnd, why: str) -> TruncatedError:
    return TruncatedError(
        f"files have rows up to {file_end.offset - 1} of another log: {why}, and the last row in a file is "
        f"of epoch {file_end.epoch} and time {file_end.time_ms}. The node was restored from an older copy, "
        "or an owner was chosen by force. No rows were written or removed; compact into a new directory, "
        "which gets every row that the log has now, and keep this one for rows that the log has lost",
        topic=topic,
        partition=partition,
        offset=file_end.offset,
        epoch=file_end.epoch,
    )


# ---- rows to files ----------------------------------------------------------------------------------------


def _pieces(
    client: Client, manifest: Manifest, writer: _FileWriter, file_end: FilesEnd, ends: Ends, rows_max: int
) -> Iterator[tuple[int, int]]:
    """Write a partition's new rows. Yields bytes and rows of each committed file."""
    while file_end.offset < ends.end:
        last = min(ends.end, file_end.offset + rows_max)
        piece = Piece.named(ends.partition, file_end.offset, last)
        position = Position(piece.partition, piece.first, file_end.epoch)
        with client.read(writer.topic, partition=piece.partition, start=[position]) as reader:
            rows = _Rows(reader, piece)
            try:
                size = writer.write(manifest.root, piece, rows)
            except TruncatedError as error:
                if error.details.get("rows_lost"):
                    raise
                raise _other_log(writer.topic, piece.partition, file_end, error.message) from error
        file_end = rows.end
        manifest.commit(piece._replace(size=size), file_end)
        yield size, piece.last - piece.first


class _Rows:
    """The rows of one file, from a reader that begins with the first of them.

    Attributes:
        end: after the last returned row.
    """

    def __init__(self, reader: Reader, piece: Piece) -> None:
        self._reader, self._piece = reader, piece
        self.end = FilesEnd(piece.first)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            place = self._reader.place
            assert place is not None, "a batch has a place"
            rows = min(batch.num_rows, self._piece.last - place.first_offset)
            self.end = FilesEnd(place.first_offset + rows, place.epoch, place.time_ms)
            yield batch.slice(0, rows)
            if self.end.offset == self._piece.last:
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
        assert rows.end.offset == piece.last, f"rows up to {rows.end.offset} were read of {piece}"
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


def _remove_old_rows(
    client: Client, info: TopicInfo, manifest: Manifest, failures: dict[int, RefusedError | RecordError]
) -> int:
    """Remove rows that exceed the retention of a topic and are in files, if its retention waits for that.

    A partition with a failure keeps its rows: it is not proven that its log is the compacted one. Each log is
    verified again, because a run takes long and an owner may have been chosen by force meanwhile. Age is
    measured by the clock of this process; bytes are converted to rows by the mean row size of the partition.
    """
    if info.properties.get(messages.RETENTION) != messages.COMPACTED:
        return 0
    young = {}  # by partition: offset of the first row within the topic's retention_ms
    if info.retention_ms:
        age = dt.timedelta(milliseconds=info.retention_ms)
        young = client.offsets_at(info.name, dt.datetime.now(dt.UTC) - age)
    parts = {part.partition: part for part in client.topic(info.name).partitions}
    removed = 0
    log_ends = client.end_offsets(info.name)
    last_rows = _last_rows(client, manifest, info.name, log_ends)
    for partition, ends in sorted(log_ends.items()):
        file_end = manifest.file_ends.get(partition, FilesEnd(ends.start)).offset
        retained = max(young.get(partition, ends.start), _within(info.retention_bytes, parts.get(partition)))
        before = min(retained, file_end)
        if partition in failures or before <= ends.start:
            continue
        try:
            _proven(manifest, info.name, ends, last_rows.get(partition))
        except TruncatedError as error:
            failures[partition] = error
            continue
        client.truncate(info.name, partition=partition, before_offset=before)
        removed += before - ends.start
    return removed


def _within(bytes_max: int | None, part: PartitionStats | None) -> int:
    """Offset of the first of the last rows that fit into `bytes_max`."""
    if not bytes_max or part is None or part.bytes <= bytes_max:
        return 0
    rows = -(-(part.end_offset - part.start_offset) * bytes_max // part.bytes)
    return part.end_offset - rows


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
