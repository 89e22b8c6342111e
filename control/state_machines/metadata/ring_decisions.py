"""Decide changes of the ring: the first one at the cluster's minimum size, later ones node by node.

`propose_add` and `propose_remove` return commands for the ring's present version, for use by a rebalance.
If the ring has another version when they are applied, the proposer gets a refusal.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from ringfence.control.model.ids import NodeId
from ringfence.control.model.node_commands import AddToRing, FormRing, RemoveFromRing, RingCommand
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.config import limit


class RingConsensus:
    """Ring changes as commands to commit. All nodes change the ring at one index."""

    @staticmethod
    def propose_add(state: MetadataState, node: NodeId) -> AddToRing:
        """`node` takes partitions from the entry on; the entry moves none."""
        return AddToRing(node=node, version=state.ring.version)

    @staticmethod
    def propose_remove(state: MetadataState, node: NodeId) -> RemoveFromRing:
        """`node`, empty after its moves, takes no partitions any more."""
        return RemoveFromRing(node=node, version=state.ring.version)


def ring_change(state: MetadataState, responsive: AbstractSet[NodeId]) -> RingCommand | None:
    """The change that a leader should propose, which has received heartbeats of the nodes `responsive`; None
    without need.

    The first ring has all ready nodes, once there are `nodes_min` of them. Later, nodes that have joined
    are added one at a time, if `ring_joins` allows it. That moves no partition; new topics may use the
    node.
    """
    ready = [
        number
        for number, node in sorted(state.nodes.items())
        if node.takes_partitions and number in responsive
    ]
    if not state.ring.is_formed:
        has_enough = bool(ready) and len(ready) >= limit(state, "nodes_min")
        return FormRing(nodes=tuple(ready)) if has_enough else None
    if not limit(state, "ring_joins"):
        return None
    members = frozenset(state.ring.members)
    outside = next((node for node in ready if node not in members), None)
    return None if outside is None else RingConsensus.propose_add(state, outside)
