"""Keep the manifest of a compacted directory, and repair the directory after a crash.

    DIR/_manifest.parquet               the valid files, and where the next run begins in each partition
    DIR/p-9/000000000000-000000120000.parquet

The manifest is JSON in the metadata of a Parquet file that has the topic's columns and no row: some readers
of a directory skip names that begin with `_`, others (polars) read every file. No reader takes a column
from `p-9`. Directories of format 1 (`manifest.json`, `partition=9`) are converted when a run opens them.
Format 3 is written once partitions of the topic were split or merged: it has their lineage, which outlives
them.

A file is committed in four durable steps: written under a hidden name and synced; its folder synced; the
manifest replaced; the file renamed. A crash between them is repaired by the next run, for any file of the
manifest.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ringfence.native.errors import InvalidArgumentError

FORMAT = 2
WITH_LINEAGE = 3
MANIFEST = "_manifest.parquet"
METADATA_KEY = b"ringfence.manifest"
# The manifest of format 1.
MANIFEST_OLD = "manifest.json"
# Files that an error lists.
FILES_NAMED_MAX = 5
# Name of a file that a run did not finish; other hidden files are not removed.
OWN_NAME = re.compile(r"\.\d{12,}-\d{12,}\.parquet\.part")


class Piece(NamedTuple):
    """One file: rows first .. last - 1 of a partition."""

    partition: int
    first: int
    last: int
    path: str  # relative to the directory
    size: int  # bytes

    @classmethod
    def named(cls, partition: int, first: int, last: int) -> Piece:
        return cls(partition, first, last, f"p-{partition}/{first:012d}-{last:012d}.parquet", 0)

    def renamed(self) -> Piece:
        """With the path of format 2."""
        return Piece.named(self.partition, self.first, self.last)._replace(size=self.size)

    def former(self) -> Piece:
        """With the path of format 1."""
        return self._replace(path=f"partition={self.partition}/{self.path.rpartition('/')[2]}")

    @property
    def hidden(self) -> str:
        """The name before the manifest has the file. Parquet readers skip names that begin with a dot."""
        folder, name = os.path.split(self.path)
        return os.path.join(folder, f".{name}.part")  # noqa: PTH118 - a relative name, not yet a path


class FilesEnd(NamedTuple):
    """End of a partition's rows in files: rows below `offset` are in files.

    `epoch` and `time_ms` are those of the last of these rows. They prove that a log is still the one that was
    compacted. 0: unknown (format 1, or no row yet).
    """

    offset: int
    epoch: int = 0
    time_ms: int = 0


class Generation(NamedTuple):
    """A partition of a topic with lineage. `ended`: it is sealed, and all of its rows are in files."""

    created_version: int
    ended: bool = False


class Manifest:
    """The manifest of one directory. Only the holder of the directory's lock may change it.

    Attributes:
        files: in the order of their commits.
        file_ends: by partition.
        lineage: by partition; empty for a topic whose layout never changed.
        history: of the topic's metadata log; empty in format 1.
        schema: of the files that the next run writes.
    """

    def __init__(self, root: Path, topic: int, name: str, history: str) -> None:
        self.root, self.topic, self.name, self.history = root, topic, name, history
        self.schema = pa.schema([])
        self.files: list[Piece] = []
        self.file_ends: dict[int, FilesEnd] = {}
        self.lineage: dict[int, Generation] = {}

    @property
    def files_in_order(self) -> list[Piece]:
        """The files of each partition in the order of their rows, parents before children."""
        if not self.lineage:
            return self.files
        unknown = Generation(0)
        return sorted(
            self.files,
            key=lambda one: (
                self.lineage.get(one.partition, unknown).created_version,
                one.partition,
                one.first,
            ),
        )

    @classmethod
    def open(cls, root: Path, topic: int, name: str, history: str, schema: pa.Schema) -> Manifest:
        """Open or create the manifest of a directory, and repair it after a crash.

        Raises:
            InvalidArgumentError: the directory belongs to another topic or cluster, has Parquet files that
                the manifest does not name, or lacks files that the manifest names.
        """
        path = manifest_path(root)
        manifest = cls(root, topic, name, history) if path is None else read(path)
        manifest.check_topic(topic, name, history)
        manifest.history, manifest.schema = history, schema
        manifest.repair(convert=path is not None and path.name == MANIFEST_OLD)
        return manifest

    def check_topic(self, topic: int, name: str, history: str) -> None:
        """Raises InvalidArgumentError if the directory belongs to another topic."""
        if self.topic == topic and self.history in {"", history}:
            return
        raise InvalidArgumentError(
            "the directory belongs to another topic (or to a deleted topic of this name, or to another "
            "cluster); use another directory",
            directory=os.fspath(self.root),
            topic=name,
            manifest_topic=self.name,
        )

    def repair(self, *, convert: bool) -> None:
        """Rename files to their final names, and remove leftovers; `convert`: from format 1."""
        self.files = [piece.renamed() for piece in self.files]
        self._refuse_unknown_files()
        moves = self._moves()
        if convert:
            self.save()
        self._move(moves)
        self._remove_leftovers()

    def commit(self, piece: Piece, file_end: FilesEnd) -> None:
        """Add a file to the manifest that is on disk under its hidden name, then rename the file."""
        self.files.append(piece)
        self.file_ends[piece.partition] = file_end
        self.save()
        (self.root / piece.hidden).rename(self.root / piece.path)
        sync((self.root / piece.path).parent)

    def save(self) -> None:
        """Replace the manifest on disk, durably."""
        values = {
            "format": WITH_LINEAGE if self.lineage else FORMAT,
            "topic": self.topic,
            "name": self.name,
            "history": self.history,
            "next": {str(partition): end._asdict() for partition, end in sorted(self.file_ends.items())},
            "files": [piece._asdict() for piece in self.files],
        }
        if self.lineage:
            values["lineage"] = {str(one): made._asdict() for one, made in sorted(self.lineage.items())}
        schema = self.schema.with_metadata({METADATA_KEY: json.dumps(values)})
        new = self.root / f".{MANIFEST}.new"
        with new.open("wb") as file:
            pq.write_table(schema.empty_table(), file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self.root / MANIFEST)
        sync(self.root)

    def _moves(self) -> list[tuple[Path, Path]]:
        """Files that do not have their final name yet, and these names.

        Raises:
            InvalidArgumentError: a file does not exist under any of its names.
        """
        moves, missing = [], []
        for piece in self.files:
            path = self.root / piece.path
            if path.exists():
                continue
            former = piece.former()
            names = [self.root / name for name in (piece.hidden, former.path, former.hidden)]
            source = next((name for name in names if name.exists()), None)
            if source is None:
                missing.append(piece.path)
            else:
                moves.append((source, path))
        if missing:
            raise InvalidArgumentError(
                f"{MANIFEST} names files that do not exist; restore them, or use another directory, which "
                "gets every row that the topic has now",
                directory=os.fspath(self.root),
                files=missing[:FILES_NAMED_MAX],
                count=len(missing),
            )
        return moves

    def _move(self, moves: list[tuple[Path, Path]]) -> None:
        for source, path in moves:
            make_folder(path.parent)
            source.rename(path)
        for folder in sorted({name.parent for move in moves for name in move}):
            sync(folder)

    def _refuse_unknown_files(self) -> None:
        """Refuse Parquet files that the manifest does not name: readers would use them as rows of the topic.

        They may also mean that the manifest was lost, and a new one would name only newer rows.
        """
        named = {piece.path for piece in self.files} | {piece.former().path for piece in self.files}
        paths = (path for path in self.root.rglob("*") if path.suffix.lower() == ".parquet")
        names = sorted(os.fspath(path.relative_to(self.root)) for path in paths)
        named.add(MANIFEST)
        unknown = [path for path in names if path not in named and not Path(path).name.startswith(".")]
        if unknown:
            raise InvalidArgumentError(
                f"the directory has Parquet files that {MANIFEST} does not name; restore it if it was lost, "
                "move them away if they are not of this topic, or use another directory",
                directory=os.fspath(self.root),
                files=unknown[:FILES_NAMED_MAX],
                count=len(unknown),
            )

    def _remove_leftovers(self) -> None:
        """Remove unfinished files of killed runs, and the manifest and folders of format 1."""
        for folder in (*self.root.glob("p-*"), *self.root.glob("partition=*")):
            for leftover in folder.glob(".*.part"):
                if OWN_NAME.fullmatch(leftover.name):
                    leftover.unlink()
        if not (self.root / MANIFEST).exists():
            return
        for name in (MANIFEST_OLD, f".{MANIFEST_OLD}.new"):
            (self.root / name).unlink(missing_ok=True)
        for folder in self.root.glob("partition=*"):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def manifest_path(root: Path) -> Path | None:
    """Path of the manifest, also of format 1; None: there is no manifest."""
    return next((root / name for name in (MANIFEST, MANIFEST_OLD) if (root / name).exists()), None)


def read(path: Path) -> Manifest:
    """Read a manifest. Raises InvalidArgumentError for another file, or a newer format."""
    try:
        values: Any = json.loads(_text_of(path))
    except (ValueError, KeyError, pa.ArrowException):
        values = None
    form = values.get("format") if isinstance(values, dict) else None
    if type(form) is int and form > WITH_LINEAGE:
        raise InvalidArgumentError(
            "the format of the manifest is newer than this version; use a newer ringfence",
            directory=os.fspath(path.parent),
            format=form,
        )
    try:
        manifest = Manifest(path.parent, values["topic"], values["name"], values.get("history", ""))
        manifest.files = [Piece(**piece) for piece in values["files"]]
        manifest.file_ends = {
            int(partition): FilesEnd(end) if form == 1 else FilesEnd(**end)
            for partition, end in values["next"].items()
        }
        manifest.lineage = {
            int(partition): Generation(**made) for partition, made in values.get("lineage", {}).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            "the file is not a manifest of ringfence; restore it, or use another directory",
            file=os.fspath(path),
        ) from error
    return manifest


def _text_of(path: Path) -> bytes:
    if path.name == MANIFEST_OLD:
        return path.read_bytes()
    with path.open("rb") as file:  # pyarrow accepts only names in UTF-8
        return bytes((pq.read_schema(file).metadata or {})[METADATA_KEY])


def make_folder(path: Path) -> None:
    """Create a folder and its parents, durably."""
    missing = [path, *path.parents]
    missing = [folder for folder in missing if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
