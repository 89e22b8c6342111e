"""What members did in a seed, as a history, judged as it grows; in peace the cohort has come to every end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ringfence.consumer.calls import Call, Fetch, Fetched, Refusal, Reply, Settle, Settled
from ringfence.consumer.values import ConsumerPlace
from ringfence.control.model.ids import drawn_at
from ringfence.control.runtime.cohorts.figures import gate_owners
from ringfence.control.state_machines.metadata.cohort_lineage import has_mark
from tests.checker.cohort_history import Event, Given, Held, History, Key, Made, Sealed, Sought, Taken, Told
from tests.checker.cohorts import CohortJudge, anomalies
from tests.sim.checks.lineage_ledger import LineageLedger
from tests.sim.checks.violation import ViolationError

if TYPE_CHECKING:
    from tests.sim.clients.member import MemberProcess
    from tests.sim.cohorts import CohortSimulation


class CohortRecord:
    """Of one cohort of the topic that rows go to."""

    def __init__(self, world: CohortSimulation) -> None:
        self._world = world
        self.history = History()
        self._judge = CohortJudge(self.history)
        self._ids: dict[tuple[int, int], int] = {}
        self._incarnations: list[tuple[int, int]] = []
        """(index of its entry, incarnation), ascending."""
        self._told: dict[tuple[str, int], list[tuple[int, int]]] = {}
        """By process and call: (partition, number of its acknowledgement)."""
        self._numbers = 0
        self._partitions: dict[int, bool] = {}
        """By partition: whether it is known as sealed."""
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
        return max((one for index, one in self._incarnations if index <= hold >> 20), default=0)

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
                if told.incarnation == self._incarnations[-1][1]:
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

    # ---- what the metadata says ----

    def changed(self, state: Any) -> None:
        """A newer state, applied somewhere for the first time."""
        found = self.cohort(state)
        if found is not None:
            entry = int(drawn_at(found.incarnation)), int(found.incarnation)
            if entry not in self._incarnations:
                self._incarnations.append(entry)
                self.settled.clear()
                begins = {int(one.partition): int(one.offset) for one in found.start.positions}
                self.take(Sought(entry[1], begins))
                self._world.count("incarnation")
        topic = self._world.topic_of(state)
        if topic is None:
            return
        for part in topic.layout.partitions:
            number = int(part.partition)
            if number not in self._partitions:
                self._partitions[number] = False
                self.take(Made(number, tuple(map(int, part.parents))))
            seal = topic.seal(part.partition)
            if seal is not None and not self._partitions[number]:
                self._partitions[number] = True
                self.take(Sealed(number, int(seal.end.offset)))

    def cohort(self, state: Any) -> Any:
        """The cohort; None: there is none yet, or not any more."""
        topic = self._world.topic_of(state)
        return next(
            (one for one in state.cohorts.values() if topic is not None and one.topic == topic.topic), None
        )

    # ---- the end ----

    def behind(self, state: Any) -> str:
        """What the cohort has not come to yet; empty if it is at every end."""
        topic, found = self._world.topic_of(state), self.cohort(state)
        if topic is None or found is None:
            return "" if topic is None else "there is no cohort"
        if found.resetting:
            return f"partitions {found.resetting} have not begun"
        owners = gate_owners(topic)
        for part in topic.layout.partitions:
            number = part.partition
            if has_mark(state, found.cohort, number):
                continue
            if not part.is_active:
                return f"sealed partition {number} is not drained"
            machine = self._world.by_node(int(owners[number]))
            figures = [] if machine is None or not machine.serving else machine.host.node.cohort_figures()
            mine = next(
                (one for one in figures if (one["partition"], one["cohort"]) == (number, found.cohort)), None
            )
            if mine is None or mine["settled"] < mine["end"]:
                return f"partition {number}: {mine} is not settled to its end"
            if mine["settled"] < self.settled.get(int(number), 0):
                what = (
                    f"partition {number}: an owner has {mine}, {self.settled[int(number)]} was acknowledged"
                )
                self._world.violate(ViolationError("cohort back", what))
        return ""

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
        for partition in self._partitions if topic is not None and self.cohort(state) is not None else ():
            sealed = ledger.ends.get(partition)
            ends[partition] = ledger.partitions[partition].end if sealed is None else sealed[0]
        found = anomalies(History(self.history.events, key_of, ends))
        if found:
            raise ViolationError(f"cohort {found[0].kind}", found[0].text)
