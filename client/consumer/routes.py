"""Where the gate of a partition is: at its owner, of a sealed one at the owner of its heir. Pure.

The heir is the ACTIVE partition that has the lowest slot of the sealed one. Nodes compute the same.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from ringfence.common.routing import ACTIVE

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from ringfence.native.messages import PartitionEntry


class Routes:
    """Gates of one topic by a routing table. `owners`: the nodes that have gates."""

    def __init__(self, layout: Layout | None) -> None:
        self.layout = layout
        active = () if layout is None else layout.active
        self._los = [entry.lo for entry in active]
        self.owners = frozenset(entry.owner for entry in active if entry.owner)

    @property
    def version(self) -> int:
        return 0 if self.layout is None else self.layout.version

    def is_known(self, partition: int) -> bool:
        return self.layout is not None and partition in self.layout.partitions

    def is_sealed(self, partition: int) -> bool:
        entry = None if self.layout is None else self.layout.partitions.get(partition)
        return entry is not None and entry.state != ACTIVE

    def node_of(self, partition: int) -> int | None:
        """The node that has the partition's gate; None: the table does not have the partition."""
        entry = self._with_gate(partition)
        return None if entry is None else entry.owner

    def epoch_of(self, partition: int) -> int | None:
        """The owner epoch of the log with the partition's gate."""
        entry = self._with_gate(partition)
        return None if entry is None else entry.epoch

    def _with_gate(self, partition: int) -> PartitionEntry | None:
        entry = None if self.layout is None else self.layout.partitions.get(partition)
        if entry is None or self.layout is None or entry.state == ACTIVE:
            return entry
        return self.layout.active[bisect_right(self._los, entry.lo) - 1]
