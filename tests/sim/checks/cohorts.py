"""What members did in a seed, as a history, judged as it grows; in peace the cohort has come to every end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ringfence.consumer.calls import Call, Fetch, Fetched, Refusal, Reply, Settle, Settled
from ringfence.consumer.values import ConsumerPlace
from tests.checker.cohort_history import Event, Given, Held, History, Key, Made, Sealed, Sought, Taken, Told
from tests.checker.cohorts import CohortJudge, anomalies
from tests.sim.checks.cohort_state import CohortState
from tests.sim.checks.lineage_ledger import LineageLedger
from tests.sim.checks.violation import ViolationError

if TYPE_CHECKING:
    from tests.sim.clients.member_process import MemberProcess
    from tests.sim.cohorts import CohortSimulation


class CohortRecord(CohortState):
    """Of a cohort whose members acknowledge positions."""

    def __init__(self, world: CohortSimulation, name: str) -> None:
        super().__init__(world, name)
        self.history = History()
        self._judge = CohortJudge(self.history)
        self._ids: dict[tuple[int, int], int] = {}
        self._told: dict[tuple[str, int], list[tuple[int, int]]] = {}
        """By process and call: (partition, number of its acknowledgement)."""
        self._numbers = 0
        self.settled: dict[int, int] = {}
        """By partition: the greatest acknowledgement in the present incarnation that was taken."""
        self._asked: dict[int, Told] = {}
        self.holds: list[Held] = []
        """All that members heard of."""

    def take(self, event: Event) -> None:
        """An event; a broken promise ends the run."""
        self.history.events.append(event)
        known = len(self._judge.found)
        self._judge.take(event)
        for anomaly in self._judge.found[known:]:
            self._world.violate(ViolationError(f"cohort {anomaly.kind}", anomaly.text))

    def incarnation_of(self, hold: int) -> int:
        """Numbers of holds begin at the index of the seek, or at a later owner epoch."""
        return max((one for index, one in self.incarnations if index <= hold >> 20), default=0)

    # ---- what members do ----

    def heard(self, process: MemberProcess, call: Call, outcome: Reply | Refusal) -> None:
        """A call of a member ended."""
        if isinstance(call, Fetch) and isinstance(outcome, Fetched) and call.reopen and outcome.hold:
            position = outcome.start if call.offset is None else None
            incarnation = self.incarnation_of(outcome.hold)
            self.holds.append(Held(process.name, call.partition, incarnation, outcome.hold, position))
            self.take(self.holds[-1])
            self._world.count("hold_given")
        elif isinstance(call, Settle):
            self._settled(process, call, outcome)

    def settles(self, process: MemberProcess, call: Settle) -> None:
        """Acknowledgements leave a member."""
        numbers = self._told[process.name, call.number] = []
        for entry in call.entries:
            self._numbers += 1
            numbers.append((entry.partition, self._numbers))
            incarnation = self.incarnation_of(entry.hold)
            told = Told(
                process.name, entry.partition, incarnation, entry.hold, entry.through.offset, self._numbers
            )
            self._asked[self._numbers] = told
            self.take(told)

    def _settled(self, process: MemberProcess, call: Settle, outcome: Reply | Refusal) -> None:
        numbers = self._told.pop((process.name, call.number), [])
        if not isinstance(outcome, Settled):
            return
        refused = {entry.partition for entry in outcome.not_taken}
        self._world.counts["settlement_refused"] += len(refused)
        for partition, number in numbers:
            told = self._asked.pop(number)
            if partition not in refused:
                self.take(Taken(number))
                self._world.count("settlement_taken")
                if told.incarnation == self.incarnation:
                    self.settled[partition] = max(told.through, self.settled.get(partition, 0))

    def given(self, process: MemberProcess, place: ConsumerPlace, ids: tuple[int, ...]) -> None:
        """An application gets rows."""
        for offset, number in enumerate(ids, place.first_offset):
            known = self._ids.setdefault((place.partition, offset), number)
            if known != number:
                what = f"row {offset} of partition {place.partition} is {number}, {known} was given before"
                self._world.violate(ViolationError("cohort two values", what))
        hold = place.fencing_token
        incarnation = self.incarnation_of(hold)
        self._world.counts["rows_given_to_members"] += len(ids)
        self.take(
            Given(process.name, place.partition, incarnation, hold, place.first_offset, place.end_offset)
        )

    # ---- what the metadata and owners say ----

    def begins(self, incarnation: int, begins: dict[int, int]) -> None:
        self.settled.clear()
        self.take(Sought(incarnation, begins))

    def made(self, partition: int, parents: tuple[int, ...]) -> None:
        self.take(Made(partition, parents))

    def sealed(self, partition: int, end: int) -> None:
        self.take(Sealed(partition, end))

    def missing(self, partition: int, figures: dict[str, Any]) -> str:
        if figures["settled"] < self.settled.get(partition, 0):
            what = (
                f"partition {partition}: an owner has {figures}, {self.settled[partition]} was acknowledged"
            )
            self._world.violate(ViolationError("cohort back", what))
        return ""

    # ---- the end ----

    def check(self) -> None:
        """In the end: orders of keys, and no row that the cohort passed. Raises ViolationError."""
        ledger = cast("LineageLedger", self._world.ledger)

        def key_of(partition: int, offset: int) -> Key | None:
            number = self._ids.get((partition, offset))
            if number is None or ledger.rows[number].outcome != "done":
                return None
            key = ledger.order(number)
            return None if key is None else Key(key, (ledger.rows[number].send, number))

        state = self._world.machines[0].replica.state
        topic = self._world.topic_of(state)
        ends = dict[int, int]()
        for partition in self.partitions if topic is not None and self.cohort(state) is not None else ():
            sealed = ledger.ends.get(partition)
            ends[partition] = ledger.partitions[partition].end if sealed is None else sealed[0]
        found = anomalies(History(self.history.events, key_of, ends))
        if found:
            raise ViolationError(f"cohort {found[0].kind}", found[0].text)
