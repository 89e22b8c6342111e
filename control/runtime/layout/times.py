"""Measure layout changes: how long each phase took, for how long producers waited, and what became of each.

Phases are measured as this node applies their entries. The gap, from the last acknowledgement of the sources
to the first one of a child, is known on the node that led then.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ringfence.control.model.entries import Entry
from ringfence.control.model.layout_changes import Transition, TransitionKind
from ringfence.control.model.layout_commands import AbortLayout
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.results import Refused, Result
from ringfence.control.model.state import EMPTY, MetadataState

# Ended changes that are kept for operators, the newest ones.
ENDED_MAX: Final = 64
ABORTED: Final = "aborted"
# Upper bounds of buckets, in seconds. A gap is some ms; a phase is some ms, or waits for readers for a day.
GAP_BOUNDS: Final = (0.005, 0.01, 0.02, 0.04, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
PHASE_BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0)


class Histogram:
    """Counts of values by upper bounds; `counts` has one more place for values above all bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class ChangeTimes(msgspec.Struct):
    """One layout change. `phases_ms`: the phases that are over, as far as this node has seen their begins.

    `result` is empty while the change is open, `aborted_why` unless it was aborted. `gap_us`: None unless
    this node has measured it. `waited_ms`: time from drained sources to the end, `timed_out`: clients held
    older tables then; of the leader's.
    """

    change: ChangeId
    topic: str
    kind: TransitionKind
    why: str
    sources: int
    children: int
    phases_ms: dict[str, int] = {}
    gap_us: int | None = None
    result: str = ""
    aborted_why: str = ""
    waited_ms: int | None = None
    timed_out: bool = False

    def shown(self) -> dict[str, Any]:
        """As operators see it: `why` is the reason of its end where there is one, else that of its begin."""
        shown = {**msgspec.structs.asdict(self), "change": int(self.change), "kind": str(self.kind)}
        del shown["aborted_why"]
        return {**shown, "why": self.aborted_why or self.why}


class LayoutTimes:
    """The layout changes that this node has seen since its start. `clock_s` is monotonic."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self.gaps = Histogram(GAP_BOUNDS)
        self.phases = {phase: Histogram(PHASE_BOUNDS) for phase in ChangePhase}
        self.adoption = Histogram(PHASE_BOUNDS)
        self._known: OrderedDict[ChangeId, ChangeTimes] = OrderedDict()
        # Begin of the present phase; missing for one that this node has found at its start.
        self._since_s: dict[ChangeId, float] = {}

    def apply(self, before: MetadataState, after: MetadataState) -> None:
        """Take the states before and after an entry."""
        if before.transitions is after.transitions:
            return
        now_s = self._clock_s()
        for number, transition in after.transitions.items():
            old = before.transitions.get(number)
            if old is None:
                self._known[number] = _begun(after, transition)
                if before is not EMPTY:
                    self._since_s[number] = now_s
            elif old.phase is not transition.phase:
                self._end_phase(old, now_s)
                self._since_s[number] = now_s
        for number, transition in before.transitions.items():
            if number not in after.transitions:
                self._end_phase(transition, now_s)
                self._since_s.pop(number, None)
                self._known[number].result = _result(after, transition)
        self._forget()

    def note_entry(self, entry: Entry, result: Result) -> None:
        """An entry was applied, or refused, of whichever node proposed it."""
        command = entry.proposal.command
        if isinstance(command, AbortLayout) and not isinstance(result, Refused):
            known = self._known.get(command.change)
            if known is not None:
                known.aborted_why = command.why

    def is_aborted(self, change: ChangeId) -> bool:
        """Whether this node has seen that the change was aborted; it keeps the newest."""
        known = self._known.get(change)
        return known is not None and known.result == ABORTED

    def note_gap(self, change: ChangeId, gap_us: int) -> None:
        """The time during which no partition took rows of the sources' slots."""
        known = self._known.get(change)
        if known is not None and known.gap_us is None:
            known.gap_us = gap_us
            self.gaps.observe(gap_us / 1e6)

    def note_end(self, change: ChangeId, waited_ms: int, *, timed_out: bool) -> None:
        """This node, as the leader, has ended the change after it had waited for clients."""
        self.adoption.observe(waited_ms / 1_000)
        known = self._known.get(change)
        if known is not None:
            known.waited_ms, known.timed_out = waited_ms, timed_out

    def of(self, change: ChangeId) -> ChangeTimes | None:
        """What is known of a change that is open, or one of the newest that have ended."""
        return self._known.get(change)

    @property
    def ended(self) -> list[ChangeTimes]:
        """Changes that are over, the newest first."""
        return [known for known in reversed(self._known.values()) if known.result]

    def _end_phase(self, transition: Transition, now_s: float) -> None:
        since_s = self._since_s.get(transition.change)
        if since_s is None:
            return
        known = self._known[transition.change]
        known.phases_ms = {**known.phases_ms, str(transition.phase): round((now_s - since_s) * 1_000)}
        self.phases[transition.phase].observe(now_s - since_s)

    def _forget(self) -> None:
        over = [number for number, known in self._known.items() if known.result]
        for number in over[: max(0, len(over) - ENDED_MAX)]:
            del self._known[number]


def _begun(state: MetadataState, transition: Transition) -> ChangeTimes:
    return ChangeTimes(
        change=transition.change,
        topic=state.topics[transition.topic].name,
        kind=transition.kind,
        why=transition.why,
        sources=len(transition.sources),
        children=len(transition.children),
    )


def _result(after: MetadataState, transition: Transition) -> str:
    if transition.topic not in after.topics:
        return "deleted"
    return ABORTED if transition.may_abort else "finalized"
