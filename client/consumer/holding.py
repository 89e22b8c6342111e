"""The partitions of a member: what is assigned, opened, fetched, given, and lost. Pure.

    WAITING -> OPENING -> HELD -> LEAVING -> RELEASING -> gone
                  ^         |                    |
                  +- lost --+                    +-> OPENING, if the plan named this member again

Rows are given by `fetching.py` and `giving.py`; this module decides who has what.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ringfence.consumer.gate import WITH_HOLD, Gate, Phase
from ringfence.consumer.lost_rows import lost_error
from ringfence.consumer.values import Point, Task, TaskKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ringfence.consumer.queue_rows import Range
    from ringfence.consumer.settle import Settling
    from ringfence.consumer.state import State
    from ringfence.consumer.values import ConsumerPlace

LOST: Final = "the hold of their partition was over before, and they may come again to another member"
RELEASED: Final = "the partition went to another member before"
OVER: Final = "the hold of the partition is over: another member has it, or it begins again; they come again"
SESSION_OVER: Final = (
    "the session of this member is over: no node heard it for too long, or it was removed; they come again"
)

# Holds that ended, of which it is known what was settled. A place of an older one is said to be lost.
ENDED_MAX: Final = 4096


class Holding:
    """Which partitions the member has. `look(gate)`: something about a partition may be done now."""

    def __init__(self, state: State, look: Callable[[Gate], None]) -> None:
        self._state, self._look = state, look
        self._telling: dict[int, tuple[Gate, ...]] = {}  # by task
        # Of (partition, hold) that ended, the newest last: rows before it are acknowledged.
        self._settled: dict[tuple[int, int], int] = {}
        self.settling: Settling  # set by the member, which makes both

    # ---- plans -------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[int]) -> None:
        """The plan names these partitions and no others."""
        state = self._state
        wanted = set(partitions)
        lost = [gate for one, gate in state.gates.items() if one not in wanted]
        self._revoke([gate for gate in lost if gate.phase in {Phase.HELD, Phase.LEAVING}])
        for gate in lost:
            gate.returns = False
            if gate.phase not in WITH_HOLD:
                self._forget(gate)
        new: list[Gate] = []
        for partition in sorted(wanted):
            if partition not in state.gates:
                new.append(state.add_gate(Gate(partition, Phase.WAITING)))
                continue
            gate = state.gates[partition]
            if gate.phase is Phase.LEAVING:
                self._keep(gate)
            elif gate.phase is Phase.RELEASING:
                gate.returns = True
        self._begin(new)

    def _begin(self, gates: list[Gate]) -> None:
        """Open partitions, after the application was told of them if it wants to be."""
        options = self._state.options
        if options.is_checkpoint or TaskKind.ASSIGNED in options.tells:
            self._tell(TaskKind.ASSIGNED, gates)
            return
        for gate in gates:
            gate.phase = Phase.OPENING
            self._look(gate)

    def _keep(self, gate: Gate) -> None:
        """The plan takes back that it took the partition away."""
        gate.phase = Phase.HELD
        self._look(gate)

    def _revoke(self, gates: list[Gate]) -> None:
        """Give no more rows. The application may acknowledge what it has, then the hold is released."""
        telling = []
        for gate in gates:
            self._state.bytes -= gate.drop_fetched()
            if gate.phase is Phase.LEAVING:
                continue
            gate.phase = Phase.LEAVING
            if gate.has_unacknowledged or TaskKind.REVOKED in self._state.options.tells:
                telling.append(gate)
            else:
                self.release(gate)
        self._tell(TaskKind.REVOKED, telling)

    def _tell(self, kind: TaskKind, gates: list[Gate]) -> None:
        if gates:
            self._state.tell(kind, (gate.partition for gate in gates))
            self._telling[self._state.tasks[-1].number] = tuple(gates)

    def done(self, task: Task) -> None:
        """The application came back from a callback."""
        for gate in self._telling.pop(task.number, ()):
            if self._state.gates.get(gate.partition) is not gate:
                continue
            if task.kind is TaskKind.REVOKED and gate.phase is Phase.LEAVING:
                self.release(gate)
            elif task.kind in {TaskKind.ASSIGNED, TaskKind.POSITION} and gate.phase is Phase.WAITING:
                gate.phase, gate.question = Phase.OPENING, None
                self._look(gate)

    def positioned(self, partition: int, position: Point | None, *, tells: bool = False) -> None:
        """CHECKPOINT: the application's store is there; None: it has nothing of the partition.

        `tells`: the position is settled when the partition is opened.
        """
        gate = self._state.gates.get(partition)
        if gate is not None and gate.phase is Phase.WAITING:
            gate.position, gate.tells_beginning = position, tells

    def ask_position(self, gate: Gate, question: Mapping[str, Any]) -> None:
        """The store has nothing of the partition, and the cohort has: the application must look again."""
        gate.phase, gate.question = Phase.WAITING, question
        self._tell(TaskKind.POSITION, [gate])

    # ---- the end of holds --------------------------------------------------------------------------------

    def release(self, gate: Gate) -> None:
        """Tell the owner that this member is through, with what was acknowledged."""
        self._state.bytes -= gate.drop_fetched()
        gate.phase, gate.release = Phase.RELEASING, True
        self.settling.told(gate, urgent=True)

    def released(self, gate: Gate) -> None:
        """The owner has the release, or the partition is drained."""
        if not gate.release:
            self._has_ended(gate)
            gate.phase = Phase.DRAINED
            self._state.bytes -= gate.ended(Phase.DRAINED)
            return
        self._end(gate, Phase.WAITING, RELEASED)
        if gate.returns and not self._state.is_closing:
            gate.returns = False
            self._begin([gate])
        else:
            self._forget(gate)

    def lost(self, gate: Gate) -> None:
        """The hold ended without this member. If the plan still names it, it asks for another."""
        was_read = gate.phase is not Phase.RELEASING
        stays = gate.phase is Phase.HELD or gate.returns
        self.settling.forget(gate)
        self._end(gate, Phase.WAITING, OVER)
        gate.returns = False
        if was_read and TaskKind.LOST in self._state.options.tells:
            self._state.tell(TaskKind.LOST, [gate.partition])
        if stays and not self._state.is_closing:
            self._begin([gate])
        else:
            self._forget(gate)

    def all_lost(self) -> None:
        """The session is over: nothing is held any more."""
        state = self._state
        held = [gate for gate in state.gates.values() if gate.phase in {Phase.HELD, Phase.LEAVING}]
        for gate in list(state.gates.values()):
            self.settling.forget(gate)
            self._end(gate, Phase.WAITING, SESSION_OVER)
            self._forget(gate)
        state.tasks = deque(task for task in state.tasks if task.kind is TaskKind.LOST)
        self._telling.clear()
        if TaskKind.LOST in state.options.tells:
            state.tell(TaskKind.LOST, (gate.partition for gate in held))

    def sought(self) -> None:
        """The cohort begins again elsewhere: every hold is given up, and asked for again."""
        for gate in list(self._state.gates.values()):
            if gate.phase in {Phase.HELD, Phase.LEAVING, Phase.RELEASING}:
                gate.returns = gate.phase is not Phase.LEAVING or gate.returns
                if gate.phase is not Phase.RELEASING and TaskKind.LOST in self._state.options.tells:
                    self._state.tell(TaskKind.LOST, [gate.partition])
                gate.told, gate.is_sought = gate.settled, True
                self.release(gate)
            elif gate.phase is Phase.DRAINED:
                gate.phase = Phase.WAITING
                self._begin([gate])

    def _end(self, gate: Gate, phase: Phase, why: str) -> None:
        waiting, gate.wait_settled = gate.wait_settled, []
        settled, seen = gate.settled.offset, gate.seen.offset
        if settled < seen and not gate.is_sought:
            self._state.lost_rows.add(gate.partition, [(settled, seen)])
        self._has_ended(gate)
        self._state.bytes -= gate.ended(phase)
        gate.told = gate.given = gate.fetched = gate.settled
        for through, call in waiting:
            is_lost = through > settled
            call(lost_error({gate.partition: [(settled, through)]}, why) if is_lost else None)

    def _has_ended(self, gate: Gate) -> None:
        key = gate.partition, gate.hold
        self._settled.pop(key, None)
        self._settled[key] = gate.settled.offset
        if len(self._settled) > ENDED_MAX:
            del self._settled[next(iter(self._settled))]

    def not_settled(self, place: ConsumerPlace) -> list[Range]:
        """Rows of a place whose hold is over that were not acknowledged under it."""
        settled = self._settled.get((place.partition, place.fencing_token), 0)
        first = max(place.first_offset, settled)
        return [(first, place.end_offset)] if first < place.end_offset else []

    def _forget(self, gate: Gate) -> None:
        self._state.bytes -= gate.ended(Phase.WAITING)
        if self._state.gates.get(gate.partition) is gate:
            self._state.remove_gate(gate)
