"""End quarantines: read every replica of a partition again, and report the nodes where it is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.results import Done
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.handlers.commands import Outcome, Plan
from ringfence.control.runtime.handlers.partitions import topic_with
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.native._node import Order
from ringfence.native.wire import Code

# Time for the check of one replica, in seconds. The node goes on with a check that takes longer.
CHECK_S: Final = 6.0
# Timeout of a request to another node: its check, and the way there and back.
ASK_S: Final = CHECK_S + 2.0


class Quarantines:
    """Handlers; they raise RequestRefused."""

    def __init__(self, proposer: RaftProposer, peer_client: PeerClient, native_node: NativeNode) -> None:
        self._proposer, self._peer_client, self._native_node = proposer, peer_client, native_node

    async def plan_release(
        self, partition: PartitionId, on_released: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> Plan:
        """End the quarantine of `partition` at each node that has a replica. The rows must be sound again.

        No entry is needed: the outcome has the newest index. `on_released` gets the partition and its nodes.

        Raises:
            RequestRefused: QUARANTINED, a replica is still damaged, or was not checked; other replicas may
                have been released.
        """
        topic = self._topic(partition)
        nodes = [replica.node for replica in topic.assignments[partition].replicas]
        checks = await asyncio.gather(*(self._check(node, partition) for node in nodes))
        faults = [fault for fault in checks if fault is not None]
        if faults:
            message = f"partition {partition} of {topic.name} is not released: {'; '.join(faults)}"
            raise RequestRefused(Code.QUARANTINED, message, partition=partition)
        on_released({"partition": partition, "nodes": sorted(nodes)})
        return Plan(done=Outcome(self._proposer.applied.index, Done()))

    async def release_here(self, partition: PartitionId) -> None:
        """Read every file of this node's replica again, and end its quarantine.

        Raises:
            RequestRefused: QUARANTINED, the replica is still damaged; UNKNOWN_OUTCOME, the check takes
                longer, and goes on.
        """
        topic = self._topic(partition)
        check = asyncio.ensure_future(
            self._native_node.order(Order.check_quarantine(topic.topic, partition), holds_slot=False)
        )
        try:
            await asyncio.wait_for(asyncio.shield(check), CHECK_S)
        except OrderError as error:
            raise RequestRefused(Code.QUARANTINED, str(error), partition=partition) from error
        except TimeoutError:
            # Its outcome is an event, too; without this the loop would report an exception that no one took.
            check.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            message = f"still reading after {CHECK_S:g} s; the node's reasons of status say when it ends"
            raise RequestRefused(Code.UNKNOWN_OUTCOME, message, partition=partition) from None

    async def _check(self, node: NodeId, partition: PartitionId) -> str | None:
        """None if the replica at `node` is sound, else the fault."""
        try:
            if node == self._peer_client.here:
                await self.release_here(partition)
            else:
                question = messages.ReleasePartition(partition=partition, here=True)
                await self._peer_client.ask(node, question, ASK_S)
        except RequestRefused as refusal:
            named = refusal.message.removeprefix(f"node {node}: ")
            return f"node {node}: {named}"
        return None

    def _topic(self, partition: PartitionId) -> Topic:
        topic = topic_with(self._proposer.state, partition)
        if topic is None:
            message = (
                f"no topic has a partition {partition}; `ringfence topic show` lists a topic's partitions"
            )
            raise RequestRefused(Code.UNKNOWN_PARTITION, message)
        return topic
