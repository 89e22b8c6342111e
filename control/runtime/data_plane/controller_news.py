"""Tell the engine who leads the metadata, for clients that watch."""

from __future__ import annotations

from ringfence.control.model.ids import NodeId
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.native import messages
from ringfence.native.cluster_messages import Controller


class ControllerNews:
    """The leader that the engine was told last."""

    def __init__(self, proposer: RaftProposer, native_node: NativeNode) -> None:
        self._proposer, self._native_node = proposer, native_node
        self._told: Controller | None = None

    def refresh(self) -> None:
        """Tell the engine if the leader is another one, or has other addresses. Call about once a second."""
        node = NodeId(self._proposer.replica.leader)
        record = self._proposer.state.nodes.get(node)
        if record is None:  # nobody leads, or it is not in this node's metadata yet
            found = Controller(node=0, addresses=[], http="")
        else:
            found = Controller(node=node, addresses=list(record.addresses), http="".join(record.http[:1]))
        if found != self._told and self._native_node.set_controller(messages.encode(found)):
            self._told = found
