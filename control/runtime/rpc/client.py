"""Send requests to other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import structlog

from ringfence.control.model.ids import NodeId
from ringfence.control.model.nodes import Life
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer_interface import Proposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.peers import Peers
from ringfence.control.state_machines.rebalance.run_rates import Windows, decode_windows
from ringfence.control.transport.hub import ForeignClusterError, Hub, NoAnswerError
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.peer_client")
# Timeout of one wait for another node's orders, in seconds: a few group commits, or the start of a restart.
EXECUTION_TIMEOUT_S: Final = 3.0
# Waits per node, as long as the node makes progress: within the shortest deadlines, 10 s.
EXECUTION_ATTEMPTS_MAX: Final = 3
# Timeout of a request for counters, in seconds.
COUNTERS_TIMEOUT_S: Final = 1.0


class PeerClient:
    """Client for requests to other nodes.

    A timeout raises RequestRefused unless the method says that the value is left out.
    """

    def __init__(
        self,
        hub: Hub,
        peers: Peers,
        proposer: Proposer,
        here: NodeId,
        silent: Callable[[], frozenset[NodeId]] = frozenset,
    ) -> None:
        """`silent` returns the nodes whose heartbeats are overdue."""
        self._hub, self._peers, self._proposer, self.here = hub, peers, proposer, here
        self.silent = silent

    async def ask(self, node: NodeId, call: messages.Call, timeout_s: float) -> messages.Reply:
        """Send one request, and return the reply.

        Raises:
            RequestRefused: the node did not answer, or refused.
        """
        try:
            body = await self._hub.ask(self._peers.address(node), messages.encode(call), timeout_s, to=node)
            reply = messages.decode_reply(body)
        except (NoAnswerError, ForeignClusterError, msgspec.MsgspecError) as error:
            message = f"node {node}: {error}"
            raise RequestRefused(Code.INTERNAL, message, retry_after_ms=1_000, node=node) from error
        if isinstance(reply, messages.Refusal):
            raise RequestRefused(Code(reply.code), reply.message, retry_after_ms=reply.retry_after_ms)
        return reply

    async def await_execution(
        self, nodes: Iterable[NodeId], index: int, *, late_is_fault: bool = False
    ) -> list[str]:
        """Wait until these nodes have executed the orders of the entry at `index`; return the faults.

        A node that does not answer is no fault: it executes committed entries when it is back. A node that
        answers but makes no progress is a fault only with `late_is_fault`.
        """
        state = self._proposer.state
        others = sorted(
            node
            for node in set(nodes) - {self.here}
            if node in state.nodes and state.nodes[node].life is Life.LIVE
        )
        replies = await asyncio.gather(
            *(self._await_execution(node, index, late_is_fault=late_is_fault) for node in others)
        )
        return [fault for faults in replies for fault in faults]

    async def _await_execution(self, node: NodeId, index: int, *, late_is_fault: bool) -> list[str]:
        previous, why = -1, ""
        for _ in range(EXECUTION_ATTEMPTS_MAX):
            try:
                reply = await self.ask(node, messages.AwaitExecution(index=index), EXECUTION_TIMEOUT_S)
            except RequestRefused as refusal:
                why = refusal.message
            else:
                return list(reply.faults) if isinstance(reply, messages.Done) else []
            executed = await self._executed_index(node) if late_is_fault else None
            if executed is None:
                _LOG.warning("not waited for", node=node, index=index, why=why)
                return []
            if executed <= previous:
                break
            previous = executed
        return [f"node {node} has not executed entry {index} yet, it is at {previous}: {why}"]

    async def _executed_index(self, node: NodeId) -> int | None:
        """The node's executed index; 0 if it executes no orders yet, None if it does not answer."""
        try:
            reply = await self.ask(node, messages.ShowExecutedIndex(), COUNTERS_TIMEOUT_S)
        except RequestRefused as refusal:
            return None if isinstance(refusal.__cause__, NoAnswerError) else 0
        return reply.index if isinstance(reply, messages.ExecutedIndex) else 0

    async def hosted(self, topic: int = 0) -> list[dict[str, Any]]:
        """Counters of the partitions of `topic` on other live nodes; 0: of all topics.

        Each entry names its `node`; replicas and old copies are included. Nodes without an answer are left
        out.
        """
        nodes = [
            number
            for number, node in sorted(self._proposer.state.nodes.items())
            if number != self.here and node.life is Life.LIVE
        ]
        replies = await asyncio.gather(
            *(self.ask(node, messages.ListHosted(topic=topic), COUNTERS_TIMEOUT_S) for node in nodes),
            return_exceptions=True,
        )
        return [
            {**counters, "node": node}
            for node, reply in zip(nodes, replies, strict=True)
            if isinstance(reply, messages.Counters)
            for counters in reply.values
        ]

    async def executed_indexes(self) -> dict[NodeId, int]:
        """The executed indexes of other live nodes. Nodes without an answer are left out."""
        nodes = [
            number
            for number, node in sorted(self._proposer.state.nodes.items())
            if number != self.here and node.life is Life.LIVE
        ]
        replies = await asyncio.gather(
            *(self.ask(node, messages.ShowExecutedIndex(), COUNTERS_TIMEOUT_S) for node in nodes),
            return_exceptions=True,
        )
        return {
            node: reply.index
            for node, reply in zip(nodes, replies, strict=True)
            if isinstance(reply, messages.ExecutedIndex)
        }

    async def run_rates(self) -> list[Windows]:
        """The windows of rates of other live nodes. Nodes without an answer are left out."""
        nodes = [
            number
            for number, node in sorted(self._proposer.state.nodes.items())
            if number != self.here and node.life is Life.LIVE
        ]
        replies = await asyncio.gather(
            *(self.ask(node, messages.ShowRunRates(), COUNTERS_TIMEOUT_S) for node in nodes),
            return_exceptions=True,
        )
        rates = []
        for node, reply in zip(nodes, replies, strict=True):
            try:
                rates.append(decode_windows(reply.value if isinstance(reply, messages.Document) else {}))
            except msgspec.ValidationError as error:
                _LOG.warning("rates not understood", node=node, why=str(error))
        return rates

    async def open_producer(self, node: NodeId, call: messages.OpenProducer) -> dict[str, Any]:
        """Raise a named producer's epoch at the owner; return its last batch's record. RequestRefused."""
        reply = await self.ask(node, call, EXECUTION_TIMEOUT_S)
        return reply.values[0] if isinstance(reply, messages.Counters) and reply.values else {}
