"""Virtual time, owners of gates, a network that delays and loses, and members: the real state machines.

The owners follow the rules of gates: one holder, numbers that ascend, leases, hand-overs, sealed partitions
whose children wait. What members give to their applications is judged as it happens.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.consumer.calls import (
    HOME,
    Attach,
    Attached,
    Beat,
    Fetch,
    Fetched,
    Join,
    Joined,
    Leave,
    Left,
    NotTaken,
    Plan,
    Read,
    Refresh,
    Refusal,
    Renewed,
    Ring,
    Settle,
    Settled,
    Why,
)
from ringfence.consumer.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.consumer.calls import Reply
    from tests.fakes.consumer_actor import Actor

LEASE_S, HANDOVER_S, GRACE_S = 10.0, 30.0, 15.0
Answer = "Reply | Refusal"


class FakeRoutes(Routes):
    """A table of the world: node of each gate."""

    def __init__(self, version: int, nodes: dict[int, int], sealed: frozenset[int]) -> None:
        super().__init__(None)
        self._version, self._nodes, self._sealed = version, nodes, sealed

    @property
    def version(self) -> int:
        return self._version

    def is_known(self, partition: int) -> bool:
        return partition in self._nodes

    def is_sealed(self, partition: int) -> bool:
        return partition in self._sealed

    def node_of(self, partition: int) -> int | None:
        return self._nodes.get(partition)


@dataclass
class FakeGate:
    """A partition and its gate; the rows are its offsets."""

    partition: int
    node: int
    rows: int = 0
    parents: tuple[int, ...] = ()
    ancestors: frozenset[int] = frozenset()
    is_sealed: bool = False
    settled: int = 0
    session: int = 0
    hold: int = 0
    lease_until: float = 0.0
    due: float = float("inf")
    is_released: bool = True
    delivered: int = 0
    is_begun: bool = True  # in the present incarnation: what held before has let go


@dataclass
class Poll:
    actor: Actor
    call: Fetch
    until: float
    connection: int


@dataclass
class World:
    """All nodes. `seed` decides everything."""

    seed: int
    nodes: int = 3
    dice: random.Random = field(init=False)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.gates: dict[int, FakeGate] = {}
        self.actors: list[Actor] = []
        self.generation, self.version, self.incarnation = 0, 1, 1
        self.slices: dict[int, tuple[int, ...]] = {}  # by session
        self.names: dict[bytes, int] = {}  # instance -> session
        self.sessions = self.holds = 0
        self.incarnation_of: dict[int, int] = {}  # by hold
        self.heard: dict[int, float] = {}
        self.polls: list[Poll] = []
        self.faults: list[str] = []
        self.loss = 0.03
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    # ---- time ------------------------------------------------------------------------------------------

    def at(self, delay_s: float, what: Callable[[], None]) -> None:
        self._order += 1
        # A delay that rounding swallows would be the same moment again and again.
        heapq.heappush(self._events, (self.now + max(delay_s, 1e-6), self._order, what))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._events and self._events[0][0] <= until and not self.faults:
            self.now, _, what = heapq.heappop(self._events)
            what()
            self._serve_polls()
        self.now = until

    def delay(self) -> float:
        """Mostly milliseconds, sometimes seconds."""
        return self.dice.choice(
            (0.001, 0.005, 0.02, 0.02, 0.5 if self.loss else 0.01, 3.0 if self.loss else 0.01)
        )

    def send(self, actor: Actor, call: object, handle: Callable[[], Reply | Refusal | None]) -> None:
        """Carry a call to a node, and its answer back. Either may be lost."""
        connection = actor.connection_of(getattr(call, "node", HOME))

        def arrive() -> None:
            if self.dice.random() >= self.loss and (answer := handle()) is not None:
                self.answer(actor, call, answer, connection)

        self.at(self.delay(), arrive)

    def answer(self, actor: Actor, call: object, answer: Reply | Refusal, connection: int) -> None:
        number: int = call.number  # type: ignore[attr-defined]

        def arrive() -> None:
            if connection == actor.connection_of(getattr(call, "node", HOME)):
                actor.heard(number, answer)

        if self.dice.random() >= self.loss:
            self.at(self.delay(), arrive)

    # ---- nodes -----------------------------------------------------------------------------------------

    def routes(self) -> FakeRoutes:
        sealed = frozenset(one for one, gate in self.gates.items() if gate.is_sealed)
        return FakeRoutes(self.version, {one: gate.node for one, gate in self.gates.items()}, sealed)

    def carry_out(self, actor: Actor, effect: object) -> None:
        match effect:
            case Join():
                self.send(actor, effect, lambda: self._join(actor))
            case Attach():
                self.send(actor, effect, lambda: self._attach(actor, effect))
            case Fetch():
                self.send(actor, effect, lambda: self._poll(actor, effect))
            case Read():
                self.send(actor, effect, lambda: self._read(effect))
            case Settle():
                self.send(actor, effect, lambda: self._settle(actor, effect))
            case Beat():
                self.send(actor, effect, lambda: self._beat(actor, effect))
            case Leave():
                self.send(actor, effect, lambda: self._leave(effect))
            case Refresh():
                self.at(self.delay(), lambda: actor.routed(self.routes()))
            case Ring():
                pass

    def _join(self, actor: Actor) -> Reply | Refusal:
        instance = actor.instance
        if instance not in self.names:
            self.sessions += 1
            self.names[instance] = self.sessions
            self.heard[self.sessions] = self.now
            self.at(0.1, self.plan)
        session = self.names[instance]
        plan = Plan(session, self.generation, self.incarnation, self.slices.get(session, ()))
        return Joined(plan, None, LEASE_S)

    def _leave(self, call: Leave) -> Reply:
        self.remove(call.session)
        return Left()

    def remove(self, session: int) -> None:
        """The member is not registered any more."""
        self.names = {one: known for one, known in self.names.items() if known != session}
        self.plan()

    def is_registered(self, session: int) -> bool:
        return session in self.names.values()

    def plan(self) -> None:
        """Spread partitions over members; what stays with its member stays."""
        members = sorted(self.names.values())
        undrained = [one for one, gate in sorted(self.gates.items()) if not self.is_drained(gate)]
        slices: dict[int, list[int]] = {one: [] for one in members}
        if members:
            most = -(-len(undrained) // len(members))
            left = []
            for one in undrained:
                had = next((s for s, old in self.slices.items() if one in old), None)
                if had in slices and len(slices[had]) < most:
                    slices[had].append(one)
                else:
                    left.append(one)
            for one in left:
                slices[min(slices, key=lambda s: (len(slices[s]), s))].append(one)
        after = {one: tuple(parts) for one, parts in slices.items()}
        if {one: parts for one, parts in after.items() if parts} == {
            one: parts for one, parts in self.slices.items() if parts
        }:
            return
        self.slices, self.generation = after, self.generation + 1
        for gate in self.gates.values():
            is_holder = self.assignee(gate.partition) == gate.session
            gate.due = float("inf") if is_holder else min(gate.due, self.now + HANDOVER_S)
        for actor in self.actors:
            self._push(actor)

    def _push(self, actor: Actor) -> None:
        session = self.names.get(actor.instance, 0)
        plan = Plan(session, self.generation, self.incarnation, self.slices.get(session, ()))
        if self.dice.random() >= 5 * self.loss:
            self.at(self.delay(), lambda: actor.pushed(plan))

    def seek(self) -> None:
        """Everything begins again at 0. A hold of before ends by its release, or with its lease."""
        self.incarnation, self.generation = self.incarnation + 1, self.generation + 1
        for gate in self.gates.values():
            gate.settled, gate.delivered = 0, 0
            gate.is_begun = gate.is_released or not gate.session
        self.plan()
        for actor in self.actors:
            self._push(actor)

    def is_open(self, gate: FakeGate) -> bool:
        """Whether it and all its relatives have begun: no row of a parent comes after one of a child."""
        return all(one.is_begun for one in self.gates.values() if one is gate or self.are_related(one, gate))

    def are_related(self, one: FakeGate, other: FakeGate) -> bool:
        return other.partition in one.ancestors or one.partition in other.ancestors

    def _begin(self) -> None:
        for gate in self.gates.values():
            is_over = gate.is_released or not gate.session or self.now > gate.lease_until
            if not gate.is_begun and is_over:
                gate.is_begun, gate.is_released = True, True

    def assignee(self, partition: int) -> int:
        return next((one for one, parts in self.slices.items() if partition in parts), 0)

    def is_drained(self, gate: FakeGate) -> bool:
        chain = [gate, *(self.gates[one] for one in gate.ancestors)]
        return all(one.is_sealed and one.settled >= one.rows for one in chain)

    def _attach(self, actor: Actor, call: Attach) -> Reply | Refusal:
        if not self.is_registered(call.session):
            return Refusal(Why.NOT_ATTACHED)
        self.heard[call.session] = self.now
        actor.attached_at[call.node] = (actor.connection_of(call.node), call.session)
        return Attached(self.generation, LEASE_S)

    def _session_at(self, actor: Actor, node: int) -> int:
        connection, session = actor.attached_at.get(node, (0, 0))
        is_bound = connection == actor.connection_of(node) and self.is_registered(session)
        return session if is_bound else 0

    # ---- gates -----------------------------------------------------------------------------------------

    def _poll(self, actor: Actor, call: Fetch) -> Reply | Refusal | None:
        self.polls.append(Poll(actor, call, self.now + call.poll_s, actor.connection_of(call.node)))
        return None

    def _serve_polls(self) -> None:
        self._begin()
        for poll in list(self.polls):
            answer = self._fetch(poll)
            if answer is not None:
                self.polls.remove(poll)
                self.answer(poll.actor, poll.call, answer, poll.connection)

    def _fetch(self, poll: Poll) -> Reply | Refusal | None:
        call, is_over = poll.call, self.now >= poll.until
        gate, session = self.gates[call.partition], self._session_at(poll.actor, poll.call.node)
        if not session:
            return Refusal(Why.NOT_ATTACHED)
        if gate.node != call.node:
            return Refusal(Why.REDIRECT, version=self.version)
        if self.assignee(call.partition) != session:
            if call.generation > self.generation and not is_over:
                return None
            return Refusal(Why.NOT_ASSIGNED, hold=gate.hold, generation=self.generation)
        if not gate.is_begun:
            return Refusal(Why.NOT_ASSIGNED, hold=gate.hold, generation=self.generation)
        if not self.is_open(gate) or not all(self.is_drained(self.gates[one]) for one in gate.parents):
            return Fetched(0, 0, 0, 0, is_blocked=True) if is_over else None
        if call.reopen:
            if not self._may_enter(gate, session):
                return Fetched(0, 0, 0, 0, is_blocked=True) if is_over else None
            self.holds += 1
            self.incarnation_of[self.holds] = self.incarnation
            gate.session, gate.hold, gate.is_released = session, self.holds, False
            gate.delivered, gate.due = gate.settled, float("inf")
        elif (gate.session, gate.hold) != (session, call.hold) or gate.is_released:
            return Refusal(Why.NOT_ASSIGNED, hold=gate.hold, generation=self.generation)
        start = gate.settled if call.offset is None else max(call.offset, gate.settled)
        if gate.is_sealed:
            gate.lease_until, gate.delivered = self.now + LEASE_S, gate.rows
            return Fetched(gate.hold, start, start, 1, sealed_end=gate.rows)
        end = min(gate.rows, start + self.dice.randint(1, 40))
        if start == end and not is_over and not call.reopen:
            return None
        gate.lease_until, gate.delivered = self.now + LEASE_S, max(gate.delivered, end)
        return Fetched(gate.hold, start, end, 1, bytes=10 * (end - start))

    def _may_enter(self, gate: FakeGate, session: int) -> bool:
        if not gate.session or gate.session == session or gate.is_released or gate.settled >= gate.delivered:
            return True
        is_over = self.now > gate.lease_until
        return is_over and (not self.is_registered(gate.session) or self.now > gate.due)

    def _read(self, call: Read) -> Reply:
        gate = self.gates[call.partition]
        end = min(gate.rows, call.offset + self.dice.randint(1, 40))
        return Fetched(0, call.offset, end, 1, bytes=10 * (end - call.offset))

    def _settle(self, actor: Actor, call: Settle) -> Reply | Refusal:
        session = self._session_at(actor, call.node)
        if not session:
            return Refusal(Why.NOT_ATTACHED)
        refused = []
        for entry in call.entries:
            gate = self.gates[entry.partition]
            if gate.node != call.node:
                refused.append(NotTaken(entry.partition, 0, Why.REDIRECT, None))
            elif (gate.session, gate.hold) != (session, entry.hold) or gate.is_released:
                refused.append(NotTaken(entry.partition, gate.hold, Why.NOT_ASSIGNED, None))
            elif not gate.is_begun:
                gate.is_released = entry.release  # of before the seek: nothing is settled
                if not entry.release:
                    refused.append(NotTaken(entry.partition, gate.hold, Why.NOT_ASSIGNED, None))
            else:
                if entry.through.offset > max(gate.settled, actor.worked.get(entry.partition, 0)):
                    self.faults.append(
                        f"{entry} is acknowledged, and the application has not worked on all of it"
                    )
                gate.settled = max(gate.settled, entry.through.offset)
                gate.is_released = entry.release
        self.at(0.1, self.plan)
        return Settled(tuple(refused))

    def _beat(self, actor: Actor, call: Beat) -> Reply | Refusal:
        session = self._session_at(actor, call.node)
        if not session:
            return Refusal(Why.NOT_ATTACHED)
        self.heard[session] = self.now
        without = set()
        for partition, hold in call.holds:
            gate = self.gates[partition]
            is_held = (gate.session, gate.hold) == (session, hold) and not gate.is_released
            if gate.node == call.node and is_held and gate.is_begun and self.assignee(partition) == session:
                gate.lease_until = max(gate.lease_until, self.now + LEASE_S)
            else:
                without.add(partition)
        return Renewed(self.generation, LEASE_S, frozenset(without))

    def evict_silent(self) -> None:
        """Remove members that no node heard for a whole grace period."""
        for session in list(self.names.values()):
            if self.now - self.heard.get(session, self.now) > GRACE_S:
                self.remove(session)
