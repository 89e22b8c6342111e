"""What transformers read and wrote in a seed: rows of two topics, and COMMITs that settle positions.

An output row is made of one input row: its id has the number of its attempt above that of the input row, and
its key is that row's. So the ledger of rows holds both topics, and the end compares them (CH11).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from tests.checker.cohort_history import Event, Given, Held, Returned, Taken, Told
from tests.checker.consumed import ClaimJudge, Decided, copied
from tests.sim.checks.cohorts import CohortRecord
from tests.sim.checks.lineage_ledger import LineageLedger, Row
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.keyed import SOURCE_BITS, key_of, source_of

if TYPE_CHECKING:
    from tests.sim.cohorts import CohortSimulation


class ConsumedLedger(LineageLedger):
    """Rows of the input and of the output."""

    output: Any = None
    """The layout of the output topic, at the reckoning."""

    def derived(self, producer: int, send: int, sources: Sequence[int]) -> tuple[int, ...]:
        """Ids of the rows that an attempt makes of these."""
        ids = tuple(producer << SOURCE_BITS | number for number in sources)
        for number in ids:
            self.rows[number] = Row(producer, send)
        return ids

    def may_be_lost(self, number: int) -> bool:
        """The reader of the input is not given the output."""
        return source_of(number) != number or super().may_be_lost(number)

    def check_lineage(self, layout: Any) -> None:
        """Of both topics."""
        more = () if self.output is None else self.output.partitions
        super().check_lineage(SimpleNamespace(partitions=[*layout.partitions, *more]))

    def by_key(self, layout: Any) -> dict[int, list[int]]:
        """Rows of a topic in the order of its lineage, as they were read at the reckoning."""
        found = defaultdict[int, list[int]](list)
        for part in sorted(layout.partitions, key=lambda one: (one.created_version, one.partition)):
            for number, _ in self._placed.get(int(part.partition), ()):
                found[key_of(number)].append(number)
        return dict(found)


class ConsumedRecord(CohortRecord):
    """Of a cohort whose members settle by COMMITs alone."""

    def __init__(self, world: CohortSimulation, name: str) -> None:
        super().__init__(world, name)
        self._claims = ClaimJudge()
        self.incarnation_of_producer: dict[int, int] = {}
        """Of attempts that were committed."""

    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, Held | Given):
            self._judge_claim(event)

    def _judge_claim(self, event: Held | Given | Decided) -> None:
        self._claims.take(event)
        for anomaly in self._claims.found:
            self._world.violate(ViolationError(f"CH12 {anomaly.kind}", anomaly.text))

    def returned(self, partition: int, hold: int, first: int) -> None:
        """A transaction was aborted: rows from here on come again under the hold."""
        self.take(Returned(partition, self.incarnation_of(hold), hold, first))

    def decided(self, scope: int, commit: Any) -> None:
        """The metadata has a COMMIT with positions."""
        consumed = commit.consumed
        incarnation = int(consumed.incarnation)
        if incarnation != self.incarnation:
            what = f"scope {scope} settles rows of incarnation {incarnation}, {self.incarnation} has begun"
            self._world.violate(ViolationError("CH11 behind a seek", what))
        scopes: Any = self._world.scopes
        for token in commit.tokens:
            attempt = scopes.attempts.get(token)
            if attempt is not None and (attempt.scope, attempt.epoch) == (scope, commit.epoch):
                self.incarnation_of_producer[attempt.producer] = incarnation
        self._world.count("consumed_decided")
        self._world.counts["consumed_rows"] += sum(part.rows for part in commit.parts)
        for one in consumed.ranges:
            self._world.count("ranges_decided")
            self._settles(int(one.partition), incarnation, int(one.hold), int(one.first), int(one.through))

    def _settles(self, partition: int, incarnation: int, hold: int, first: int, through: int) -> None:
        self._judge_claim(Decided(partition, incarnation, hold, first, through))
        member = next(
            (one.member for one in self.holds if (one.partition, one.hold) == (partition, hold)), ""
        )
        self._numbers += 1
        self.take(Told(member, partition, incarnation, hold, through, self._numbers))
        self.take(Taken(self._numbers))
        if incarnation == self.incarnation:
            self.settled[partition] = max(through, self.settled.get(partition, 0))

    def rows_first(self, before: Any, after: Any) -> None:
        """CT4: of a commit with unpublished rows no position is confirmed that could be written."""
        for number, scope in after.scopes.items():
            was = before.scopes.get(number)
            left = {commit.epoch: _ranges(commit) for commit in scope.pending}
            for commit in () if was is None or was is scope else was.pending:
                confirmed = _ranges(commit) - left.get(commit.epoch, frozenset())
                if commit.parts and confirmed and int(commit.consumed.incarnation) == self.incarnation:
                    what = f"positions in {sorted(confirmed)} of epoch {commit.epoch} of scope {number}"
                    raise ViolationError("CT4", f"{what} are confirmed, {commit.parts} are not published")

    # ---- the end ----

    def check_copy(self, ledger: ConsumedLedger, source: Any, output: Any) -> None:
        """CH11: all was read. Raises ViolationError."""
        by_incarnation = defaultdict[int, dict[int, list[int]]](lambda: defaultdict(list))
        for key, numbers in ledger.by_key(output).items():
            for number in numbers:
                incarnation = self.incarnation_of_producer.get(number >> SOURCE_BITS)
                if incarnation is None:
                    what = f"row {source_of(number)} is in the output, by a commit that settled nothing"
                    raise ViolationError("CH11 settled by none", what)
                by_incarnation[incarnation][key].append(source_of(number))
        rows = ledger.by_key(source)
        self._world.counts["rows_copied"] += sum(map(len, by_incarnation[self.incarnation].values()))
        found = copied(rows, by_incarnation, self.incarnation)
        if found:
            raise ViolationError(f"CH11 {found[0].kind}", found[0].text)


def _ranges(commit: Any) -> frozenset[int]:
    """Partitions whose positions are not confirmed."""
    if commit.consumed is UNSET:
        return frozenset()
    return frozenset(int(one.partition) for one in commit.consumed.ranges)
