"""Changes of a topic's layout: partitions split, merge, or are repartitioned, as the log stores them.

    PREPARED --hold--> HELD --commit--> COMMITTED --confirm--> OPENED --finalize--> (ended)
        |                |
        +----- abort ----+--> (ended)

A transition replaces its sources by its children in one entry, the COMMIT. Each source has a change of kind
SEAL with the transition's number in `state.changes`: so moves, failovers and layout changes exclude each
other per partition. The number is the index of the entry that prepared it, the fence of all sources, and
the owner epoch of all children.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ringfence.control.model.ids import Index, PartitionId, TopicId
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.topics import Replica

# The cluster's level from which on all nodes know layout changes. Nothing of them is proposed, applied or
# written below it.
LAYOUT_LEVEL: Final = 2


class TransitionKind(StrEnum):
    # One source, several children.
    SPLIT = "SPLIT"
    # Two adjacent sources, one child.
    MERGE = "MERGE"
    # Any sources and children with the same slots, decided on one version of the layout.
    REPARTITION = "REPARTITION"


class Child(msgspec.Struct, frozen=True, array_like=True):
    """A partition that a transition makes. `replicas`: the owner first; empty from the COMMIT on, when the
    assignments have them.
    """

    partition: PartitionId
    slots: SlotRange
    replicas: tuple[Replica, ...]


class Transition(msgspec.Struct, frozen=True):
    """One open layout change.

    The COMMIT sets `version`, the layout version that it makes, and `before` and `after`, the numbers of
    ACTIVE partitions; all are 0 until then. `adoption_generation` is the index of the COMMIT: clients that
    hold a table of it or a newer one know the children. `stopped_us` is the time of the sources' last
    acknowledgement, Unix us, 0 if unknown. `why` is empty for a change by an operator.
    """

    change: ChangeId
    kind: TransitionKind
    topic: TopicId
    sources: tuple[PartitionId, ...]
    children: tuple[Child, ...]
    phase: ChangePhase = ChangePhase.PREPARED
    version: int = 0
    before: int = 0
    after: int = 0
    adoption_generation: Index = Index(0)
    stopped_us: int = 0
    why: str = ""

    @property
    def may_abort(self) -> bool:
        """Whether the layout is still the one before the transition. Afterwards it only goes forward."""
        return self.phase in {ChangePhase.PREPARED, ChangePhase.HELD}

    @property
    def owners(self) -> tuple[Replica, ...]:
        """Owners of the children, before the COMMIT."""
        return tuple(child.replicas[0] for child in self.children)
