"""Acknowledgements: merged, one request under way for each node, repeated until they are answered. Pure.

An acknowledgement names the hold and the place through which all rows are done. The owner answers when a
later owner would know it, too. Repeats are harmless, so one that got no answer is made again, at the node
that has the gate then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.consumer.calls import Settle, Settlement, Why
from ringfence.consumer.gate import WITH_HOLD, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.consumer.calls import NotTaken, Refusal, Settled
    from ringfence.consumer.gate import Gate
    from ringfence.consumer.state import State

ENTRIES_MAX: Final = 4096
RETRY_S: Final = 0.2


class Settling:
    """What owners must hear of acknowledgements.

    `on_lost(gate)`: the hold was over before. `on_released(gate)`: the owner has the release.
    """

    def __init__(
        self, state: State, *, on_lost: Callable[[Gate], None], on_released: Callable[[Gate], None]
    ) -> None:
        self._state, self._on_lost, self._on_released = state, on_lost, on_released
        self._owing: set[int] = set()  # partitions
        self._under_way: dict[int, int] = {}  # by node: number of the request
        self._not_before: dict[int, float] = {}  # by node
        self._urgent: set[int] = set()  # partitions whose acknowledgement does not wait for the interval

    def told(self, gate: Gate, *, urgent: bool = False) -> None:
        """The application acknowledged rows, or the hold is to be released."""
        if gate.owes:
            self._owing.add(gate.partition)
            if urgent:
                self._urgent.add(gate.partition)

    def forget(self, gate: Gate) -> None:
        """The hold is over."""
        self._owing.discard(gate.partition)
        self._urgent.discard(gate.partition)

    @property
    def is_idle(self) -> bool:
        """Whether no owner must hear anything."""
        return not self._owing

    def pump(self, now: float) -> None:
        """Make the requests that are due."""
        by_node: dict[int, list[Gate]] = {}
        for partition in self._owing:
            gate = self._state.gates[partition]
            node = self._state.node_of(gate)
            if node is not None and node not in self._under_way:
                by_node.setdefault(node, []).append(gate)
        for node, gates in by_node.items():
            is_urgent = any(gate.partition in self._urgent for gate in gates)
            if now >= self._not_before.get(node, 0.0) or is_urgent:
                self._settle(node, gates[:ENTRIES_MAX], now)

    def _settle(self, node: int, gates: list[Gate], now: float) -> None:
        gates.sort(key=lambda gate: gate.partition)
        entries = tuple(Settlement(one.partition, one.hold, one.told, one.release) for one in gates)
        call = self._state.call(lambda number: Settle(number, node, entries), now)
        self._under_way[node] = call.number
        self._not_before[node] = now + self._state.options.interval_s
        self._urgent.difference_update(gate.partition for gate in gates)

    def settled(self, call: Settle, reply: Settled) -> None:
        """A node has the acknowledgements, but for some."""
        self._end(call)
        refused = {one.partition: one for one in reply.not_taken}
        for entry in call.entries:
            gate = self._state.gates.get(entry.partition)
            if gate is None or gate.hold != entry.hold:
                continue
            if entry.partition in refused:
                self._not_taken(gate, refused[entry.partition])
            else:
                self._taken(gate, entry)

    def _taken(self, gate: Gate, entry: Settlement) -> None:
        if entry.through.offset > gate.settled.offset:
            gate.settled = entry.through
        gate.tells_beginning = False
        for call in gate.settled_callbacks():
            call(None)
        if entry.release:
            self.forget(gate)
            self._on_released(gate)
            return
        if not gate.owes:
            self._owing.discard(gate.partition)
        if gate.phase is Phase.HELD and gate.end is not None and gate.settled.offset >= gate.end:
            self._on_released(gate)

    def _not_taken(self, gate: Gate, refused: NotTaken) -> None:
        if refused.why is Why.NOT_ASSIGNED and gate.release:
            self.forget(gate)
            self._on_released(gate)  # the hold is over, or an owner of before says so: T ends it there
        elif refused.why is Why.NOT_ASSIGNED and refused.hold > gate.hold:
            self._on_lost(gate)  # else an owner of before speaks
        elif refused.why in {Why.TRUNCATED, Why.FINAL}:
            for _, call in gate.wait_settled:
                call(refused.error)
            gate.wait_settled.clear()
            self._on_lost(gate)
        elif refused.why is Why.REDIRECT:
            self._state.needs_table = self._state.needs_table or 0

    def failed(self, call: Settle, refusal: Refusal | None, now: float) -> None:
        """The request was refused as a whole, or got no answer: it is made again."""
        self._end(call)
        wait_s = max(RETRY_S, 0.0 if refusal is None else refusal.retry_after_s)
        self._not_before[call.node] = now + wait_s

    def _end(self, call: Settle) -> None:
        if self._under_way.get(call.node) == call.number:
            del self._under_way[call.node]

    def down(self, node: int) -> None:
        """The connection ended."""
        self._under_way.pop(node, None)
        self._not_before.pop(node, None)

    def faults(self) -> list[str]:
        """What must never hold; tests look after each event."""
        gates = self._state.gates
        owing = {one.partition for one in gates.values() if one.phase in WITH_HOLD and one.owes}
        return [f"an acknowledgement of {one} is forgotten" for one in owing - self._owing] + [
            f"nothing is owed of {one}" for one in self._owing - owing
        ]
