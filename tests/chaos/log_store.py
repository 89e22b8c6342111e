"""The database of the CHECKPOINT cohort of the log checker: rows and positions, as docs/consumers.md says.

Members of all processes share it. Each chunk of rows that was saved stays, in the order of the commits, so
the judgement needs no word of a member.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np

from ringfence import ConsumerPlace
from tests.chaos.log_record import Line, TopicRows
from tests.checker.log_history import Values

BUSY_S: Final = 120.0
"""A member may be frozen while it saves."""
TABLES: Final = """
pragma journal_mode = wal;
pragma synchronous = off;
create table if not exists chunks (
    number integer primary key autoincrement, at real not null, member text not null,
    partition integer not null, first integer not null, end integer not null, token integer not null,
    vals blob not null, keys blob not null
);
create table if not exists positions (
    partition integer primary key, token text not null, fencing_token integer not null,
    next_row integer not null
);
"""
CHUNK: Final = """
insert into chunks (at, member, partition, first, end, token, vals, keys) values (?, ?, ?, ?, ?, ?, ?, ?)
"""
SAVE: Final = """
insert into positions values (:partition, :token, :fencing_token, :end) on conflict (partition) do update
set token = excluded.token, fencing_token = excluded.fencing_token, next_row = excluded.next_row
where fencing_token <= excluded.fencing_token and next_row <= :first
"""


class Chunk(NamedTuple):
    """Rows that were saved in one transaction."""

    at: float
    member: str
    partition: int
    first: int
    end: int
    token: int
    values: Values
    keys: Values


class LogStore:
    """A connection of one process."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        self._database.executescript(TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def load(self, partition: int) -> str | None:
        """The position of a partition; None: nothing of it was saved."""
        found = self._database.execute("select token from positions where partition = ?", (partition,))
        row = found.fetchone()
        return None if row is None else str(row[0])

    def save(self, place: ConsumerPlace, member: str, values: Values, keys: Values) -> bool:
        """Rows and position together. False: they are there, or another reader has the partition by now."""
        self._database.execute("begin immediate")
        try:
            is_saved = self._write(place, member, values, keys)
        except BaseException:
            self._database.execute("rollback")
            raise
        self._database.execute("commit" if is_saved else "rollback")
        return is_saved

    def _write(self, place: ConsumerPlace, member: str, values: Values, keys: Values) -> bool:
        where = (place.partition, place.first_offset, place.end_offset, place.fencing_token)
        blobs = (values.astype(np.int64).tobytes(), keys.astype(np.int64).tobytes())
        self._database.execute(CHUNK, (time.monotonic(), member, *where, *blobs))
        position = {
            "partition": place.partition,
            "token": place.token(),
            "fencing_token": place.fencing_token,
            "first": place.first_offset,
            "end": place.end_offset,
        }
        return self._database.execute(SAVE, position).rowcount == 1

    def chunks(self) -> list[Chunk]:
        """All, in the order of the commits."""
        columns = "at, member, partition, first, end, token, vals, keys"
        found = self._database.execute(f"select {columns} from chunks order by number").fetchall()
        return [Chunk(*row[:6], *(np.frombuffer(blob, np.int64) for blob in row[6:])) for row in found]


def saved_lines(chunks: list[Chunk]) -> list[Line]:
    """What was saved as if a member had been given it, and an owner had heard of it, at the same moment."""
    return [
        Line(one.at, what, one.member, one.partition, one.first, one.end, one.token)
        for one in chunks
        for what in ("given", "told", "acked")
    ]


def other_chunks(chunks: list[Chunk], rows: TopicRows) -> list[str]:
    """Chunks that are not what the topic has at their place."""
    told = ((one, rows.note(one.partition, one.first, one.values, one.keys)) for one in chunks)
    return [f"other rows: {one.member} saved {text}" for one, text in told if text is not None]
