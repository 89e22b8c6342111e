"""What must be true of the rows of a QUEUE: held against what left owners, and what members heard and said.

| rule | what breaks it |
|---|---|
| two leases | an owner leases a row that is on lease to another process, by the owner's clock |
| again | a row leaves an owner on lease after a member has heard that it is done, parked or discarded |
| given after | an application gets a row after that, and no owner change, lost session or clock explains it |
| taken over | done, or another end, is taken from a process while the row is on lease to another one |
| unsaid | a member tells of a row what its application has not said |
| over the limit | a row comes with a count at the limit, or fails more often than halves allow |
| parked early | a row is parked that did not fail so often, and was not given up |
| lost | in peace a row is neither done nor parked; or both |
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from ringfence.consumer.queue_calls import Leased, NotTakenBecause, QueueSettle, QueueSettled, What
from ringfence.control.state_machines.metadata.cohort_lineage import heir
from tests.sim.checks.cohort_state import CohortState
from tests.sim.checks.queue_rows import CONNECTION_S, LATE_S, Lease, Node, RowState
from tests.sim.checks.violation import ViolationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringfence.consumer.calls import Call, Refusal, Reply
    from ringfence.consumer.values import ConsumerPlace
    from ringfence.native.cohort_messages import ParkedRange
    from tests.sim.checks.lineage_ledger import LineageLedger
    from tests.sim.clients.queue_member import QueueProcess
    from tests.sim.cohorts import CohortSimulation
    from tests.sim.world.machine import Machine

HALVES: Final = 16
"""Deliveries that a row may fail with others, beside the limit."""
RATES: Final = (0.96, 1.04)
"""Of clocks by which members and owners count a lease alike."""
PARKED: Final = NotTakenBecause.PARKED
Rows = dict[int, RowState]
Gate = tuple[int, int]
"""Incarnation and partition."""


class QueueRecord(CohortState):
    """Of a cohort whose members take rows on lease."""

    def __init__(self, world: CohortSimulation, name: str, lease_s: float, limit: int) -> None:
        super().__init__(world, name)
        self.lease_s, self.limit = lease_s, limit
        self._rows = defaultdict[Gate, Rows](lambda: defaultdict(RowState))
        self._begins: dict[int, dict[int, int]] = {}
        self._owners = defaultdict[int, int](int)
        """By partition: how often the owner of its gate changed."""
        self._owner: dict[int, tuple[int, int]] = {}
        """By partition: node and owner epoch of its gate."""
        self._topic: Any = None
        self._sessions: dict[str, int] = {}
        """By process, as long as it is registered."""
        self._over: dict[str, int] = {}
        """By process: when a session of it was registered no more."""
        self._cuts = defaultdict[tuple[str, str], list[tuple[int, float]]](list)
        """By process and machine: (time, owner's clock) of each end of a connection."""
        self._sent: dict[tuple[str, int], tuple[int, float, Machine]] = {}
        """By process and call: when an acknowledgement left, the owner's clock then, and the owner."""
        self._ids: dict[tuple[int, int], int] = {}
        self._newest: dict[str, int] = {}
        """By process: the incarnation of which its application got rows last."""
        self.parked: list[ParkedRange] | None = None
        """The list of an operator, in peace."""
        self.is_drained = False
        """In peace: all is settled, so the list can be made."""

    def _broken(self, rule: str, text: str) -> None:
        self._world.violate(ViolationError(f"queue {rule}", text))

    def rows(self, incarnation: int, partition: int, first: int, end: int) -> Iterator[tuple[int, RowState]]:
        """Rows `first` .. `end - 1` with what is known of them."""
        rows = self._rows[incarnation, partition]
        return ((row, rows[row]) for row in range(first, end))

    # ---- owners ----

    def left(self, process: QueueProcess, machine: Machine, reply: Leased) -> None:
        """An answer with rows on lease leaves an owner."""
        now_us, owners = self._world.agenda.now_us, self._owners[reply.partition]
        clock, node = machine.clock, Node(machine.name, machine.host.life)
        until_s = clock.mono_s() - LATE_S + self.lease_s
        lease = Lease(process.name, node, owners, now_us, until_s, clock.rate)
        for line in reply.lines:
            self._world.counts["rows_leased"] += line.end - line.first
            # At a limit of 1 what failed with others has a count of 1, too, and is parked when it fails.
            if self.limit and line.failures >= self.limit + (self.limit == 1):
                what = f"{line} of partition {reply.partition} is on lease to {process.name}"
                self._broken("over the limit", f"{what}, the limit is {self.limit}")
            for row, state in self.rows(reply.incarnation, reply.partition, line.first, line.end):
                name = f"row {row} of partition {reply.partition}, on lease to {process.name} from {node}"
                settled_us = max(state.done_us, state.parked_us, state.discarded_us)
                if settled_us >= 0:
                    self._broken("again", f"{name}, is done or parked since {settled_us} us: {state}")
                other = state.lease
                if (
                    other is not None
                    and other.process != process.name
                    and self._lasts(other, machine, reply.partition)
                ):
                    self._broken("two leases", f"{name}, is on lease to {other}")
                state.leased(lease)

    def _lasts(self, lease: Lease, machine: Machine, partition: int) -> bool:
        """By the owner's clock, at the same owner."""
        is_others = lease.owners != self._owners[partition]
        if is_others or lease.node != (machine.name, machine.host.life) or self._is_over(lease):
            return False
        until_s = lease.until_s
        for at_us, clock_s in self._cuts[lease.process, machine.name]:
            if at_us >= lease.left_us:
                until_s = min(until_s, clock_s + CONNECTION_S)
                break
        return machine.clock.mono_s() < until_s

    def _is_over(self, lease: Lease) -> bool:
        """Whether its session is not registered any more."""
        is_registered = lease.process in self._sessions
        return not is_registered or lease.left_us <= self._over.get(lease.process, -1)

    def cut(self, process: QueueProcess, machine: Machine) -> None:
        """A connection of a member ended."""
        self._cuts[process.name, machine.name].append((self._world.agenda.now_us, machine.clock.mono_s()))

    # ---- members ----

    def settles(self, process: QueueProcess, machine: Machine, call: QueueSettle) -> None:
        """What became of rows leaves a member."""
        now_us = self._world.agenda.now_us
        self._sent[process.name, call.number] = now_us, machine.clock.mono_s(), machine
        said = process.said[call.incarnation, call.partition]
        for line in call.lines:
            for row, state in self.rows(call.incarnation, call.partition, line.first, line.end):
                match line.what:
                    case What.DONE | What.FAILED | What.PARKED:
                        if (row, line.what) not in said:
                            what = (
                                f"{process.name} tells that row {row} of {call.partition} is {line.what.name}"
                            )
                            self._broken("unsaid", f"{what}, its application did not say so")
                        state.is_told |= line.what is What.DONE
                        state.is_given_up |= line.what is What.PARKED
                        state.tries += line.what is What.FAILED
                    case What.BEGUN:
                        state.tries += 1
                    case What.GONE:
                        state.is_gone = True
                if line.what not in (What.BEGUN, What.EXTENDED):
                    state.ends(process.name, call.number, now_us)

    def heard(self, process: QueueProcess, call: Call, outcome: Reply | Refusal) -> None:
        """A call of a member ended with an answer."""
        if not isinstance(call, QueueSettle):
            return
        sent_us, sent_s, machine = self._sent.pop((process.name, call.number))
        if not isinstance(outcome, QueueSettled):
            return
        why = {row: one.why for one in outcome.not_taken for row in range(one.first, one.end)}
        self._world.counts["rows_not_taken"] += len(why)
        for line in call.lines:
            for row, state in self.rows(call.incarnation, call.partition, line.first, line.end):
                state.ended(process.name, call.number)
                is_parked = why.get(row) is PARKED
                if row in why and not is_parked:
                    continue
                name = f"row {row} of partition {call.partition}"
                if line.what is What.EXTENDED:
                    self._extended(process, machine, state, (sent_us, sent_s), call.partition)
                    continue
                if line.what is What.BEGUN:
                    continue
                self._check_taken(
                    process, machine, state, sent_us, (call.partition, f"{name}, {line.what.name}")
                )
                if line.what is What.DONE:
                    self._world.counts["rows_done"] += 1
                    state.done_us = self._world.agenda.now_us if state.done_us < 0 else state.done_us
                elif line.what is What.FAILED:
                    state.failed += 1
                    self._check_failures(call.partition, row, state)
                if is_parked:
                    self._world.counts["rows_parked"] += 1
                    if state.put_back_us < sent_us:
                        state.parked_us = self._world.agenda.now_us
                    self._check_parked(name, state)

    def _extended(
        self,
        process: QueueProcess,
        machine: Machine,
        state: RowState,
        sent: tuple[int, float],
        partition: int,
    ) -> None:
        sent_us, sent_s = sent
        is_others = state.lease is not None and state.lease.process != process.name
        if is_others or (state.end is not None and state.end.sent_us >= sent_us):
            return
        node, owners = Node(machine.name, machine.host.life), self._owners[partition]
        lease = state.by_process.get(process.name)
        if lease is None or lease.node != node:
            state.tries += 1  # it was taken up again, and counts as begun
        now_us, until_s = self._world.agenda.now_us, sent_s + self.lease_s
        state.leased(Lease(process.name, node, owners, now_us, until_s, machine.clock.rate))

    def _check_taken(
        self, process: QueueProcess, machine: Machine, state: RowState, sent_us: int, place: tuple[int, str]
    ) -> None:
        partition, name = place
        other = state.lease
        if other is None or other.process == process.name or other.left_us >= sent_us:
            return
        if self._lasts(other, machine, partition):
            self._broken("taken over", f"{name} of {process.name} was taken, the row is on lease to {other}")

    def _check_failures(self, partition: int, row: int, state: RowState) -> None:
        bound = self.limit + HALVES + self._owners[partition]
        if self.limit and state.failed > bound:
            what = f"row {row} of partition {partition} failed {state.failed} times"
            self._broken("over the limit", f"{what}: limit {self.limit}, owners changed {bound}")

    def _check_parked(self, name: str, state: RowState) -> None:
        if not state.is_given_up and (not self.limit or state.tries < self.limit):
            what = f"{name} is parked: of {state.tries} deliveries none can have failed but these"
            self._broken("parked early", f"{what}, the limit is {self.limit}")

    def lied(self, process: QueueProcess, call: QueueSettle, settled: QueueSettled) -> None:
        """An owner answered what a process said of rows that are on lease to another."""
        refused = {row for one in settled.not_taken for row in range(one.first, one.end)}
        refused -= {
            row for one in settled.not_taken if one.why is PARKED for row in range(one.first, one.end)
        }
        for line in call.lines:
            for row, state in self.rows(call.incarnation, call.partition, line.first, line.end):
                if row not in refused and process.name not in state.by_process:
                    what = f"{line.what.name} of row {row} of partition {call.partition} by {process.name}"
                    self._broken("taken over", f"{what} was taken, which never had it: {state}")

    def given(self, process: QueueProcess, place: ConsumerPlace, ids: tuple[int, ...]) -> None:
        """An application gets rows."""
        for offset, number in enumerate(ids, place.first_offset):
            known = self._ids.setdefault((place.partition, offset), number)
            if known != number:
                what = f"row {offset} of partition {place.partition} is {number}, {known} was given before"
                self._broken("two values", what)
        if place.fencing_token < self._newest.get(process.name, 0):
            self._broken(
                "behind a seek", f"{process.name} is given {place} after rows of a later incarnation"
            )
        self._newest[process.name] = place.fencing_token
        self._world.counts["rows_given_to_members"] += place.rows
        for row, state in self.rows(
            place.fencing_token, place.partition, place.first_offset, place.end_offset
        ):
            lease = state.by_process.get(process.name)
            name = f"row {row} of partition {place.partition}"
            if lease is None:
                self._broken("unleased", f"{name} is given to {process.name}, which has no lease of it")
                return
            if state.done_us < 0:
                continue
            machine = next(one for one in self._world.machines if one.name == lease.node.name)
            is_odd = not all(RATES[0] < rate < RATES[1] for rate in (lease.rate, machine.clock.rate))
            if lease.owners != self._owners[place.partition] or self._is_over(lease) or is_odd:
                self._world.counts["rows_given_late"] += 1
                continue
            what = f"{name} is given to {process.name} by {lease}"
            self._broken("given after", f"{what}, and is done since {state.done_us} us")

    def acknowledged(
        self, process: QueueProcess, place: ConsumerPlace, ranges: Iterable[tuple[int, int]]
    ) -> None:
        """An application hears that its rows are done."""
        for first, end in ranges:
            for row, state in self.rows(place.fencing_token, place.partition, first, end):
                if state.done_us < 0:
                    what = f"the application of {process.name} hears that row {row} of {place} is done"
                    self._broken("unheard", f"{what}, and no owner said so")

    # ---- operators ----

    def puts_back(self, items: Iterable[ParkedRange]) -> None:
        """An operator asks for a retry: the rows may be delivered from now on."""
        for state in self._of(items):
            state.parked_us, state.failed, state.put_back_us = -1, 0, self._world.agenda.now_us

    def discards(self, items: Iterable[ParkedRange]) -> None:
        """An operator asks that parked rows are dropped: they may be in no list from now on."""
        for state in self._of(items):
            state.parked_us, state.is_discarded = -1, True

    def discarded(self, items: Iterable[ParkedRange]) -> None:
        """It heard that they are."""
        for state in self._of(items):
            state.discarded_us = self._world.agenda.now_us

    def _of(self, items: Iterable[ParkedRange]) -> Iterator[RowState]:
        for one in items:
            for _, state in self.rows(self.incarnation, one.partition, one.first, one.first + one.rows):
                yield state

    # ---- the metadata ----

    def begins(self, incarnation: int, begins: dict[int, int]) -> None:
        self._begins[incarnation] = begins
        self.parked = None

    def made(self, partition: int, parents: tuple[int, ...]) -> None:
        del partition, parents

    def sealed(self, partition: int, end: int) -> None:
        del partition, end

    def changed(self, state: Any) -> None:
        super().changed(state)
        topic, found = self._world.topic_of(state), self.cohort(state)
        if topic is None or found is None:
            return
        registered = {int(one.session) for one in state.cohort_members.get(found.cohort, {}).values()}
        for name, session in list(self._sessions.items()):
            if session not in registered:
                del self._sessions[name]
                self._over[name] = self._world.agenda.now_us
        if topic is self._topic:
            return
        self._topic, parts = topic, topic.layout.by_id()
        for number in parts:
            assignment = topic.assignments[heir(parts, number)]
            owner = int(assignment.owner.node), int(assignment.epoch)
            if self._owner.setdefault(int(number), owner) != owner:
                self._owners[int(number)] += 1
            self._owner[int(number)] = owner

    def joined(self, process: QueueProcess, session: int) -> None:
        """A process acts for a session."""
        self._sessions[process.name] = session

    # ---- the end ----

    def missing(self, partition: int, figures: dict[str, Any]) -> str:
        del partition
        return "" if not figures["lag_rows"] else f"{figures} has rows that are not settled"

    def behind(self, state: Any) -> str:
        missing = super().behind(state)
        if missing or self.cohort(state) is None:
            return missing
        if self.parked is None:
            self.is_drained = True
            return f"{self.name}: no operator has listed what is parked"
        parked = self._parked()
        for (incarnation, partition), rows in self._rows.items():
            for row, known in rows.items() if incarnation == self.incarnation else ():
                is_open = known.put_back_us >= 0 and not (known.is_told or known.is_discarded)
                if is_open and (partition, row) not in parked:
                    self.parked = None  # perhaps it was parked again since
                    return f"{self.name}: row {row} of partition {partition} was put back and is not done"
        return ""

    def _parked(self) -> set[tuple[int, int]]:
        ranges = ((one.partition, range(one.first, one.first + one.rows)) for one in self.parked or ())
        return set(chain.from_iterable(((partition, row) for row in rows) for partition, rows in ranges))

    def check(self) -> None:
        state = self._world.machines[0].replica.state
        if self._world.topic_of(state) is None or self.cohort(state) is None:
            return
        parked, begins = self._parked(), self._begins[self.incarnation]
        for partition in self.partitions:
            part = self._world.ledger.partitions[partition]
            sealed = cast("LineageLedger", self._world.ledger).ends.get(partition)
            end = part.end if sealed is None else sealed[0]
            first = max(begins.get(partition, 0), part.start)
            for row, known in self.rows(self.incarnation, partition, first, end):
                name = f"row {row} of partition {partition}, of {first} to {end}"
                self._check_settled(name, known, is_parked=(partition, row) in parked)

    def _check_settled(self, name: str, known: RowState, *, is_parked: bool) -> None:
        if is_parked and known.done_us >= 0:
            raise ViolationError("queue lost", f"{name}: it is done since {known.done_us} us, and is parked")
        if is_parked:
            self._check_parked(name, known)
        elif known.parked_us >= 0:
            raise ViolationError("queue lost", f"{name}: it was parked, and no operator finds it: {known}")
        elif not (known.is_told or known.is_discarded or known.is_gone):
            raise ViolationError("queue lost", f"{name}: the cohort has settled it, and no member: {known}")
