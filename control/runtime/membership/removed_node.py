"""Decide whether a node is still a member of its cluster, from committed metadata: its own or another node's.

A node's id is the index of the entry that registered it. So metadata that includes this index but does not
list the node shows that the node was removed.
"""

from __future__ import annotations

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.rpc import messages


def removed(node: int, entry: int | None) -> str:
    """The message of a removed node's process. `entry` removed the node; None if the index is unknown."""
    by = f" by entry {entry} of the metadata" if entry else ""
    return (
        f"node {node} was removed from the cluster{by}: stop this process; "
        "an empty directory and --join make a new node"
    )


def entry_of(state: MetadataState, node: NodeId) -> Index | None:
    """Index of the entry that removed `node`; None if `state` records none."""
    removal = state.removed.get(node)
    return None if removal is None else removal.removed


def is_removed(state: MetadataState, node: NodeId, index: int) -> bool:
    """Whether the committed `state`, applied up to `index`, shows that `node` was removed."""
    return node in state.removed or (bool(state.cluster) and index >= node and node not in state.nodes)


def reports_removed(reply: messages.Nodes, node: int) -> bool:
    """Whether another node's `reply` shows that `node` was removed."""
    return bool(reply.cluster) and reply.index >= node and all(info.node != node for info in reply.nodes)
