"""Modelled nodes, logs of gates and messages around the product's log of cohorts, and its judge.

`tests.fakes.cohort_world` has consumers and faults, and says what is checked.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from ringfence.control.model.cohort_commands import Begun, PublishPlan, RegisterMembers, RemoveMembers
from ringfence.control.model.cohorts import Cohort, CohortId, MemberSession
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.results import Refused, Result
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.cohorts import gates
from ringfence.control.state_machines.cohorts.coordinator import CohortCoordinator
from ringfence.control.state_machines.cohorts.digests import pack_sessions, sessions_digest
from ringfence.control.state_machines.cohorts.liveness import SessionsReport
from ringfence.control.state_machines.metadata.cohort_lineage import (
    BeginningKind,
    heir,
    is_through,
    members_of,
)
from tests.fakes.cohort_log import CohortLog
from tests.fakes.cohort_nodes import LEASE_MS, NO_SESSION, CohortNode, GateLog, Process, joins_ended

GRACE_MS = 12_000
ROUND_MS = 250


class CohortCluster(CohortLog):
    """Nodes, gates and the leader of one run. `states[i]` is the state after entry i."""

    def __init__(self, seed: int, *, prunes: bool = True) -> None:
        self.draw, self.prunes = random.Random(seed), prunes
        self.states: dict[int, MetadataState] = {}
        self.seen = Counter[str]()
        self.rows: Counter[PartitionId] = Counter()
        super().__init__(3, partitions=self.draw.choice([2, 3, 4]))
        self.now_ms, self.term, self.quiet = 1_000, 0, False
        self.nodes_by_id = {node: CohortNode(self.place(int(node)), self.at) for node in self.nodes}
        self.desk, self.leader_began_ms = CohortCoordinator(GRACE_MS), 0
        self.ticked_ms, self.is_led = 0, True
        self.heard: dict[MemberSession, int] = {}
        self.proposals: list[tuple[Any, NodeId | None]] = []
        self.messages: list[Any] = []
        self.processes: dict[int, Process] = {}
        self.gates: dict[tuple[CohortId, PartitionId], GateLog] = {}
        self.log_epochs: dict[PartitionId, int] = {}
        # What was given: rows by (cohort, incarnation, partition); first rows that must be given.
        self.got: dict[tuple[int, int, int], set[int]] = {}
        self.first: dict[tuple[int, int, int], int] = {}
        self.newest: dict[tuple[int, int], int] = {}
        self.told: set[tuple[int, int, int]] = set()
        self.lineage: dict[int, tuple[int, ...]] = {}
        self._elect()

    # ---- the log --------------------------------------------------------------------------------------

    def do(self, command: Any) -> Result:
        before = self.state
        result = super().do(command)
        self.states[self.at] = self.state
        if not hasattr(self, "desk") or not self.term:
            return result
        self.seen[f"{type(command).__name__} {'refused' if isinstance(result, Refused) else 'taken'}"] += 1
        for part in self.now.layout.partitions:
            parents = self.lineage.get(part.partition, ())
            self.lineage[part.partition] = tuple({*parents, *part.parents})
        if not isinstance(result, Refused):
            self._judge(command, before)
        self.desk.note_entry(command, self.now_ms, is_refused=isinstance(result, Refused))
        return result

    def _judge(self, command: Any, before: MetadataState) -> None:
        if isinstance(command, PublishPlan):
            self._judge_plan(command, before)

    def _judge_plan(self, command: PublishPlan, before: MetadataState) -> None:
        """A partition leaves a member that stays only for one that has two less."""
        old = members_of(before, command.cohort)
        cohort, layout = before.cohorts[command.cohort], before.topics[self.topic].layout
        drained = {
            part.partition
            for part in layout.partitions
            if not part.is_active and is_through(before, cohort, part)
        }
        source = {part: name for name, member in old.items() for part in member.slice}
        for change in command.changes:
            self.seen["moved"] += len(change.add)
            fewest = len({*old[change.member].slice} - drained)
            for part in change.add:
                most = len(old[source[part]].slice) if part in source else fewest + 2
                assert most >= fewest + 2, (
                    f"CH8: partition {part} moves from {source[part]!r} with {most} to {change.member!r}, "
                    f"which has {fewest}"
                )

    def _judge_evictions(self, command: Any) -> None:
        """P14, when the leader proposes it. A late entry may remove a member that is back by then."""
        if not isinstance(command, RemoveMembers):
            return
        for item in command.members:
            silent_ms = self.now_ms - max(self.heard.get(item.session, 0), self.leader_began_ms)
            assert silent_ms >= GRACE_MS, f"P14: {item.name!r} was heard {silent_ms} ms ago"

    # ---- the leader -----------------------------------------------------------------------------------

    def _elect(self) -> None:
        self.term += 1
        self.desk.begin(self.term, self.now_ms)
        self.leader_began_ms = self.ticked_ms = self.now_ms
        self.heard.clear()

    def _lead(self) -> None:
        if self.now_ms - self.ticked_ms > 3_000:
            self.leader_began_ms = self.now_ms  # it was paused: a grace begins again
        self.ticked_ms = self.now_ms
        for command in self.desk.step(self.state, self.now_ms).entries:
            self._judge_evictions(command)
            self.proposals.append((command, None))

    def _propose_next(self) -> None:
        if self.proposals:
            command, node = self.proposals.pop(self.draw.randrange(len(self.proposals)))
            result = self.do(command)
            if node is not None and isinstance(command, RegisterMembers):
                joins_ended(self.nodes_by_id[node], self.at, result, self.processes)

    # ---- nodes ----------------------------------------------------------------------------------------

    def view(self, node: CohortNode) -> MetadataState:
        return self.states[node.applied]

    def _apply(self, node: CohortNode) -> None:
        if node.is_up and node.applied < self.at:
            node.applied += 1
            self._open_logs(node)
            node.words.forget(self.view(node))

    def _open_logs(self, node: CohortNode) -> None:
        """The node opens the logs that the newest applied entry gives to it: owners before it are fenced."""
        topic = self.view(node).topics[self.topic]
        for part in topic.layout.active():
            assignment = topic.assignments[part.partition]
            if assignment.owner == node.here and assignment.epoch > self.log_epochs.get(part.partition, 0):
                self.log_epochs[part.partition] = assignment.epoch
                for number in topic.layout.by_id():
                    if heir(topic.layout.by_id(), number) == part.partition:
                        self._new_owner(number)

    def _new_owner(self, partition: PartitionId) -> None:
        """What an owner does not know after OPEN: leases of holders."""
        for key, gate in self.gates.items():
            if key[1] == partition and gate.holder:
                gate.lease_ms = self.now_ms + LEASE_MS + 1_000

    def _owns(self, node: CohortNode, partition: PartitionId) -> bool:
        topic = self.view(node).topics[self.topic]
        log = heir(topic.layout.by_id(), partition)
        assignment = topic.assignments[log]
        return assignment.owner == node.here and assignment.epoch == self.log_epochs.get(log, 0)

    def _act(self, node: CohortNode) -> None:
        """One look of a node at all gates that it owns: resets, forgets, serves, and tells."""
        state = self.view(node)
        missing: list[gates.DrainedWord] = []
        begun: list[Begun] = []
        for cohort in state.cohorts.values():
            rules = [
                rule
                for rule in gates.rules_of(state, cohort, node.here, node.words)
                if self._owns(node, rule.partition)
            ]
            rules = [rule for rule in rules if self._gate(rule).known <= node.applied]
            for rule in rules:
                self._serve(node, cohort, rule)
            progress = {
                (cohort.cohort, rule.partition): self._gate(rule).progress(rule.incarnation, self.now_ms)
                for rule in rules
            }
            missing += gates.drained_words(state, rules, progress)
            begun += gates.begun_words(state, rules, progress)
        told = node.drained.due(missing, self.now_ms)
        if told:
            self._send(("drained", told))
            for other in self.nodes_by_id.values():
                self._send(("word", other.here.node, told))
        begins = node.begun.due(begun, self.now_ms)
        if begins:
            self._send(("begun", begins))

    def _gate(self, rule: gates.GateRule) -> GateLog:
        return self.gates.setdefault((rule.cohort, rule.partition), GateLog())

    def _serve(self, node: CohortNode, cohort: Cohort, rule: gates.GateRule) -> None:
        gate, incarnation = self._gate(rule), int(rule.incarnation)
        if gate.incarnation > incarnation:
            return
        if 0 < gate.incarnation < incarnation or (
            gate.incarnation == 0 and rule.beginning.kind is BeginningKind.NOT_BEGUN and not rule.is_through
        ):
            self._reset(node, rule, gate)
            return
        if rule.is_through:
            if gate.incarnation == incarnation:
                self.gates[rule.cohort, rule.partition] = GateLog(known=node.applied)
            return
        process = self._process_of(rule.assignee)
        if rule.is_blocked or process is None or self.draw.random() < 0.3:
            return
        if gate.holder not in {NO_SESSION, rule.assignee} and self.now_ms < gate.lease_ms:
            self._release(gate)
            return
        if gate.incarnation == 0:
            gate.incarnation, gate.offset = incarnation, rule.beginning.offset
            key = (int(rule.cohort), incarnation, int(rule.partition))
            self.first.setdefault(key, rule.beginning.offset)
        gate.holder, gate.lease_ms = rule.assignee, self.now_ms + LEASE_MS
        if rule.notes is not None and rule.notes.has_missed and not gate.is_settled:
            self.told |= {(int(rule.cohort), incarnation, int(note.partition)) for note in rule.notes.notes}
            gate.is_settled = True  # the reader heard, and skips
            return
        self._give(cohort, rule, gate)

    def _release(self, gate: GateLog) -> None:
        """The holder hears that the plan names another member, and releases, if it runs."""
        process = self._process_of(gate.holder)
        if process is not None and self.draw.random() < 0.5:
            gate.holder = NO_SESSION

    def _process_of(self, session: MemberSession) -> Process | None:
        if session == NO_SESSION:
            return None
        found = (process for process in self.processes.values() if process.session == session)
        return next((process for process in found if process.is_running), None)

    def _reset(self, node: CohortNode, rule: gates.GateRule, gate: GateLog) -> None:
        """The record by which a gate begins: RESET, or FORGET where the partition is not read."""
        if rule.beginning.kind is BeginningKind.FINISHED:
            if gate.holder == NO_SESSION or self.now_ms >= gate.lease_ms:
                self.gates[rule.cohort, rule.partition] = GateLog(known=node.applied)
            return
        is_open = rule.beginning.kind is BeginningKind.NOT_BEGUN
        gate.offset = self.rows[rule.partition] if is_open else rule.beginning.offset
        gate.incarnation, gate.is_settled = int(rule.incarnation), False
        self.first[int(rule.cohort), int(rule.incarnation), int(rule.partition)] = gate.offset

    def _give(self, cohort: Cohort, rule: gates.GateRule, gate: GateLog) -> None:
        """The member reads some rows, and settles them."""
        partition, incarnation = int(rule.partition), int(rule.incarnation)
        count = min(self.rows[rule.partition] - gate.offset, self.draw.choice([1, 5, 100]))
        if count <= 0:
            return
        key = (int(cohort.cohort), incarnation, partition)
        known = self.got.setdefault(key, set())
        for row in range(gate.offset, gate.offset + count):
            assert row not in known, f"CG3: row {row} of {partition} is given again in {incarnation}"
            known.add(row)
        if cohort.mode.is_ordered:
            self._check_order(int(cohort.cohort), incarnation, partition)
        gate.offset, gate.is_settled = gate.offset + count, True
        self.seen["rows"] += count

    def _check_order(self, cohort: int, incarnation: int, partition: int) -> None:
        """CG7: all rows of all ancestors were given; CG8: no relative gave rows of a newer incarnation."""
        for elder in self._elders(partition):
            left = self._left(cohort, incarnation, elder)
            assert not left or (cohort, incarnation, elder) in self.told, (
                f"CG7: a row of {partition} before rows {sorted(left)[:5]} of {elder}"
            )
            assert self.newest.get((cohort, elder), 0) <= incarnation, f"CG8: {partition} after {elder}"
        for child, parents in self.lineage.items():
            if partition in parents:
                assert self.newest.get((cohort, child), 0) <= incarnation, f"CG8: {partition} after {child}"
        self.newest[cohort, partition] = max(incarnation, self.newest.get((cohort, partition), 0))

    def _elders(self, partition: int) -> set[int]:
        found, waiting = set[int](), [partition]
        while waiting:
            for parent in self.lineage.get(waiting.pop(), ()):
                if parent not in found:
                    found.add(int(parent))
                    waiting.append(int(parent))
        return found

    def _left(self, cohort: int, incarnation: int, partition: int) -> set[int]:
        """Rows of a partition that had to be given in an incarnation, and were not."""
        first = self.first.get((cohort, incarnation, partition))
        if first is None:
            return set()
        return {*range(first, self.rows[PartitionId(partition)])} - self.got.get(
            (cohort, incarnation, partition), set()
        )

    # ---- messages ---------------------------------------------------------------------------------------

    def _send(self, message: Any) -> None:
        if self.quiet or self.draw.random() < 0.8:
            self.messages.append(message)
            if not self.quiet and self.draw.random() < 0.1:
                self.messages.append(message)

    def _deliver(self) -> None:
        if not self.messages:
            return
        match self.messages.pop(self.draw.randrange(len(self.messages))):
            case ("drained", told):
                self.desk.tell_drained([word.mark for word in told], self.now_ms)
            case ("begun", told):
                self.desk.tell_begun(told, self.now_ms)
            case ("word", node, told):
                if self.nodes_by_id[node].is_up:
                    self.nodes_by_id[node].words.tell(told)
            case ("sessions", node, sessions, term):
                self._report(node, sessions, term)

    def _report(self, node: NodeId, sessions: tuple[MemberSession, ...], term: int) -> None:
        if term != self.term:
            return  # it was sent to another leader
        packed = pack_sessions(sessions)
        digest = sessions_digest(packed)
        if self.desk.report(node, SessionsReport(digest, None, GRACE_MS), self.now_ms):
            self.desk.report(node, SessionsReport(digest, packed, GRACE_MS), self.now_ms)
        self.heard |= dict.fromkeys(sessions, self.now_ms)

    def _tell_sessions(self) -> None:
        for number, node in self.nodes_by_id.items():
            if node.is_up:
                here = [one for one in self.processes.values() if one.node == number and one.is_running]
                sessions = tuple(one.session for one in here if one.session)
                self._send(("sessions", number, sessions, self.term))
