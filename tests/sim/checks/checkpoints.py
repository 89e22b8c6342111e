"""The store of a CHECKPOINT cohort, with its rows, and what must be true of it.

Rows and their position are saved together, by the rule of the documents: a save under an older fencing token
than the newest one is refused, and so is one that does not go on at the store's position. The rest is up to
the cohort:

| rule | what breaks it |
|---|---|
| gap | a member is given rows behind the store's position: those between are in no store |
| early | rows of a child are saved before the store has all of its parents |
| ahead | rows are reported, or settled, and so given to retention, that the store does not have |
| order | rows of a key are not saved in the order of their sends |
| position | a member hears that its store is behind the cohort, and it is not |
| behind | in peace the store does not have every row, or has others than the log |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ringfence.consumer.values import Point
from tests.sim.checks.cohorts import CohortRecord
from tests.sim.checks.violation import ViolationError

if TYPE_CHECKING:
    from ringfence.consumer.calls import Settle
    from ringfence.consumer.values import ConsumerPlace
    from tests.sim.checks.lineage_ledger import LineageLedger
    from tests.sim.clients.member_process import MemberProcess
    from tests.sim.cohorts import CohortSimulation


class CheckpointRecord(CohortRecord):
    """Of a cohort whose members keep positions in one store."""

    def __init__(self, world: CohortSimulation, name: str) -> None:
        super().__init__(world, name)
        self.history.repeats = True
        self.store: dict[int, Point] = {}
        self._tokens: dict[int, int] = {}
        """By partition: the newest fencing token of a save."""
        self._parents: dict[int, tuple[int, ...]] = {}
        self._ends: dict[int, int] = {}
        self._last: dict[tuple[int, int], tuple[int, int]] = {}
        """By key: send and id of the row that was saved last."""

    def _broken(self, rule: str, text: str) -> None:
        self._world.violate(ViolationError(f"checkpoint {rule}", text))

    def save(self, place: ConsumerPlace, ids: tuple[int, ...]) -> bool:
        """Save rows with the position after them. False: another member was here since."""
        partition, ledger = place.partition, cast("LineageLedger", self._world.ledger)
        reached = self.store.get(partition, Point(0, 0))
        is_fenced = place.fencing_token < self._tokens.get(partition, 0)
        if is_fenced or place.first_offset < reached.offset:
            self._world.count("checkpoint_refused")
            return False
        if place.first_offset > reached.offset:
            self._broken("gap", f"{place} is given, the store is at {reached}")
        for parent in self._parents.get(partition, ()):
            at, end = self.store.get(parent, Point(0, 0)).offset, self._ends.get(parent)
            if end is None or at < end:
                self._broken("early", f"{place} is given, of its parent {parent} the store has {at} of {end}")
        for number in ids:
            key, row = ledger.order(number), ledger.rows[number]
            if key is not None and row.outcome == "done" and number not in ledger.passed_over:
                if (row.send, number) < self._last.get(key, (0, 0)):
                    what = f"row {number} of send {row.send} in {place}"
                    self._broken("order", f"{what} comes after {self._last[key]} of key {key}")
                self._last[key] = row.send, number
        self.store[partition], self._tokens[partition] = place.end, place.fencing_token
        self._world.counts["rows_saved"] += len(ids)
        return True

    def settles(self, process: MemberProcess, call: Settle) -> None:
        for entry in call.entries:
            self._check_reported(entry.partition, entry.through.offset, f"{process.name} reports")
        super().settles(process, call)

    def refused(self, name: str, error: Exception) -> None:
        """A member cannot begin at what the store says."""
        self._broken("position", f"{name}, with the store {self.store}: {error!r}")

    # ---- what the metadata and owners say ----

    def made(self, partition: int, parents: tuple[int, ...]) -> None:
        super().made(partition, parents)
        self._parents[partition] = parents

    def sealed(self, partition: int, end: int) -> None:
        super().sealed(partition, end)
        self._ends[partition] = end

    def missing(self, partition: int, figures: dict[str, Any]) -> str:
        self._check_reported(partition, figures["settled"], "an owner has settled")
        return super().missing(partition, figures)

    def _check_reported(self, partition: int, offset: int, what: str) -> None:
        reached = self.store.get(partition, Point(0, 0)).offset
        if offset > reached:
            self._broken("ahead", f"{what} {offset} of partition {partition}, the store is at {reached}")

    # ---- the end ----

    def check(self) -> None:
        super().check()
        state, ledger = self._world.machines[0].replica.state, cast("LineageLedger", self._world.ledger)
        if self._world.topic_of(state) is None or self.cohort(state) is None:
            return
        for partition in self.partitions:
            sealed = ledger.ends.get(partition)
            end = ledger.partitions[partition].end if sealed is None else sealed[0]
            reached = self.store.get(partition, Point(0, 0)).offset
            if reached < end:
                what = f"partition {partition}: the store is at {reached} of {end}, and the cohort is through"
                raise ViolationError("checkpoint behind", what)
