"""What was sent, followed and read at the end, held against each other: each harm has a name.

    LOST          acknowledged, and not there at the end
    DOUBLED       one row at two offsets
    REORDERED     a later row of a producer stands before an earlier one, in one partition
    TWO_VALUES    two rows were seen at one offset, by anybody at any time
    VANISHED      a reader saw a row at an offset that does not exist at the end
    MISSED        a reader passed over an offset, or ended before the last one
    AGAIN         a reader was given an offset twice, or a lower one after a higher one
    STRANGE       a row that nobody sent
    CHANGED       a row whose content is not what was sent (`reading.py` looks)

Pure: `test_proof.py` plants each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tests.chaos.seen import PRODUCERS_MAX, Column, Seen, row_text


class Harm(StrEnum):
    LOST = "lost"
    DOUBLED = "doubled"
    REORDERED = "reordered"
    TWO_VALUES = "two values at one offset"
    VANISHED = "read then vanished"
    MISSED = "missed by a reader"
    AGAIN = "read again by a reader"
    STRANGE = "never sent"
    CHANGED = "content changed"


@dataclass(frozen=True)
class Violation:
    harm: Harm
    count: int
    """How many rows of that partition or producer."""
    first: str

    def __str__(self) -> str:
        return f"{self.harm}: {self.count:,} rows, the first is {self.first}"


def judge(read: Seen, readers: Iterable[tuple[Seen, list[int]]], sent: dict[int, int]) -> list[Violation]:
    """All violations; none for a sound history.

    Args:
        read: the whole topic, read when everything was quiet.
        readers: what each reader was given until it had caught up, and which partitions it followed.
        sent: producer -> how many rows it sent, numbered from 0; all of them acknowledged.
    """
    found = [*_stored(read, sent)]
    for seen, partitions in readers:
        for partition in sorted({*partitions, *seen.partitions()}):
            found += _followed(partition, read.column(partition), seen.column(partition))
    return found


def _stored(read: Seen, sent: dict[int, int]) -> Iterator[Violation]:
    columns = {partition: read.column(partition) for partition in read.partitions()}
    for partition, column in columns.items():
        yield from _two_values(partition, column)
        yield from _reordered(partition, column)
    rows = np.sort(np.concatenate([np.empty(0, np.int64), *(column.rows for column in columns.values())]))
    yield from _told(Harm.DOUBLED, rows[1:][rows[1:] == rows[:-1]])
    producers, numbers = rows % PRODUCERS_MAX, rows // PRODUCERS_MAX
    limits = np.zeros(PRODUCERS_MAX, np.int64)
    for producer, count in sent.items():
        limits[producer] = count
    yield from _told(Harm.STRANGE, rows[numbers >= limits[producers]])
    for producer, count in sent.items():
        wanted = np.arange(count, dtype=np.int64)
        yield from _told(
            Harm.LOST, np.setdiff1d(wanted, numbers[producers == producer]) * PRODUCERS_MAX + producer
        )


def _two_values(partition: int, column: Column) -> Iterator[Violation]:
    order = np.lexsort((column.rows, column.offsets))
    offsets, rows = column.offsets[order], column.rows[order]
    differs = (offsets[1:] == offsets[:-1]) & (rows[1:] != rows[:-1])
    yield from _told(Harm.TWO_VALUES, rows[1:][differs], f"at {_place(partition, offsets[1:][differs])}")


def _reordered(partition: int, column: Column) -> Iterator[Violation]:
    _, first = np.unique(column.rows, return_index=True)  # a repeat is DOUBLED, not out of order
    kept = np.zeros(len(column.rows), bool)
    kept[first] = True
    rows = column.rows[kept][np.argsort(column.offsets[kept], kind="stable")]
    for producer in np.unique(rows % PRODUCERS_MAX):
        own = rows[rows % PRODUCERS_MAX == producer]
        late = own[1:][np.diff(own) < 0]
        yield from _told(Harm.REORDERED, late, f"in partition {partition}")


def _followed(partition: int, truth: Column, seen: Column) -> Iterator[Violation]:
    """`seen`, as a reader was given it, against what is there at the end."""
    back = np.diff(seen.offsets) <= 0
    yield from _told(Harm.AGAIN, seen.rows[1:][back], f"at {_place(partition, seen.offsets[1:][back])}")
    yield from _two_values(partition, seen)
    order = np.argsort(truth.offsets, kind="stable")
    offsets, rows = truth.offsets[order], truth.rows[order]
    at = np.searchsorted(offsets, seen.offsets)
    inside = np.minimum(at, max(len(offsets) - 1, 0))
    is_there = (at < len(offsets)) & (offsets[inside] == seen.offsets if len(offsets) else False)
    gone = seen.offsets[~is_there]
    yield from _told(Harm.VANISHED, seen.rows[~is_there], f"at {_place(partition, gone)}")
    known = seen.rows[is_there]
    differs = rows[at[is_there]] != known
    where = _place(partition, seen.offsets[is_there][differs])
    yield from _told(Harm.TWO_VALUES, known[differs], f"seen at {where}, where another one is at the end")
    missed = ~np.isin(offsets, seen.offsets)
    yield from _told(Harm.MISSED, rows[missed], f"at {_place(partition, offsets[missed])}")


def _place(partition: int, offsets: NDArray[np.int64]) -> str:
    return f"offset {int(offsets[0])} of partition {partition}" if len(offsets) else ""


def _told(harm: Harm, rows: NDArray[np.int64], where: str = "") -> Iterator[Violation]:
    if len(rows):
        yield Violation(harm, len(rows), f"{row_text(int(rows[0]))} {where}".rstrip())


def shown(violations: list[Violation], most: int = 40) -> list[str]:
    """Lines to print: at most so many, and how many there are."""
    lines = [str(violation) for violation in islice(violations, most)]
    more = len(violations) - len(lines)
    return [*lines, *([f"... and {more} more"] if more else [])]
