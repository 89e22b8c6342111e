"""What somebody read: which row stood at which offset of which partition, in the order in which it came."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PRODUCERS_MAX = 1_000
"""A row is one number: its number times this, plus its producer."""


@dataclass(frozen=True)
class Column:
    """Rows of one partition, in the order of reading; both of shape (rows,)."""

    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]


class Seen:
    """Batches by partition; `add` as they come."""

    def __init__(self) -> None:
        self.rows = 0
        self._batches: dict[int, list[tuple[int, NDArray[np.int64]]]] = defaultdict(list)

    def add(
        self, partition: int, first: int, producers: NDArray[np.int32], numbers: NDArray[np.int64]
    ) -> None:
        """A batch whose first row stands at offset `first`; the others stand behind it."""
        self._batches[partition].append((first, numbers * PRODUCERS_MAX + producers))
        self.rows += len(numbers)

    def partitions(self) -> list[int]:
        return sorted(self._batches)

    def column(self, partition: int) -> Column:
        batches = self._batches.get(partition, [])
        empty = [np.empty(0, np.int64)]
        offsets = np.concatenate(
            empty + [np.arange(first, first + len(rows), dtype=np.int64) for first, rows in batches]
        )
        return Column(offsets, np.concatenate(empty + [rows for _, rows in batches]))


def row_text(row: int) -> str:
    return f"row {row // PRODUCERS_MAX} of producer {row % PRODUCERS_MAX}"
