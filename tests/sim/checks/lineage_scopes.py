"""Transactions whose partitions split and merge: rows are told apart by their ids, wherever they stand.

In which partitions a decided epoch stands is the log's business: its rows may have been staged again. What
holds of rows is held by the ledger of the lineage, once each has its outcome: those of decided tokens stand
once and in the order of their sends (T1 to T3), others nowhere (T4).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.sim.checks.scopes import Attempt, Commit, ScopeLedger

if TYPE_CHECKING:
    from tests.sim.checks.ledger import Published
    from tests.sim.checks.lineage_ledger import LineageLedger

FIRST_PRODUCER: Final = 1_000_000
"""Attempts count as producers of their own: there is no order between them."""


@dataclass(slots=True)
class LineageAttempt(Attempt):
    """`sends`: ids of the rows of each send, in their order. One that stages rows again has none."""

    producer: int = 0
    placed: Counter[int] = field(default_factory=Counter)
    """Rows by partition in which they are staged."""
    sends: list[tuple[int, ...]] = field(default_factory=list)


class LineageScopes(ScopeLedger):
    """Of one cluster with layout changes."""

    def __init__(self, ledger: LineageLedger) -> None:
        super().__init__(ledger)
        self._rows = ledger.rows

    def attempt(self, scope: int, driver: int, epoch: int, token: bytes) -> LineageAttempt:
        producer = FIRST_PRODUCER + len(self.attempts)
        made = self.attempts[token] = LineageAttempt(scope, driver, epoch, token, producer=producer)
        return made

    def sends_as(self, commit: Commit) -> None:
        """A driver is about to send it."""
        self._asked[commit.scope, commit.epoch].append(commit)

    def settle(self) -> None:
        """All is published: rows of decided tokens are stored, others never."""
        for token, attempt in self.attempts.items():
            assert isinstance(attempt, LineageAttempt), attempt
            is_decided = token in self.decided.get((attempt.scope, attempt.epoch), ())
            for ids in attempt.sends:
                for number in ids:
                    self._rows[number].outcome = "done" if is_decided else "refused"

    def _check_rows(self, name: str, partition: int, tokens: frozenset[bytes], publish: Published) -> None:
        """Held by the ledger, over all partitions."""

    def _check_missing(self, partition: int, seen: dict[int, list[int]]) -> None:
        """The same."""
