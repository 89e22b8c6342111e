"""Tell connected members, members in grace, and silent ones apart. The leader decides, the log records it.

    begin(term, now)                 this node leads from now on, without observations
    report(node, report, now)        a node lists the sessions that are attached to it and beat
    note_registrations(state, now)   members that registered count as heard
    tick(state, now)                 the members to remove now
    connected(state, cohort, now)    names of members that are connected

Every node reports once a second: its packed list of sessions if that changed, else the list's digest. The
reports are soft state: none enters the log (P31). Rules:

1. A session is connected while any node reports it. After the last report it is in grace for
`session_grace_s` of the node that reported it, then it is silent and removed, by compare-and-set on the
session.
2. A new leader takes every member for connected for a whole grace period. One whose ticks did not come was
stopped, and begins that wait again: silence before that was its own (P14).
3. A registration counts as a report when the leader applies its entry.
4. A node whose reports stop removes no member that another node reports, and others only after the grace
period.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from ringfence.control.model.cohort_commands import Removal, RemovalReason, RemoveMembers
from ringfence.control.model.cohorts import CohortId, MemberSession
from ringfence.control.model.ids import NodeId
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.cohorts.digests import sessions_digest, unpack_sessions
from ringfence.control.state_machines.metadata.cohort_checks import MEMBERS_OF_ENTRY_MAX
from ringfence.control.state_machines.metadata.cohort_lineage import members_of

GRACE_MS: Final = 30_000
# The lease of a holder (10 s) and a margin: before that its owner lets no other member in anyway.
GRACE_MS_MIN: Final = 12_000
# Three reports that did not come.
FRESH_MS: Final = 3_000
# A leader without a tick for so long was stopped, and has unread reports.
PAUSE_MS: Final = 3_000
# A leader of less time cannot tell whether a member is connected.
PRESENCE_MS: Final = 2_000
# A removal is proposed again if it was not applied within this time.
REPROPOSE_MS: Final = 2_000
# Entries of one tick: 4,096 members.
REMOVALS_MAX: Final = 8


class SessionsReport(NamedTuple):
    """What a node reports. `sessions` None: the same list as the one with this digest before."""

    digest: bytes
    sessions: bytes | None
    grace_ms: int


class Presence(Enum):
    # Some node reports it.
    CONNECTED = auto()
    # All live nodes have reported, and none has it.
    ABSENT = auto()
    # The leader is new, or a live node has not reported.
    UNKNOWN = auto()


@dataclass(slots=True)
class _NodeList:
    """The last list of a node, and the time of its last report."""

    digest: bytes
    sessions: tuple[MemberSession, ...]
    grace_ms: int
    heard_ms: int


class CohortLiveness:
    """The leader's view of all members. Times are in ms of one monotonic clock; the class reads no clock."""

    def __init__(self, grace_ms: int = GRACE_MS) -> None:
        """`grace_ms` is the setting of this node, for members that no node has reported yet."""
        self._grace_ms = max(grace_ms, GRACE_MS_MIN)
        self.term = 0
        self._since_ms: int | None = None
        self._ticked_ms = 0
        self._nodes: dict[NodeId, _NodeList] = {}
        # Last report of each session, and the grace period of the node that gave it.
        self._heard: dict[MemberSession, tuple[int, int]] = {}
        self._proposed: dict[MemberSession, int] = {}
        self._members: object = None
        # Sessions in recent lists, and the time for which they were joined.
        self._joined: tuple[int, frozenset[MemberSession]] | None = None

    @property
    def leads(self) -> bool:
        return self._since_ms is not None

    def begin(self, term: int, now_ms: int) -> None:
        """Lead term `term`. Reports of an earlier leadership are discarded: they are old."""
        assert term > self.term, f"term {term} began after term {self.term}"
        self.__init__(self._grace_ms)  # type: ignore[misc]
        self.term, self._since_ms, self._ticked_ms = term, now_ms, now_ms

    def end(self) -> None:
        """Stop leading."""
        term = self.term
        self.__init__(self._grace_ms)  # type: ignore[misc]
        self.term = term

    def report(self, node: NodeId, report: SessionsReport, now_ms: int) -> bool:
        """Note a report; whether the node must send its whole list. ValueError for an unsound list."""
        if self._since_ms is None:
            return False
        known = self._nodes.get(node)
        if report.sessions is None:
            if known is None or known.digest != report.digest:
                return True
            sessions = known.sessions
        else:
            sessions = unpack_sessions(report.sessions)
            if sessions_digest(report.sessions) != report.digest:
                raise ValueError(f"the list of node {node} does not have its digest")
        grace_ms = max(report.grace_ms, GRACE_MS_MIN)
        if known is not None and known.sessions is not sessions:
            # Sessions that are not in the list any more were heard until now, at the most.
            self._note({*known.sessions} - {*sessions}, known.heard_ms, known.grace_ms)
        self._nodes[node] = _NodeList(report.digest, sessions, grace_ms, now_ms)
        self._joined = None
        return False

    def tick(self, state: MetadataState, now_ms: int) -> tuple[RemoveMembers, ...]:
        """The removals to propose now. Call it about once a second.

        Raises:
            AssertionError: the clock went back.
        """
        if self._since_ms is None:
            return ()
        assert now_ms >= self._ticked_ms, f"the clock went back from {self._ticked_ms} to {now_ms}"
        if now_ms - self._ticked_ms > PAUSE_MS:
            self._since_ms = now_ms
        self._ticked_ms = now_ms
        self._nodes = {node: known for node, known in self._nodes.items() if node in state.nodes}
        self._joined = None
        self.note_registrations(state, now_ms)
        self._proposed = {session: at for session, at in self._proposed.items() if now_ms - at < REPROPOSE_MS}
        silent = [
            removal for removal in self._silent(state, now_ms) if removal.session not in self._proposed
        ][: MEMBERS_OF_ENTRY_MAX * REMOVALS_MAX]
        self._proposed |= {removal.session: now_ms for removal in silent}
        return tuple(
            RemoveMembers(members=tuple(silent[place : place + MEMBERS_OF_ENTRY_MAX]))
            for place in range(0, len(silent), MEMBERS_OF_ENTRY_MAX)
        )

    def note_registrations(self, state: MetadataState, now_ms: int) -> None:
        """A session that this leader sees first was heard now; with its first look, when it began to lead.

        Call it before members are planned: one that registered since the last tick has no other sign of life.
        """
        if self._since_ms is None or state.cohort_members is self._members:
            return
        first_ms = self._since_ms if self._members is None else now_ms
        self._members = state.cohort_members
        heard = self._heard
        self._heard = {
            member.session: heard.get(member.session, (first_ms, self._grace_ms))
            for members in state.cohort_members.values()
            for member in members.values()
        }

    def connected(self, state: MetadataState, cohort: CohortId, now_ms: int) -> frozenset[str]:
        """Names of the cohort's members that may get partitions, with those that were noted as registered."""
        members = members_of(state, cohort)
        if self._since_ms is None or now_ms - self._since_ms < self._longest_grace_ms():
            return frozenset(members)
        reported = self._reported(now_ms)
        return frozenset(
            name
            for name, member in members.items()
            if member.session in reported or self._is_new(member.session, now_ms)
        )

    def in_grace(self, state: MetadataState, cohort: CohortId, now_ms: int) -> frozenset[str]:
        """Names of members that are registered and not connected."""
        return frozenset(members_of(state, cohort)) - self.connected(state, cohort, now_ms)

    def presence(self, state: MetadataState, session: MemberSession, now_ms: int) -> Presence:
        """Whether the process of a session is there, for one that wants its name."""
        if self._since_ms is None or now_ms - self._since_ms < PRESENCE_MS:
            return Presence.UNKNOWN
        if session in self._reported(now_ms):
            return Presence.CONNECTED
        live = {number for number, node in state.nodes.items() if node.life is Life.LIVE}
        fresh = {node for node, known in self._nodes.items() if now_ms - known.heard_ms < FRESH_MS}
        return Presence.ABSENT if live <= fresh else Presence.UNKNOWN

    # ---- what was heard -------------------------------------------------------------------------------

    def _longest_grace_ms(self) -> int:
        return max((known.grace_ms for known in self._nodes.values()), default=self._grace_ms)

    def _reported(self, now_ms: int) -> frozenset[MemberSession]:
        """Sessions in recent lists."""
        if self._joined is None or self._joined[0] != now_ms:
            lists = (known.sessions for known in self._nodes.values() if now_ms - known.heard_ms < FRESH_MS)
            self._joined = (now_ms, frozenset[MemberSession]().union(*lists))
        return self._joined[1]

    def _is_new(self, session: MemberSession, now_ms: int) -> bool:
        """Whether a session was registered so recently that a report may be on its way."""
        heard = self._heard.get(session)
        return heard is not None and now_ms - heard[0] < FRESH_MS

    def _note(self, sessions: Iterable[MemberSession], heard_ms: int, grace_ms: int) -> None:
        for session in sessions:
            before = self._heard.get(session)
            if before is None or before[0] < heard_ms:
                self._heard[session] = (heard_ms, grace_ms)

    def _silent(self, state: MetadataState, now_ms: int) -> Iterable[Removal]:
        """Members without a report for their grace period, in the order of their names."""
        assert self._since_ms is not None, "only a leader judges"
        last = self._last_reports()
        for cohort in sorted(state.cohort_members):
            for name, member in sorted(state.cohort_members[cohort].items()):
                heard_ms, grace_ms = last.get(member.session, (self._since_ms, self._grace_ms))
                if now_ms - max(heard_ms, self._since_ms) >= grace_ms:
                    yield Removal(cohort, name, member.session, RemovalReason.SILENT)

    def _last_reports(self) -> dict[MemberSession, tuple[int, int]]:
        last = dict(self._heard)
        for known in self._nodes.values():
            for session in known.sessions:
                before = last.get(session)
                if before is None or before[0] < known.heard_ms:
                    last[session] = (known.heard_ms, known.grace_ms)
        return last
