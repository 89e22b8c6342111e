"""Changes of the ring: the first one when the cluster has its minimum size, later ones node by node.

The names are those of the interface that a rebalance uses: `propose_add` and `propose_remove` give the
command, decided on the ring as it is; who proposes it hears whether the ring was still that one.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from ringfence.control.model.ids import NodeId
from ringfence.control.model.node_commands import AddToRing, FormRing, RemoveFromRing, RingCommand
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.config import limit


class RingConsensus:
    """Ring changes as commands to commit. A ring is changed on all nodes at one index, or on none."""

    @staticmethod
    def propose_add(state: MetadataState, node: NodeId) -> AddToRing:
        """`node` takes partitions from the entry on; nothing moves by it."""
        return AddToRing(node=node, version=state.ring.version)

    @staticmethod
    def propose_remove(state: MetadataState, node: NodeId) -> RemoveFromRing:
        """`node`, empty after its moves, takes no partitions any more."""
        return RemoveFromRing(node=node, version=state.ring.version)


def ring_change(state: MetadataState, heard: AbstractSet[NodeId]) -> RingCommand | None:
    """What a leader that has heard the nodes `heard` should propose; None when the ring is as it should be.

    The first ring has every node that is ready, once there are `nodes_min` of them. Later a node that has
    joined is added, one at a time, if `ring_joins` allows it: that moves nothing, and new topics may use it.
    """
    ready = [
        number for number, node in sorted(state.nodes.items()) if node.takes_partitions and number in heard
    ]
    if not state.ring.is_formed:
        enough = bool(ready) and len(ready) >= limit(state, "nodes_min")
        return FormRing(nodes=tuple(ready)) if enough else None
    if not limit(state, "ring_joins"):
        return None
    members = frozenset(state.ring.members)
    outside = next((node for node in ready if node not in members), None)
    return None if outside is None else RingConsensus.propose_add(state, outside)
