"""A member of a CHECKPOINT cohort that reads its rows elsewhere, and tells owners how far it is. Pure.

A Spark query reads plainly, by the offsets of its own checkpoint. This member holds partitions beside it:
it asks for each once, where the reader is, drops what comes with the answer, and asks for no more. A report
goes out as an acknowledgement, also of rows that this member has never seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.consumer.calls import Settle, Settled, Why
from ringfence.consumer.gate import Phase
from ringfence.consumer.member import Member
from ringfence.consumer.values import Point, TaskKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.consumer.calls import Call, Reply
    from ringfence.consumer.gate import Gate
    from ringfence.consumer.values import MemberOptions, Task

# That these rows are not in the log (any more) another report does not change.
IN_VAIN = frozenset({Why.TRUNCATED, Why.FINAL})


class Reporter(Member):
    """One member. `report` and `tick` are its life; nothing is ever given."""

    def __init__(self, options: MemberOptions) -> None:
        super().__init__(options)
        self._reached: dict[int, Point] = {}
        """By partition: the newest report, also of partitions that this member does not hold (yet)."""

    def report(self, reached: Mapping[int, Point]) -> None:
        """The reader is done with the rows before these places. Other partitions stay where they were."""
        self._reached |= reached
        for partition in reached:
            gate = self.state.gates.get(partition)
            if gate is not None:
                self._tell(gate)

    def tick(self, now: float) -> None:
        """Time has passed, or an event was handled."""
        while (task := self.next_task()) is not None:
            self._answer(task)
        for gate in self.state.gates.values():
            self._tell(gate)
        super().tick(now)

    def _answer(self, task: Task) -> None:
        """A partition is to be opened where the reader is."""
        if task.kind in {TaskKind.ASSIGNED, TaskKind.POSITION}:
            for partition in task.partitions:
                reached = self._reached.get(partition)
                self.positioned(partition, reached or Point(0, 0), tells=reached is not None)
                if (gate := self.state.gates.get(partition)) is not None:
                    gate.is_paused = True  # it is not read
        self.done(task)

    def _tell(self, gate: Gate) -> None:
        """Acknowledge what the reader has reached."""
        if gate.phase is not Phase.HELD or self.state.is_closing:
            return
        self.state.bytes -= gate.drop_fetched()
        reached = self._reached.get(gate.partition)
        if reached is not None and reached.offset > gate.told.offset:
            gate.fetched = gate.given = reached
            self.state.bytes -= gate.acknowledge(reached)
            self.settling.told(gate)

    def _answered(self, call: Call, reply: Reply, made_at: float, now: float) -> None:
        if isinstance(call, Settle) and isinstance(reply, Settled):
            for refused in reply.not_taken:
                if refused.why in IN_VAIN:
                    self._reached.pop(refused.partition, None)  # else it would be told again for ever
        super()._answered(call, reply, made_at, now)
