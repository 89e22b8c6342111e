"""Questions to other nodes: what a request needs of the owners of partitions that are not here."""

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
from ringfence.control.transport.hub import ForeignClusterError, Hub, NoAnswerError
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.peer_client")
SETTLE_S: Final = 3.0
"""How long a request waits for another node's orders: a few group commits, or a restart's first second."""
SETTLES_MAX: Final = 3
"""So often it waits for a node that gets on: within the shortest deadlines, 10 s."""
FIGURES_S: Final = 1.0
"""How long a description waits for figures of others."""


class PeerClient:
    """Asks. A node that does not answer is a refusal, or a missing figure: the caller says which."""

    def __init__(
        self,
        hub: Hub,
        peers: Peers,
        proposer: Proposer,
        here: NodeId,
        silent: Callable[[], frozenset[NodeId]] = frozenset,
    ) -> None:
        """`silent` gives nodes that should have been heard and were not."""
        self._hub, self._peers, self._proposer, self.here = hub, peers, proposer, here
        self.silent = silent

    async def ask(self, node: NodeId, call: messages.Call, timeout_s: float) -> messages.Reply:
        """One question.

        Raises:
            RequestRefused: no answer, or the other node refused.
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

    async def settle(self, nodes: Iterable[NodeId], index: int, *, late_is_fault: bool = False) -> list[str]:
        """Wait until these nodes have carried out the entry at `index`; what of it failed.

        One that does not answer is no fault: what is committed it carries out when it is back. Nor is one
        that is late, unless `late_is_fault`: it answers, but is not there and does not get on.
        """
        state = self._proposer.state
        others = sorted(
            node
            for node in set(nodes) - {self.here}
            if node in state.nodes and state.nodes[node].life is Life.LIVE
        )
        replies = await asyncio.gather(
            *(self._settle(node, index, late_is_fault=late_is_fault) for node in others)
        )
        return [fault for faults in replies for fault in faults]

    async def _settle(self, node: NodeId, index: int, *, late_is_fault: bool) -> list[str]:
        before, why = -1, ""
        for _ in range(SETTLES_MAX):
            try:
                reply = await self.ask(node, messages.AwaitExecution(index=index), SETTLE_S)
            except RequestRefused as refusal:
                why = refusal.message
            else:
                return list(reply.faults) if isinstance(reply, messages.Done) else []
            at = await self._carried(node) if late_is_fault else None
            if at is None:
                _LOG.warning("not waited for", node=node, index=index, why=why)
                return []
            if at <= before:
                break
            before = at
        return [f"node {node} has not carried out entry {index} yet, it is at {before}: {why}"]

    async def _carried(self, node: NodeId) -> int | None:
        """How far this node is: 0 for one that carries out nothing yet, None for one that is silent."""
        try:
            told = await self.ask(node, messages.ShowExecutedIndex(), FIGURES_S)
        except RequestRefused as refusal:
            return None if isinstance(refusal.__cause__, NoAnswerError) else 0
        return told.index if isinstance(told, messages.ExecutedIndex) else 0

    async def hosted(self, topic: int = 0) -> list[dict[str, Any]]:
        """Figures of the partitions of a topic, or of all, that live nodes other than this one have.

        Each with its `node`: replicas and old copies are told, too.
        """
        nodes = [
            number
            for number, node in sorted(self._proposer.state.nodes.items())
            if number != self.here and node.life is Life.LIVE
        ]
        replies = await asyncio.gather(
            *(self.ask(node, messages.ListHosted(topic=topic), FIGURES_S) for node in nodes),
            return_exceptions=True,
        )
        return [
            {**figures, "node": node}
            for node, reply in zip(nodes, replies, strict=True)
            if isinstance(reply, messages.Counters)
            for figures in reply.values
        ]

    async def executed_indexes(self) -> dict[NodeId, int]:
        """Up to which index live nodes have carried out their orders; who does not answer is missing."""
        nodes = [
            number
            for number, node in sorted(self._proposer.state.nodes.items())
            if number != self.here and node.life is Life.LIVE
        ]
        replies = await asyncio.gather(
            *(self.ask(node, messages.ShowExecutedIndex(), FIGURES_S) for node in nodes),
            return_exceptions=True,
        )
        return {
            node: reply.index
            for node, reply in zip(nodes, replies, strict=True)
            if isinstance(reply, messages.ExecutedIndex)
        }

    async def open_producer(self, node: NodeId, call: messages.OpenProducer) -> dict[str, Any]:
        """A named producer's epoch at the owner; what the owner knows of its last batch. RequestRefused."""
        reply = await self.ask(node, call, SETTLE_S)
        return reply.values[0] if isinstance(reply, messages.Counters) and reply.values else {}
