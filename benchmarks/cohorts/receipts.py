"""What members received, in a file that is memory: a member that is killed leaves all that it had."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FIELDS = ("stream", "serial", "sent_ns", "received_ns", "rows")
COUNT_MAX = 1 << 20
"""Receipts of one member: 40 MiB at most, of which a file takes what is used."""

Receipts = NDArray[np.int64]
"""Shape (messages, 5): FIELDS. Times are of the machine's monotonic clock, which all processes share."""


class ReceiptFile:
    """Written by one member."""

    def __init__(self, path: Path) -> None:
        self._rows = np.memmap(path, np.int64, "w+", shape=(COUNT_MAX, len(FIELDS)))
        self._count = 0

    def add(self, stream: int, serial: int, sent_ns: int, received_ns: int, rows: int) -> None:
        """Raises IndexError above COUNT_MAX."""
        self._rows[self._count] = (stream, serial, sent_ns, received_ns, rows)
        self._count += 1


def read(path: Path) -> Receipts:
    """All receipts of a member so far; none if it has not begun."""
    if not path.exists() or not path.stat().st_size:
        return np.zeros((0, len(FIELDS)), np.int64)
    rows = np.memmap(path, np.int64, "r").reshape(-1, len(FIELDS))
    # Rows are written in order, and a time of 0 is none.
    count = bisect_left(range(len(rows)), 1, key=lambda at: int(rows[at, 3] == 0))
    return np.array(rows[:count])
