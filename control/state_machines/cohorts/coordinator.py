"""Coordinate all cohorts of one leader: the entries to propose now.

    begin(term, now)               start a leadership without any observations
    report(node, report, now)      a node's list of sessions; returns whether it must send the whole list
    tell_drained, tell_begun       what owners of gates tell
    note_entry(command, now, ..)   an entry was applied, or refused
    step(state, now)               plans, evictions and progress: the entries

All state here is soft and is discarded with the leadership. The published slices are in the log, so the first
plan of a new leader is the published one, and costs no entry (F20).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence.control.model.cohort_commands import (
    Begun,
    CohortCommand,
    Drained,
    MarkBegun,
    MarkDrained,
    PublishPlan,
    RemovalReason,
    RemoveMembers,
)
from ringfence.control.model.cohorts import Cohort, CohortId
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.cohorts.liveness import GRACE_MS, CohortLiveness, SessionsReport
from ringfence.control.state_machines.cohorts.plans import (
    PlanEntry,
    PlanSchedule,
    is_large,
    next_entry,
    unassigned,
)
from ringfence.control.state_machines.cohorts.progress import ProgressGathering

# A plan of a generation is not proposed a second time within this time: it is being committed.
REPROPOSE_MS: Final = 1_000
# Between two rounds of liveness. Partitions of a killed member are to be read again within its grace period
# and a second; the plan and the first FETCH need their part of that second.
TICK_MS: Final = 500


class LargePlan(NamedTuple):
    """A plan that is made outside of the event loop: `plans.next_entry` with these arguments."""

    cohort: Cohort
    connected: frozenset[str]


class CohortRound(NamedTuple):
    """Entries to propose, and plans to make elsewhere, after one round."""

    entries: tuple[CohortCommand, ...] = ()
    large: tuple[LargePlan, ...] = ()


class CohortCoordinator:
    """All cohorts of one leader. Times are in ms of one monotonic clock; the class reads no clock."""

    def __init__(self, grace_ms: int = GRACE_MS) -> None:
        self._grace_ms = grace_ms
        self.liveness = CohortLiveness(grace_ms)
        self.schedule = PlanSchedule()
        self.progress = ProgressGathering()
        self._ticked_ms: int | None = None
        # The last plan that was proposed of each cohort, and when.
        self._proposed: dict[CohortId, tuple[PlanEntry, int]] = {}
        # Connected members, by cohort, as of the last tick.
        self._connected: dict[CohortId, frozenset[str]] = {}

    def begin(self, term: int, now_ms: int) -> None:
        """Start a leadership: discard all observations."""
        liveness = self.liveness
        self.__init__(self._grace_ms)  # type: ignore[misc]
        self.liveness = liveness
        self.liveness.begin(term, now_ms)

    def end(self) -> None:
        """Stop leading."""
        self.liveness.end()

    def report(self, node: NodeId, report: SessionsReport, now_ms: int) -> bool:
        """Note a node's report. ValueError for an unsound one."""
        return self.liveness.report(node, report, now_ms)

    def tell_drained(self, items: Iterable[Drained], now_ms: int) -> None:
        self.progress.tell_drained(items, now_ms)

    def tell_begun(self, items: Iterable[Begun], now_ms: int) -> None:
        self.progress.tell_begun(items, now_ms)

    def note_entry(self, command: Command, now_ms: int, *, is_refused: bool = False) -> None:
        """An entry was applied or refused: what it was about may be proposed again."""
        match command:
            case RemoveMembers():
                for item in command.members:
                    if item.why is RemovalReason.LEFT and not is_refused:
                        self.schedule.leave(item.cohort, now_ms)
            case MarkDrained() | MarkBegun():
                self.progress.end(command)
            case PublishPlan():
                proposed = self._proposed.pop(command.cohort, None)
                is_cut = proposed is not None and proposed[0].command == command and not proposed[0].is_whole
                if is_cut or is_refused:
                    self.schedule.plan_at(command.cohort, now_ms)
            case _:
                pass

    def step(self, state: MetadataState, now_ms: int) -> CohortRound:
        """Run one round. Call it after each run of entries, and every 50 ms while something waits."""
        if not self.liveness.leads:
            return CohortRound()
        entries: list[CohortCommand] = []
        self.liveness.note_registrations(state, now_ms)
        if self._ticked_ms is None or now_ms - self._ticked_ms >= TICK_MS:
            self._ticked_ms = now_ms
            entries += self.liveness.tick(state, now_ms)
            self._note_connected(state, now_ms)
        entries += self.progress.step(state, now_ms)
        self._drop_unanswered(now_ms)
        self.schedule.observe(state, now_ms)
        large: list[LargePlan] = []
        for number in self.schedule.due(now_ms):
            cohort = state.cohorts.get(number)
            if cohort is None or not self._may_plan(number, now_ms):
                continue
            connected = self.liveness.connected(state, number, now_ms)
            if is_large(state, cohort):
                large.append(LargePlan(cohort, connected))
            else:
                entries += self.note_plan(next_entry(state, cohort, connected), now_ms)
        return CohortRound(tuple(entries), tuple(large))

    def note_plan(self, made: PlanEntry | None, now_ms: int) -> tuple[PublishPlan, ...]:
        """A plan was made: the entry to propose. The log refuses it if the state moved on meanwhile."""
        if made is None:
            return ()
        self._proposed[made.command.cohort] = (made, now_ms)
        return (made.command,)

    def _may_plan(self, cohort: CohortId, now_ms: int) -> bool:
        """Whether no entry of a plan is under way; else the cohort is planned again after it."""
        proposed = self._proposed.get(cohort)
        if proposed is None:
            return True
        self.schedule.plan_at(cohort, max(now_ms, proposed[1] + REPROPOSE_MS))
        return False

    def _drop_unanswered(self, now_ms: int) -> None:
        """A plan without an answer is made again, on the newest state."""
        for cohort, (_, at_ms) in list(self._proposed.items()):
            if now_ms - at_ms >= REPROPOSE_MS:
                del self._proposed[cohort]
                self.schedule.plan_at(cohort, now_ms)

    def _note_connected(self, state: MetadataState, now_ms: int) -> None:
        """Plan cohorts of which a member came back, or went into grace while a partition is unassigned.

        A member that kept its slice comes back to an equal plan, which is no entry. One that registered and
        was reported late has no slice yet, and nothing else would give it one.
        """
        before, self._connected = self._connected, {}
        for number, cohort in state.cohorts.items():
            now = self._connected[number] = self.liveness.connected(state, number, now_ms)
            known = before.get(number, now)
            if now - known or (now != known and unassigned(state, cohort)):
                self.schedule.change(number, now_ms)
