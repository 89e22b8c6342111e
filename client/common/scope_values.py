"""Values that a scope's driver and the writers of its rows exchange."""

from __future__ import annotations

from typing import NamedTuple

Parts = dict[tuple[int, int], int]  # (topic id, partition) -> rows


class Begun(NamedTuple):
    """One driver of a scope. Epochs up to `committed` are in the log, up to `decided` are taken."""

    scope: int
    driver: int
    committed: int
    decided: int


class StagedRows(NamedTuple):
    """What one attempt staged: all of it is on disk, none of it can be read.

    `already`: the epoch was committed before, so nothing was stored. `scope` and `epoch` say where it is
    staged, `driver` by whom; 0: not known.
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
