"""START HERE: a member of a cohort as a state machine. Events in, calls out; no clock, no socket.

    events of nodes          answered, refused, unanswered, up, down, pushed, routed
    of the application       ask (turn, give, finish), acknowledge, done, pause, close
    of time                  tick

After each event `take` gives what is to be carried out, in order. `now` runs also while the machine sleeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringfence.consumer.absence import Absence
from ringfence.consumer.any_member import AnyMember
from ringfence.consumer.beats import Beats
from ringfence.consumer.calls import Claim, Fetch, Fetched, Read, Settle, Settled
from ringfence.consumer.consuming import Consuming
from ringfence.consumer.fetching import Fetching
from ringfence.consumer.gate import WITH_HOLD, Gate, Phase
from ringfence.consumer.giving import Giving
from ringfence.consumer.holding import Holding
from ringfence.consumer.session import Session
from ringfence.consumer.settle import Settling
from ringfence.consumer.state import State
from ringfence.consumer.values import TaskKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ringfence.consumer.calls import Call, Plan, Refusal, Reply
    from ringfence.consumer.giving import Turn
    from ringfence.consumer.routes import Routes
    from ringfence.consumer.values import ConsumerPlace, MemberOptions, Point, Task


# A member that closes waits so long for answers to requests for a hold, to release what it is given. An owner
# answers in milliseconds, unless another member still has the partition, or there is no row in it.
OPENING_S: Final = 0.25


class Member(AnyMember):
    """One member. Its parts share `state`."""

    def __init__(self, options: MemberOptions) -> None:
        self.state = state = State(options)
        self.holding = Holding(state, self._look)
        self.settling = Settling(state, on_lost=self.holding.lost, on_released=self.holding.released)
        self.holding.settling = self.settling
        self.beats = Beats(state)
        self.fetching = Fetching(state, self.holding)
        self.session = Session(state, self.holding)
        self.consuming = Consuming(state, self.holding, self.settling, self.fetching)
        self.giving = Giving(state, self.beats, self.fetching, self.settling, self.consuming)
        self.absence = Absence(state, self.holding, self.session)
        self._leaves = False
        self._opens_until: float | None = None  # of a member that closes
        self._has_opened = False
        state.on_silent = self.end_waiting

    def _look(self, gate: Gate) -> None:
        self.fetching.look(gate)

    def tick(self, now: float) -> None:
        """Time has passed, or an event was handled: make the calls that are due."""
        self.absence.pump(now)
        self.session.pump(now)
        if self.state.session:
            self.fetching.pump(now)
            self.settling.pump(now)
            self.beats.pump(now)
        self.consuming.pump(now)
        if self.state.is_closing:
            self._end(now)

    def _end(self, now: float) -> None:
        """Leave, once owners know all that they must hear."""
        if self._opens_until is None:
            self._opens_until = now + OPENING_S
        opens = any(gate.phase is Phase.OPENING and gate.fetch for gate in self.state.gates.values())
        self._has_opened = not opens or now >= self._opens_until
        if self._leaves and self._has_opened and self.settling.is_idle:
            self.session.leave(now)

    # ---- events of nodes ---------------------------------------------------------------------------------

    def down(self, node: int, now: float) -> None:
        """The connection to a node ended: what is under way there has no answer."""
        self.session.down(node)
        self.settling.down(node)
        self.consuming.down(node)
        self.beats.down(node)
        self.lose_calls(node, now)

    def routed(self, routes: Routes) -> None:
        """A newer routing table. Requests at former owners of gates do not count any more."""
        before, self.state.routes = self.state.routes, routes
        for gate in self.state.gates.values():
            if before.node_of(gate.partition) != routes.node_of(gate.partition):
                gate.fetch = None
            gate.retry_at = 0.0
            self.fetching.look(gate)

    def pushed(self, plan: Plan) -> None:
        """A node told of a new plan."""
        self.session.pushed(plan)

    def _answered(self, call: Call, reply: Reply, made_at: float, now: float) -> None:
        match call, reply:
            case (Fetch(), Fetched()):
                self.fetching.fetched(call, reply, made_at, now)
            case (Read(), Fetched()):
                self.fetching.read(call, reply, now)
            case (Settle(), Settled()):
                self.settling.settled(call, reply)
            case (Claim(), Settled()):
                self.consuming.claimed(call, reply, now)
            case _:
                raise AssertionError((call, reply))

    def _refused(self, call: Call, refusal: Refusal, made_at: float, now: float) -> None:
        match call:
            case Fetch() | Read():
                self.fetching.refused(call, refusal, made_at, now)
            case Settle():
                self.settling.failed(call, refusal, now)
            case Claim():
                self.consuming.failed(call, refusal, now)
            case _:
                raise AssertionError(call)

    def _unanswered(self, call: Call, now: float) -> None:
        match call:
            case Fetch() | Read():
                self.fetching.unanswered(call, now)
            case Settle():
                self.settling.failed(call, None, now)
            case Claim():
                self.consuming.failed(call, None, now)
            case _:
                raise AssertionError(call)

    def _came_late(self, reply: Reply, now: float) -> None:
        """What a FETCH brings counts for one that is under way only."""

    def _attached(self, node: int) -> None:
        for gate in self.state.gates.values():
            if self.state.routes.node_of(gate.partition) == node:
                self.fetching.look(gate)

    # ---- the application ---------------------------------------------------------------------------------

    def next_task(self) -> Task | None:
        """A callback that is due, in order. A partition that is taken away waits for a transaction's end."""
        for at, task in enumerate(self.state.tasks):
            if task.kind is not TaskKind.REVOKED or not self.consuming.is_open:
                del self.state.tasks[at]
                return task
        return None

    def done(self, task: Task) -> None:
        """The application came back from a callback."""
        self.holding.done(task)

    def positioned(self, partition: int, position: Point | None, *, tells: bool = False) -> None:
        """CHECKPOINT: where the application's store is."""
        self.holding.positioned(partition, position, tells=tells)

    def question(self, partition: int) -> Mapping[str, Any] | None:
        """CHECKPOINT: what the owner said of a store that has nothing of a partition."""
        gate = self.state.gates.get(partition)
        return None if gate is None else gate.question

    def turn(self, now: float) -> Turn | None:
        """The partition whose turn it is; None: nothing can be given."""
        self.absence.came(now)
        return self.giving.turn(now)

    def acknowledge(
        self, place: ConsumerPlace, then: Callable[[Exception | None], None] | None = None
    ) -> bool:
        """Rows through a place are done. False: the hold is over. `then`: called when the owner has it."""
        if not self.giving.acknowledge(place, urgent=then is not None):
            return False
        if then is not None:
            gate = self.state.gates[place.partition]
            gate.wait_settled.append((place.end_offset, then))
            for call in gate.settled_callbacks():
                call(None)
            self.look_silent()
        return True

    def end_waiting(self, error: Exception) -> None:
        """No owner will answer: acknowledgements and a claim have no other outcome than this error."""
        for gate in self.state.gates.values():
            gate.end_waiting(error)
        self.consuming.end_waiting(error)

    def waits_for(self) -> list[int]:
        """See `Giving.waits_for`."""
        return self.giving.waits_for()

    def pause(self, partitions: Iterable[int], *, is_paused: bool) -> None:
        """Give no rows of these partitions, or give them again. They stay with this member."""
        for partition in partitions:
            gate = self.state.gates.get(partition)
            if gate is not None:
                gate.is_paused = is_paused
                self.fetching.look(gate)
        self.state.ring()

    def close(self, *, leave: bool) -> None:
        """Give no more rows; release what is held, with what was acknowledged."""
        if self.state.is_closing:
            return
        self.state.is_closing, self._leaves = True, leave
        for gate in list(self.state.gates.values()):
            if gate.phase in {Phase.HELD, Phase.LEAVING}:
                self.holding.release(gate)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is to be told any more."""
        if not self.state.is_closing or self.state.final_error is not None:
            return self.state.is_closing
        has_left = not self._leaves or self.session.is_over()
        has_opened = self._has_opened or not self.state.session
        return has_left and has_opened and self.settling.is_idle

    # ---- invariants --------------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """What must never hold; tests look after each event."""
        for gate in self.state.gates.values():
            yield from gate.faults()
        found = frozenset(map(self.state.routes.node_of, self.state.gates)) - {None}
        if found != self.state.gate_nodes:
            yield f"gates are at nodes {set(found)}, and {set(self.state.gate_nodes)} are known"
        yield from self.settling.faults()
        yield from self.fetching.faults()
        held = [gate for gate in self.state.gates.values() if gate.phase in WITH_HOLD]
        stored = sum(stored.bytes for gate in held for stored in gate.answers)
        given = sum(size for gate in held for _, size in gate.given_sizes)
        if stored + given != self.state.bytes:
            yield f"{self.state.bytes} bytes are counted, {stored + given} are in memory"
