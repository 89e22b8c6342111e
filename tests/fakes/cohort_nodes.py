"""Modelled parts of a cluster with cohorts: nodes, processes of members, and what the logs of gates have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringfence.control.model.cohort_commands import Begun
from ringfence.control.model.cohorts import CohortId, Incarnation, MemberSession
from ringfence.control.model.ids import Index, NodeId, PartitionId
from ringfence.control.model.results import MembersRegistered, Refused
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.cohorts.gates import DrainedWord, DrainedWords, GateProgress
from ringfence.control.state_machines.cohorts.members import JoinBatches, JoinOutcome, Registered, Taken
from ringfence.control.state_machines.cohorts.reports import ProgressReports

# The lease of a holder at a gate.
LEASE_MS = 10_000
NO_SESSION = MemberSession(0)
GateKey = tuple[CohortId, PartitionId]


@dataclass
class GateLog:
    """What the log has of a gate, below the mark. `incarnation` 0: no entry.

    `known`: the metadata index of the entry for which it was forgotten. `lease_ms` is the owner's memory.
    """

    incarnation: int = 0
    offset: int = 0
    is_settled: bool = False
    holder: MemberSession = NO_SESSION
    lease_ms: int = 0
    known: int = 0

    def progress(self, incarnation: int, now_ms: int) -> GateProgress:
        is_held = bool(self.holder) and 0 < self.incarnation < incarnation and now_ms < self.lease_ms
        return GateProgress(Incarnation(self.incarnation), self.offset, self.is_settled, is_held)


@dataclass
class Process:
    """One consumer object. `node`: where it is attached, None: nowhere.

    `is_up`: it was not killed; `is_final`: it was fenced, and never joins again.
    """

    cohort: str
    name: str
    instance: bytes
    ticket: int
    node: NodeId | None = None
    session: MemberSession = NO_SESSION
    after: MemberSession = NO_SESSION
    is_up: bool = True
    is_paused: bool = False
    is_final: bool = False
    asked_ms: int = -10_000

    @property
    def is_running(self) -> bool:
        return self.is_up and not self.is_paused


@dataclass
class CohortNode:
    """A node: the prefix of the log that it has applied, and its soft state."""

    here: Replica
    applied: int = 0
    is_up: bool = True
    words: DrainedWords = field(default_factory=DrainedWords)
    joins: JoinBatches = field(default_factory=JoinBatches)
    drained: ProgressReports[DrainedWord] = field(default_factory=ProgressReports[DrainedWord])
    begun: ProgressReports[Begun] = field(default_factory=ProgressReports[Begun])

    def restart(self, applied: int) -> None:
        """Start again: soft state is gone."""
        self.__init__(self.here, applied)  # type: ignore[misc]


def note_outcomes(outcomes: tuple[JoinOutcome, ...], processes: Mapping[int, Process], node: NodeId) -> None:
    """Processes hear what became of their JOINs."""
    for ticket, decision in outcomes:
        process = processes.get(ticket)
        if process is None or not process.is_running:
            continue
        if isinstance(decision, Registered):
            process.session, process.node = decision.session, node
        elif isinstance(decision, Taken):
            process.after = decision.session
        elif not isinstance(decision, Refused):
            process.is_final, process.node = True, None


def joins_ended(node: CohortNode, index: int, result: object, processes: Mapping[int, Process]) -> None:
    """The entry of a node's JOINs was applied or refused."""
    if isinstance(result, MembersRegistered):
        outcomes = node.joins.end(Index(index), result)
    else:
        assert isinstance(result, Refused)
        outcomes = node.joins.fail(result)
    note_outcomes(outcomes, processes, node.here.node)
