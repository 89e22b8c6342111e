"""Count layout changes by their ends, as this node applies the entries since its start."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.state import EMPTY, MetadataState

ABORTED: Final = "aborted"
COMMITTED: Final = "committed"
FINALIZED: Final = "finalized"


class LayoutCounts:
    """`ends` counts by (kind, result): committed, aborted, finalized. `pruned` counts partitions."""

    def __init__(self) -> None:
        self.ends: Counter[tuple[TransitionKind, str]] = Counter()
        self.pruned = 0

    def apply(self, before: MetadataState, after: MetadataState) -> None:
        """Take the states before and after an entry. What a start finds is not counted."""
        if before is EMPTY:
            return
        if before.transitions is not after.transitions:
            self._count_ends(before, after)
        elif before.topics is not after.topics:
            self._count_prunes(before, after)

    def _count_ends(self, before: MetadataState, after: MetadataState) -> None:
        for number, transition in before.transitions.items():
            now = after.transitions.get(number)
            if now is None:
                result = ABORTED if transition.may_abort else FINALIZED
                self.ends[transition.kind, result] += 1
            elif transition.may_abort and not now.may_abort:
                self.ends[transition.kind, COMMITTED] += 1

    def _count_prunes(self, before: MetadataState, after: MetadataState) -> None:
        for number, topic in after.topics.items():
            old = before.topics.get(number)
            if old is not None and old.layout is not topic.layout:
                self.pruned += max(0, len(old.layout.partitions) - len(topic.layout.partitions))
