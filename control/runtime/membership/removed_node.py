"""Whether a node is a member of its cluster still, by metadata that is committed: its own, or another node's.

A node's id is the index of the entry that made it a member, so metadata that reaches there and does not list
the node has lost it since.
"""

from __future__ import annotations

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.rpc import messages


def removed(node: int, entry: int | None) -> str:
    """What its process says of a removed node; `entry` removed it, None where that is not known any more."""
    by = f" by entry {entry} of the metadata" if entry else ""
    gone = f"node {node} was removed from the cluster{by}"
    return f"{gone}: stop this process; an empty directory and --join make a new node"


def entry_of(state: MetadataState, node: NodeId) -> Index | None:
    """The entry that removed it; None where this state knows of none."""
    gone = state.removed.get(node)
    return None if gone is None else gone.removed


def is_removed(state: MetadataState, node: NodeId, index: int) -> bool:
    """Whether a state that is committed, up to `index`, is of a cluster that the node was removed from."""
    return node in state.removed or (bool(state.cluster) and index >= node and node not in state.nodes)


def is_told_removed(told: messages.Nodes, node: int) -> bool:
    """The same of what another node tells."""
    return bool(told.cluster) and told.index >= node and all(one.node != node for one in told.nodes)
