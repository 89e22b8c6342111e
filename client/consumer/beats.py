"""Leases: a member gives rows of a partition only while its owner leaves it to this member. Pure.

Both count the same request, the member from when it was made, the owner from when it answered. So the
member's lease ends first, whatever is delayed. `MARGIN_S` covers clocks that run at different rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.consumer.calls import HOME, Beat
from ringfence.consumer.gate import WITH_HOLD, Phase

if TYPE_CHECKING:
    from ringfence.consumer.calls import Renewed
    from ringfence.consumer.gate import Gate
    from ringfence.consumer.state import State

MARGIN_S: Final = 0.5
# Beats of one lease, so that a lost one does not end it.
BEATS_A_LEASE: Final = 3
# A lease that is over, and whose rows the application waits for, is asked for so often.
OVERDUE_S: Final = 0.25
HOLDS_MAX: Final = 4096


class Beats:
    """Renews leases at each node."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._last: dict[int, float] = {}  # by node: when the last beat was made
        self._under_way: dict[int, int] = {}  # by node: its number
        self.wanted: set[int] = set()  # nodes whose lease is over while the application waits

    def is_valid(self, gate: Gate, now: float) -> bool:
        """Whether rows may be given now. If not, the lease is asked for."""
        if now < gate.lease_until - MARGIN_S:
            return True
        node = self._state.node_of(gate)
        if node is not None:
            self.wanted.add(node)
        return False

    def pump(self, now: float) -> None:
        """Make the beats that are due."""
        for node in self._state.attached:
            every_s = OVERDUE_S if node in self.wanted else self._state.lease_s / BEATS_A_LEASE
            if node not in self._under_way and now - self._last.get(node, -every_s) >= every_s:
                self._beat(node, now)

    def _beat(self, node: int, now: float) -> None:
        state = self._state
        held = [
            gate for gate in state.gates.values() if gate.phase in WITH_HOLD and state.node_of(gate) == node
        ]
        # The ones that end first, if there are too many for one request.
        held.sort(key=lambda gate: gate.lease_until)
        holds = tuple(sorted((gate.partition, gate.hold) for gate in held[:HOLDS_MAX]))
        self.wanted.discard(node)
        self._last[node] = now
        call = state.call(lambda number: Beat(number, node, holds), now)
        self._under_way[node] = call.number

    def renewed(self, call: Beat, reply: Renewed, made_at: float) -> None:
        """A node renewed the leases that the beat named."""
        state = self._state
        state.lease_s = reply.lease_s
        state.heard(reply.generation)
        for partition, hold in call.holds:
            gate = state.gates.get(partition)
            if gate is None or gate.hold != hold or partition in reply.without:
                continue
            # A partition that the plan took away is released, and gives no more rows.
            if gate.phase is Phase.HELD:
                gate.lease_until = max(gate.lease_until, made_at + reply.lease_s)
        if call.node != HOME or call.holds:
            state.ring()

    def ended(self, call: Beat) -> None:
        """The beat has its outcome."""
        if self._under_way.get(call.node) == call.number:
            del self._under_way[call.node]

    def down(self, node: int) -> None:
        """The connection ended: beat again as soon as there is another."""
        self._under_way.pop(node, None)
        self._last.pop(node, None)
