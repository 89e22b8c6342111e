"""The end of a partition's log, as changes prove it and sealed partitions keep it."""

from __future__ import annotations

import msgspec

from ringfence.control.model.ids import Epoch


class LogEnd(msgspec.Struct, frozen=True, array_like=True):
    """The end of a contiguous log: epoch of its last record, records, rows, and the chain there."""

    epoch: Epoch
    records: int
    offset: int
    chain: int
