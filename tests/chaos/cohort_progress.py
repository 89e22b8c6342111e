"""How far each key is acknowledged, while members go on. Looks at each thing that they said once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.harness.deliveries import KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.harness.member import Acked, Given, Member


class SettledKeys:
    """`members` may grow. Lines of several processes come in any order, those of one in its own."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._looked_at = defaultdict[str, list[int]](lambda: [0, 0])
        self._numbers = dict.fromkeys(range(KEYS), -1)
        self._through = defaultdict[int, int](int)
        self._rows = defaultdict[int, dict[int, tuple[int, int]]](dict)
        """By partition and offset, rows that are not acknowledged."""

    def reached(self) -> int:
        """The greatest number that is acknowledged for all keys; -1: none."""
        for member in self._members:
            given, acked = self._looked_at[member.name]
            # Acknowledgements first: what they are about was said before them.
            acks = member.acked[acked:]
            rows = member.given[given:]
            self._looked_at[member.name] = [given + len(rows), acked + len(acks)]
            for batch in rows:
                self._given(batch)
            for ack in acks:
                self._acked(ack)
        return min(self._numbers.values())

    def _given(self, batch: Given) -> None:
        for offset, row in enumerate(batch.rows, batch.first):
            self._rows[batch.partition][offset] = row
        self._settle(batch.partition)

    def _acked(self, acked: Acked) -> None:
        self._through[acked.partition] = max(acked.through, self._through[acked.partition])
        self._settle(acked.partition)

    def _settle(self, partition: int) -> None:
        rows, through = self._rows[partition], self._through[partition]
        for offset in [offset for offset in rows if offset < through]:
            key, number = rows.pop(offset)
            self._numbers[key] = max(number, self._numbers[key])
