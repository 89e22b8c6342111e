"""A topic's rows as Parquet files with a manifest: each row in exactly one file, whatever is killed when.

    DIR/manifest.json                          which files count, and where the next run begins
    DIR/partition=9/0000000000-0000120000.parquet

A file is written under a hidden name, synced, then named in the manifest, which replaces the old one at once;
only then it gets the name that the manifest says. A run that died in between is finished by the next one:
what the manifest names is renamed, other hidden files go. So whoever reads the directory by name, and whoever
reads the manifest, sees rows once; the manifest has them all.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ringfence.kinds import without_views
from ringfence.native import messages
from ringfence.native.errors import InvalidArgumentError, StoreLockedError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringfence.client import Client
    from ringfence.native.messages import PartitionStats, TopicInfo
    from ringfence.places import Ends

FORMAT = 1
MANIFEST = "manifest.json"
ROWS_A_FILE = 5_000_000  # of TPC-H lineitem about 150 MB
METADATA_KEY = b"ringfence"
CODECS = ("zstd", "snappy", "lz4", "gzip", "none")
OWN_NAME = re.compile(r"\.\d{12,}-\d{12,}\.parquet\.part")  # what a run that died may leave behind


class Compacted(NamedTuple):
    """What one run added."""

    files: int
    rows: int
    bytes: int
    given_up: int = 0  # rows that retention had waited for and that the topic does not hold any more


class Piece(NamedTuple):
    """One file: rows first .. last - 1 of a partition."""

    partition: int
    first: int
    last: int
    path: str  # below the directory
    size: int  # bytes

    @property
    def hidden(self) -> str:
        """Its name until the manifest has it. Parquet readers pass over names that begin with a dot."""
        folder, name = os.path.split(self.path)
        return os.path.join(folder, f".{name}.part")  # noqa: PTH118 - a relative name, not yet a path


def compact(
    client: Client,
    topic: str,
    directory: str | os.PathLike[str],
    *,
    rows_per_file: int = ROWS_A_FILE,
    sort: Sequence[str] = (),
    compression: str = "zstd",
) -> Compacted:
    """Write what a topic got since the last run, up to its end as of now.

    Of a topic with the property `ringfence.retention=compacted` it gives up afterwards what is beyond the
    topic's retention and in a file; nothing else does. The token must allow that (operator).

    Args:
        client: of a node.
        topic: its name.
        directory: made if it is missing; one topic has it for itself, and one run at a time.
        rows_per_file: at most; a run that finds fewer rows writes smaller files.
        sort: columns by which the rows of each file are sorted; none keeps the order of the log.
        compression: of Parquet: zstd, snappy, lz4, gzip, none.

    Returns:
        What this run added.

    Raises:
        TruncatedError: retention has passed rows that no file has. StoreLockedError: another run is on.
        InvalidArgumentError: the directory is of another topic or has files that no manifest names, or a
        column or the compression is not known.
    """
    if rows_per_file < 1:
        raise InvalidArgumentError("rows_per_file must be at least 1", rows_per_file=rows_per_file)
    if compression.lower() not in CODECS:
        raise InvalidArgumentError("no such compression", compression=compression, known=list(CODECS))
    root = Path(directory)
    root.mkdir(parents=True, exist_ok=True)
    with _alone(root):
        return _compact(client, topic, root, rows_per_file, list(sort), compression)


def _compact(
    client: Client, topic: str, root: Path, rows_per_file: int, sort: list[str], compression: str
) -> Compacted:
    info = client.topic(topic)
    manifest = _open(root, info.topic, info.name)
    known = pa.ipc.read_schema(pa.py_buffer(info.schemas[-1])).names
    missing = [name for name in sort if name not in known]
    if missing:
        raise InvalidArgumentError("the topic has no such column", topic=topic, columns=missing, known=known)
    done = Compacted(0, 0, 0)
    for partition, ends in sorted(client.end_offsets(topic).items()):
        first = _next_of(manifest, info.name, ends)
        while first < ends.end:
            last = min(ends.end, first + rows_per_file)
            path = f"partition={partition}/{first:012d}-{last:012d}.parquet"
            piece = Piece(partition, first, last, path, 0)
            batches = _rows(client, topic, piece)
            size = _write(root, piece, batches, sort=sort, compression=compression, topic=info.name)
            _commit(root, manifest, piece._replace(size=size))
            done = Compacted(done.files + 1, done.rows + last - first, done.bytes + size)
            first = last
    return done._replace(given_up=_give_up(client, info, manifest))


def _give_up(client: Client, info: TopicInfo, manifest: dict[str, Any]) -> int:
    """Of a topic whose retention waits for this: rows that it would have given up and that files have.

    Time is this process's clock; bytes are counted in rows of the partition's mean size.
    """
    if info.properties.get(messages.RETENTION) != messages.COMPACTED:
        return 0
    young = {}
    if info.retention_ms:
        age = dt.timedelta(milliseconds=info.retention_ms)
        young = client.offsets_at(info.name, dt.datetime.now(dt.UTC) - age)
    held = {part.partition: part for part in client.topic(info.name).partitions}
    gone = 0
    for partition, ends in sorted(client.end_offsets(info.name).items()):
        compacted = int(manifest["next"].get(str(partition), ends.start))
        wanted = max(young.get(partition, ends.start), _within(info.retention_bytes, held.get(partition)))
        before = min(wanted, compacted)
        if before > ends.start:
            client.truncate(info.name, partition=partition, before_offset=before)
            gone += before - ends.start
    return gone


def _within(bytes_max: int | None, part: PartitionStats | None) -> int:
    """Offset of the first row that so many bytes hold."""
    if not bytes_max or part is None or part.bytes <= bytes_max:
        return 0
    kept = -(-(part.end_offset - part.start_offset) * bytes_max // part.bytes)
    return part.end_offset - kept


def files(directory: str | os.PathLike[str]) -> list[str]:
    """Paths of the files that count, in the order of their rows."""
    root = Path(directory)
    return [os.fspath(root / piece["path"]) for piece in _manifest(root / MANIFEST)["files"]]


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One run at a time: two would write each other's files. The kernel ends it with the process."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreLockedError(
            "another run writes into this directory; wait for its end, or take another directory",
            directory=os.fspath(root),
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _open(root: Path, topic: int, name: str) -> dict[str, Any]:
    """The manifest, with what a run that died left behind put right."""
    path = root / MANIFEST
    if path.exists():
        manifest = _manifest(path)
        if manifest["topic"] != topic:
            raise InvalidArgumentError(
                "the directory is of another topic (or of one of this name that was deleted); take another",
                directory=os.fspath(root),
                topic=name,
                manifest_topic=manifest["name"],
            )
    else:
        manifest = {"format": FORMAT, "topic": topic, "name": name, "next": {}, "files": []}
    for entry in manifest["files"][-1:]:  # only the last one can lack its name: they are committed one by one
        piece = Piece(**entry)
        with contextlib.suppress(FileNotFoundError):
            (root / piece.hidden).rename(root / piece.path)
    _refuse_strangers(root, manifest)
    for leftover in root.glob("partition=*/.*.part"):
        if OWN_NAME.fullmatch(leftover.name):
            leftover.unlink()
    return manifest


def _manifest(path: Path) -> dict[str, Any]:
    """Raises InvalidArgumentError for a file that is no manifest, or one of a newer version."""
    try:
        manifest: Any = json.loads(path.read_text())
    except ValueError:
        manifest = None
    known = manifest.get("format") if isinstance(manifest, dict) else None
    if known is None or (known == FORMAT and not {"topic", "name", "next", "files"} <= manifest.keys()):
        raise InvalidArgumentError(
            "this is no manifest of ringfence; restore it, or take another directory", file=os.fspath(path)
        )
    assert isinstance(manifest, dict)
    if known != FORMAT:
        raise InvalidArgumentError(
            "the manifest has a format that this version does not know; use a newer ringfence",
            directory=os.fspath(path.parent),
            format=known,
        )
    return manifest


def _refuse_strangers(root: Path, manifest: dict[str, Any]) -> None:
    """Files that the manifest does not name would be read by whoever reads the directory by name.

    Where a manifest was lost, a run that began anew would name the newer rows only.
    """
    named = {piece["path"] for piece in manifest["files"]}
    paths = (path for path in root.rglob("*") if path.suffix.lower() == ".parquet")
    found = sorted(os.fspath(path.relative_to(root)) for path in paths)
    strangers = [path for path in found if path not in named and not path.rpartition("/")[2].startswith(".")]
    if strangers:
        raise InvalidArgumentError(
            f"the directory has Parquet files that {MANIFEST} does not name; restore it if it was lost, move "
            "them away if they are not of this topic, or take another directory",
            directory=os.fspath(root),
            files=strangers[:5],
            count=len(strangers),
        )


def _next_of(manifest: dict[str, Any], topic: str, ends: Ends) -> int:
    first = int(manifest["next"].get(str(ends.partition), ends.start))
    if first < ends.start:
        raise TruncatedError(
            f"rows {first} to {ends.start - 1} were given up before they were compacted; run it more often, "
            "or keep rows longer",
            topic=topic,
            partition=ends.partition,
            rows_lost=ends.start - first,
        )
    return first


def _rows(client: Client, topic: str, piece: Piece) -> Iterator[pa.RecordBatch]:
    left = piece.last - piece.first
    for batch in client.read(topic, partition=piece.partition, start=piece.first):
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return


def _write(
    root: Path,
    piece: Piece,
    batches: Iterator[pa.RecordBatch],
    *,
    sort: list[str],
    compression: str,
    topic: str,
) -> int:
    """The rows in a hidden file, on disk; its length in bytes."""
    path = root / piece.hidden
    path.parent.mkdir(exist_ok=True)
    first = next(batches)
    told = {
        "topic": topic,
        "partition": piece.partition,
        "first_offset": piece.first,
        "end_offset": piece.last,
    }
    schema = first.schema.with_metadata({**(first.schema.metadata or {}), METADATA_KEY: json.dumps(told)})
    rows = first.num_rows
    with path.open("wb") as file:  # opened here, for pyarrow takes no name that is not UTF-8
        with pq.ParquetWriter(file, schema, compression=compression.lower()) as writer:
            if sort:
                table = _sorted(pa.Table.from_batches([first, *batches]), sort)
                rows = table.num_rows
                writer.write_table(table)
            else:
                writer.write_batch(first)
                for batch in batches:
                    rows += batch.num_rows
                    writer.write_batch(batch)
        file.flush()
        os.fsync(file.fileno())
    assert rows == piece.last - piece.first, f"{rows} rows were read of {piece}"
    _sync(path.parent)
    return path.stat().st_size


def _sorted(table: pa.Table, columns: list[str]) -> pa.Table:
    plain = pa.schema([field.with_type(without_views(field.type)) for field in table.schema])
    order = [(name, "ascending") for name in columns]
    return table.cast(plain).sort_by(order).cast(table.schema)


def _commit(root: Path, manifest: dict[str, Any], piece: Piece) -> None:
    manifest["files"].append(piece._asdict())
    manifest["next"][str(piece.partition)] = piece.last
    fresh = root / f".{MANIFEST}.new"
    with fresh.open("w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(root / MANIFEST)
    _sync(root)
    (root / piece.hidden).rename(root / piece.path)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
