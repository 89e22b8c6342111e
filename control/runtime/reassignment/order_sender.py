"""Send the leader's reassignment orders to their nodes, which may be this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.start_gate import StartGate
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder
from ringfence.native.wire import Code

# Timeout of one reassignment order to another node, in seconds; the leader repeats it.
ORDER_TIMEOUT_S: Final = 3.0


class OrderTarget(Protocol):
    """Executes orders: `Participant`."""

    async def execute(self, term: int, order: ReassignmentOrder, /) -> ReassignmentAnswer: ...
    async def execute_many(
        self, term: int, orders: Sequence[ReassignmentOrder], /
    ) -> tuple[ReassignmentAnswer | None, ...]: ...


class OrderSender:
    """Sends orders, and returns the answers. RequestRefused."""

    def __init__(self, peer_client: PeerClient, here: OrderTarget, gate: StartGate) -> None:
        """`here` executes the orders for this node, once `gate` is open."""
        self._peer_client, self._here, self._gate = peer_client, here, gate

    async def send(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        if order.to.node == self._peer_client.here:
            self._gate.check()
            return await self._here.execute(term, order)
        reply = await self._peer_client.ask(
            order.to.node, messages.ExecuteOrder(term=term, order=order), ORDER_TIMEOUT_S
        )
        if isinstance(reply, messages.OrderAnswer) and isinstance(reply.answer, ReassignmentAnswer):
            return reply.answer
        raise RequestRefused(
            Code.INTERNAL, f"node {order.to.node} answered an order with another message: {reply!r:.200}"
        )

    async def send_many(
        self, term: int, orders: tuple[ReassignmentOrder, ...]
    ) -> tuple[ReassignmentAnswer | None, ...]:
        """Send orders that are all for one node."""
        node = orders[0].to.node
        if node == self._peer_client.here:
            self._gate.check()
            return await self._here.execute_many(term, orders)
        reply = await self._peer_client.ask(
            node, messages.ExecuteOrders(term=term, orders=orders), ORDER_TIMEOUT_S
        )
        if isinstance(reply, messages.OrderAnswers):
            return reply.answers
        raise RequestRefused(
            Code.INTERNAL, f"node {node} answered orders with another message: {reply!r:.200}"
        )
