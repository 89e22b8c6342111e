"""Send the leader's orders and questions of layout changes to their nodes, which may be this one."""

from __future__ import annotations

from typing import Final, Protocol

from ringfence.control.model.ids import NodeId
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.start_gate import StartGate
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.layout_messages import SealedLogs, SketchOf, SketchWeights, TellSealed
from ringfence.control.state_machines.layout.hot_keys import Sketch
from ringfence.control.state_machines.layout.messages import LayoutAnswer, LayoutOrder
from ringfence.native.wire import Code

# Timeout of one order or question to another node, in seconds; the leader repeats it.
TIMEOUT_S: Final = 3.0
# Timeout of a question for a sketch, in seconds: without an answer a partition is split in the middle.
SKETCH_TIMEOUT_S: Final = 1.0


class LayoutOrderTarget(Protocol):
    """Executes orders: `LayoutParticipant`."""

    async def execute(self, term: int, order: LayoutOrder, /) -> LayoutAnswer: ...


class OwnerAnswers(Protocol):
    """Answers questions about partitions that a node owns: `SourceAnswers`."""

    async def tell_sealed(self, call: TellSealed, /) -> SealedLogs: ...
    async def sketch_of(self, call: SketchOf, /) -> SketchWeights: ...


class LayoutOrderSender:
    """Sends orders and questions, and returns the answers. RequestRefused."""

    def __init__(
        self, peer_client: PeerClient, orders: LayoutOrderTarget, answers: OwnerAnswers, gate: StartGate
    ) -> None:
        """`orders` and `answers` answer for this node, once `gate` is open."""
        self._peer_client, self._orders, self._answers = peer_client, orders, answers
        self._gate = gate

    async def send(self, term: int, order: LayoutOrder) -> LayoutAnswer:
        node = order.to.node
        if node == self._peer_client.here:
            self._gate.check()
            return await self._orders.execute(term, order)
        reply = await self._peer_client.ask(node, messages.ExecuteOrder(term=term, order=order), TIMEOUT_S)
        if isinstance(reply, messages.OrderAnswer) and isinstance(reply.answer, LayoutAnswer):
            return reply.answer
        raise RequestRefused(Code.INTERNAL, f"node {node} answered an order with {reply!r:.200}")

    async def ask_sealed(self, node: NodeId, call: TellSealed) -> SealedLogs:
        if node == self._peer_client.here:
            self._gate.check()
            return await self._answers.tell_sealed(call)
        reply = await self._peer_client.ask(node, call, TIMEOUT_S)
        if isinstance(reply, SealedLogs):
            return reply
        raise RequestRefused(Code.INTERNAL, f"node {node} answered a question with {reply!r:.200}")

    async def ask_sketch(self, node: NodeId, call: SketchOf) -> Sketch:
        if node == self._peer_client.here:
            self._gate.check()
            return Sketch((await self._answers.sketch_of(call)).weights)
        reply = await self._peer_client.ask(node, call, SKETCH_TIMEOUT_S)
        if isinstance(reply, SketchWeights):
            return Sketch(reply.weights)
        raise RequestRefused(Code.INTERNAL, f"node {node} answered a question with {reply!r:.200}")
