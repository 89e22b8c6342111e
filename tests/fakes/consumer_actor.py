"""A process with a member in it: it runs the state machine, and an application that works on rows."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from ringfence.consumer.calls import Refusal
from ringfence.consumer.member import Member
from ringfence.consumer.values import ConsumerPlace, MemberOptions, TaskKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.consumer.calls import Plan, Reply
    from tests.fakes.consumer_world import FakeRoutes, World

TICK_S = 0.02
CALL_S = 8.0  # a call without an answer is lost after so long


class Judge:
    """What must hold of all rows that applications were given."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.newest: dict[int, int] = {}  # by partition: greatest hold number under which rows were given
        self.incarnations: dict[int, int] = {}  # by partition: the newest one that gave rows
        self.next: dict[tuple[int, int], int] = {}  # (partition, hold) -> next offset

    def gave(self, place: ConsumerPlace) -> None:
        world, partition, hold = self.world, place.partition, place.fencing_token
        gate = world.gates[partition]
        if hold < self.newest.get(partition, 0):
            world.faults.append(f"{place} is given, and hold {self.newest[partition]} gave rows before")
        self.newest[partition] = hold
        expected = self.next.get((partition, hold))
        if expected is not None and place.first_offset != expected:
            world.faults.append(f"{place} is given, row {expected} comes next")
        is_of_before = world.incarnation_of[hold] < world.incarnation
        if hold != gate.hold and place.first_offset < gate.settled and not is_of_before:
            world.faults.append(f"{place} is given, and another member settled {gate.settled}")
        self.next[partition, hold] = place.end_offset
        incarnation = world.incarnation_of[hold]
        is_present = incarnation == world.incarnation
        if is_present and not all(world.is_drained(world.gates[one]) for one in gate.parents):
            world.faults.append(f"{place} is given before its parents are drained")
        for other, newest in self.incarnations.items():
            if newest > incarnation and world.are_related(world.gates[other], gate):
                world.faults.append(f"{place} is given after rows of {other} from behind a seek")
        self.incarnations[partition] = max(incarnation, self.incarnations.get(partition, 0))


class Actor:
    """One process. `work_s`: how long its application works on a batch, drawn for each."""

    def __init__(
        self, world: World, judge: Judge, name: str, *, is_auto: bool = True, work_s: float = 0.1
    ) -> None:
        self.world, self.judge, self.name = world, judge, name
        self.instance = name.encode()
        self.member = Member(
            MemberOptions(
                name, self.instance, is_auto=is_auto, tells=frozenset({TaskKind.LOST}), bytes_max=1 << 22
            )
        )
        self.is_auto, self.work_s = is_auto, work_s
        self.connections: dict[int, int] = {}
        self.attached_at: dict[int, tuple[int, int]] = {}
        self.worked: dict[int, int] = {}  # by partition: rows that the application has finished
        self.in_hand: ConsumerPlace | None = None
        self.is_alive, self.paused_until = True, 0.0
        self._connections = 0
        self._undecodable = random.Random(name)  # one of its own: walks keep their course
        self._waiting: list[tuple[int, object]] = []
        world.actors.append(self)
        world.at(0.0, self._turn)
        world.at(0.01, self._work)

    # ---- the network -----------------------------------------------------------------------------------

    def connection_of(self, node: int) -> int:
        return self.connections.get(node, 0)

    def connect(self) -> None:
        for node in self.member.session.nodes:
            if node not in self.connections:
                self._connections += 1
                self.connections[node] = self._connections
                self.member.up(node)

    def disconnect(self, node: int) -> None:
        if self.connections.pop(node, None) is not None:
            self.member.down(node, self.world.now)

    def heard(self, number: int, answer: Reply | Refusal) -> None:
        self._when_awake(lambda: self._handle(number, answer))

    def _handle(self, number: int, answer: Reply | Refusal) -> None:
        if isinstance(answer, Refusal):
            self.member.refused(number, answer, self.world.now)
        else:
            self.member.answered(number, answer, self.world.now)
        self._after()

    def pushed(self, plan: Plan) -> None:
        self._when_awake(lambda: self._then(partial(self.member.pushed, plan)))

    def routed(self, routes: FakeRoutes) -> None:
        self._when_awake(lambda: self._then(partial(self.member.routed, routes)))

    def _then(self, event: Callable[[], None]) -> None:
        event()
        self._after()

    def _when_awake(self, what: Callable[[], None]) -> None:
        if not self.is_alive:
            return
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until - self.world.now, lambda: self._when_awake(what))
        else:
            what()

    def _after(self) -> None:
        self.member.tick(self.world.now)
        for effect in self.member.take():
            number = getattr(effect, "number", None)
            if number is not None:
                self.world.at(CALL_S, partial(self._lose, number))
            self.world.carry_out(self, effect)
        self.world.faults += [f"{self.name}: {one}" for one in self.member.faults()]

    def _lose(self, number: int) -> None:
        if self.is_alive and number in self.member.state.calls:
            self.member.unanswered(number, self.world.now)

    def _turn(self) -> None:
        if self.is_alive:
            self._when_awake(lambda: self._then(self.connect))
            self.world.at(TICK_S * 5, self._turn)

    # ---- the application -------------------------------------------------------------------------------

    def _work(self) -> None:
        if not self.is_alive:
            return
        if self.world.now < self.paused_until:
            self.world.at(self.paused_until - self.world.now, self._work)
            return
        took_s = self.step()
        self._after()
        self.world.at(took_s, self._work)

    def step(self) -> float:
        """Come back for the next batch. Returns how long the application works then."""
        member, now = self.member, self.world.now
        if self.in_hand is not None:
            place, self.in_hand = self.in_hand, None
            if (
                place.partition in member.state.gates
                and member.state.gates[place.partition].hold == place.fencing_token
            ):
                self.worked[place.partition] = max(self.worked.get(place.partition, 0), place.end_offset)
            if self.is_auto:
                member.giving.acknowledge_given()
            elif self.world.dice.random() < 0.3:
                member.acknowledge(place)
        while (task := member.next_task()) is not None:
            if task.kind in {TaskKind.REVOKED, TaskKind.DRAIN} and not self.is_auto:
                member.giving.acknowledge_given()
            member.done(task)
        self.world.faults += [f"{self.name}: {member.take_error()}"] if member.state.error else []
        turn = member.turn(now)
        if turn is None:
            if not self.is_auto and self.world.dice.random() < 0.2:
                member.giving.acknowledge_given()  # nothing came for a while
            return 0.05
        stored = turn.stored
        if self._undecodable.random() < 0.02:
            member.giving.rewind(turn)
            return 0.01
        first = max(turn.gate.given.offset, stored.start)
        rows = min(stored.end - first, self.world.dice.randint(1, 20))
        given = member.giving.give(turn, first, rows, 1, now)
        if given is None:
            return 0.01
        self.judge.gave(given)
        self.in_hand = given
        if given.end_offset >= stored.end:
            member.giving.finish(turn)
        return self.world.dice.random() * self.work_s
