"""Gather what owners of gates tell, for few entries: partitions that are drained, partitions that have begun.

Owners tell the same thing until their own metadata has it (CD4), so what is lost, late or does not fit is
dropped here without harm. One entry of each kind is under way at a time, with up to 4,096 items: 1,000
parents of 20 cohorts are five entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from ringfence.control.model.cohort_commands import Begun, Drained, MarkBegun, MarkDrained
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.cohort_checks import MARKS_OF_ENTRY_MAX
from ringfence.control.state_machines.metadata.cohort_lineage import has_mark
from ringfence.control.state_machines.metadata.cohorts import is_begun_due

GATHER_MS: Final = 100
# An entry without a result for so long is proposed again.
REPROPOSE_MS: Final = 2_000
# Items that wait: 16 entries. More are told again later.
WAITING_MAX: Final = 65_536
Item = TypeVar("Item", Drained, Begun)


class ProgressGathering:
    """What owners told this leader. Times are in ms of one monotonic clock; the class reads no clock."""

    def __init__(self) -> None:
        self._drained: dict[Drained, None] = {}
        self._begun: dict[Begun, None] = {}
        self._since_ms: dict[type, int] = {}
        self._proposed_ms: dict[type, int] = {}

    def tell_drained(self, items: Iterable[Drained], now_ms: int) -> None:
        """An owner tells drained partitions."""
        self._add(MarkDrained, self._drained, items, now_ms)

    def tell_begun(self, items: Iterable[Begun], now_ms: int) -> None:
        """An owner tells partitions that have begun the incarnation."""
        self._add(MarkBegun, self._begun, items, now_ms)

    def _add(self, kind: type, waiting: dict[Item, None], items: Iterable[Item], now_ms: int) -> None:
        for item in items:
            if len(waiting) >= WAITING_MAX:
                return
            waiting[item] = None
        if waiting:
            self._since_ms.setdefault(kind, now_ms)

    def step(self, state: MetadataState, now_ms: int) -> tuple[MarkDrained | MarkBegun, ...]:
        """The entries to propose now. `MarkBegun` comes first: gates open by it."""
        entries: list[MarkDrained | MarkBegun] = []
        if self._is_due(MarkBegun, now_ms):
            begun = [item for item in self._begun if _may_begin(state, item)]
            self._begun = dict.fromkeys(begun[MARKS_OF_ENTRY_MAX:])
            if begun:
                entries.append(MarkBegun(marks=tuple(begun[:MARKS_OF_ENTRY_MAX])))
                self._proposed_ms[MarkBegun] = now_ms
        if self._is_due(MarkDrained, now_ms):
            drained = _in_order(state, self._drained)
            self._drained = dict.fromkeys(drained[MARKS_OF_ENTRY_MAX:])
            if drained:
                entries.append(MarkDrained(marks=tuple(drained[:MARKS_OF_ENTRY_MAX])))
                self._proposed_ms[MarkDrained] = now_ms
        for kind, waiting in ((MarkBegun, self._begun), (MarkDrained, self._drained)):
            if not waiting:
                self._since_ms.pop(kind, None)
        return tuple(entries)

    def end(self, command: MarkDrained | MarkBegun) -> None:
        """The entry was applied or refused: the next one may be proposed."""
        self._proposed_ms.pop(type(command), None)

    def _is_due(self, kind: type, now_ms: int) -> bool:
        since, proposed = self._since_ms.get(kind), self._proposed_ms.get(kind)
        is_gathered = since is not None and now_ms - since >= GATHER_MS
        return is_gathered and (proposed is None or now_ms - proposed >= REPROPOSE_MS)


def _may_begin(state: MetadataState, item: Begun) -> bool:
    cohort = state.cohorts.get(item.cohort)
    return cohort is not None and is_begun_due(state, cohort, item)


def _in_order(state: MetadataState, items: Iterable[Drained]) -> list[Drained]:
    """Items that the state may take, parents before their children: the layout version that made a child is
    the greater one.
    """
    order: list[tuple[int, int, Drained]] = []
    layouts = {
        cohort: state.topics[state.cohorts[cohort].topic].layout.by_id()
        for cohort in sorted({item.cohort for item in items if item.cohort in state.cohorts})
    }
    for item in items:
        part = layouts.get(item.cohort, {}).get(item.partition)
        if part is None or item.incarnation != state.cohorts[item.cohort].incarnation:
            continue
        if not part.is_active and not has_mark(state, item.cohort, item.partition):
            order.append((part.created_version, len(order), item))
    return [item for _, _, item in sorted(order)]
