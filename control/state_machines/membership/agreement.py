"""Compare all nodes' state hashes at equal indexes, as heartbeats bring them.

Two nodes have equal indexes in two cases. In a quiet cluster all nodes are at the last index. In a busy
one each node hashes its state at every index divisible by `EVERY`, and heartbeats carry the newest hash.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from ringfence.control.model.ids import Index, NodeId

# At 2,000 commands a second, 8 hashes a second; one takes 1.5 ms with 100,000 partitions.
EVERY: Final = 256
# Own hashes in memory: half a minute of a busy log. A node that lags more is compared once it has caught up.
KEPT_MAX: Final = 1_024


class Diverged(NamedTuple):
    """Another node's state at an index differs from this node's: one of them must stop serving metadata."""

    node: NodeId
    at: Index
    mine: bytes
    its: bytes


class Agreement:
    """One node's own hashes, and hashes of other nodes ahead of it."""

    def __init__(self) -> None:
        self._mine: OrderedDict[Index, bytes] = OrderedDict()
        self._early: dict[NodeId, tuple[Index, bytes]] = {}

    @staticmethod
    def is_due(index: Index) -> bool:
        """Whether every node hashes its state at this index."""
        return index % EVERY == 0

    def mine(self, index: Index, digest: bytes) -> tuple[Diverged, ...]:
        """Add this node's own hash; return the nodes that had reported another hash up to this index."""
        known = self._mine.setdefault(index, digest)
        assert known == digest, f"two hashes of one state at index {index}: {known.hex()} and {digest.hex()}"
        while len(self._mine) > KEPT_MAX:
            self._mine.popitem(last=False)
        waiting = [node for node, (at, _) in sorted(self._early.items()) if at <= index]
        found = [self._compared(node, *self._early.pop(node)) for node in waiting]
        return tuple(diverged for diverged in found if diverged is not None)

    def heard(self, node: NodeId, index: Index, digest: bytes) -> Diverged | None:
        """Add another node's hash. A hash ahead of this node is compared once this node reaches its index."""
        newest = next(reversed(self._mine), 0)
        if index > newest:
            self._early[node] = (index, digest)
            return None
        return self._compared(node, index, digest)

    def _compared(self, node: NodeId, index: Index, digest: bytes) -> Diverged | None:
        mine = self._mine.get(index)
        return None if mine is None or mine == digest else Diverged(node, index, mine, digest)
