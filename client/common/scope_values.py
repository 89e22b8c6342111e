"""Values that the driver of a scope and the writers of its rows exchange."""

from __future__ import annotations

from typing import NamedTuple

Parts = dict[tuple[int, int], int]  # (topic id, partition) -> rows


class Begun(NamedTuple):
    """One driver of a scope. Epochs up to `committed` are in the log; epochs up to `decided` are used."""

    scope: int
    driver: int
    committed: int
    decided: int


class StagedRows(NamedTuple):
    """The rows that one attempt staged: on disk, but not visible to readers.

    `already`: the epoch was committed before, so nothing was stored. `scope`, `epoch` and `driver` identify
    the stage; 0: not known.
    """

    token: bytes
    parts: Parts
    already: bool
    scope: int = 0
    epoch: int = 0
    driver: int = 0

    @property
    def rows(self) -> int:
        return sum(self.parts.values())
