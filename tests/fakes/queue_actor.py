"""A process with a member of a QUEUE in it, and an application that works on rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.consumer.calls import HOME, Call, Refresh, Refusal
from ringfence.consumer.queue_calls import Leased, Told, What
from ringfence.consumer.queue_hands import Verdict
from ringfence.consumer.queue_member import QueueMember
from ringfence.consumer.queue_rows import without as rows_without
from ringfence.consumer.values import MemberOptions, TaskKind
from ringfence.native.errors import LostRowsError

if TYPE_CHECKING:
    from ringfence.consumer.calls import Reply
    from ringfence.consumer.values import ConsumerPlace
    from tests.fakes.queue_world import QueueRoutes, QueueWorld

TICK_S = 0.1
# Rows that an owner has given right before it was replaced may still be given for so long.
PREFETCHED_S = 3.0
CALL_S = 8.0  # a call without an answer is lost after so long


class QueueActor:
    """One process. `bad`: rows that its application cannot work on."""

    def __init__(self, world: QueueWorld, name: str, bad: frozenset[tuple[int, int]], rows_max: int) -> None:
        self.world, self.name, self.bad = world, name, bad
        options = MemberOptions(
            name, name.encode(), is_auto=False, rows_max=rows_max, tells=frozenset({TaskKind.LOST})
        )
        self.member = QueueMember(options)
        self.connections: dict[int, int] = {}  # node -> connection
        self.up_since: dict[int, float] = {}
        self.in_hand: list[ConsumerPlace] = []
        self.owed: dict[int, ConsumerPlace] = {}  # acknowledgements whose outcome must come
        self.newest = 0  # incarnation of which rows were given
        self.is_alive = True
        self._out: dict[int, float] = {}  # by connection: no call arrives before
        self._back: dict[int, float] = {}
        self._connections = self._acks = 0
        world.actors.append(self)
        self.member.routed(world.routes())
        world.at(0.0, self._tick)
        world.at(0.01, self._work)

    # ---- the network -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.is_alive:
            return
        for node in self.member.session.nodes - self.connections.keys():
            if self.world.dice.random() < 0.5:
                self._connections += 1
                self.connections[node] = 1000 * (1 + self.world.actors.index(self)) + self._connections
                self.up_since[node] = self.world.now
                self.member.up(node)
        for node in set(self.connections) - self.member.session.nodes:
            self.cut(node)
        self.turn()
        self.world.at(TICK_S, self._tick)

    def cut(self, node: int, *, notices_late: bool = False) -> None:
        """The connection to a node ends."""
        connection = self.connections.pop(node, None)
        if connection is None:
            return
        self.up_since.pop(node, None)
        self.world.disconnected(self.member.state.session, node, connection)
        if not notices_late:
            self._back[connection] = float("inf")  # no answer comes any more
        self.member.down(node, self.world.now)
        self.turn()

    def turn(self) -> None:
        if not self.is_alive:
            return
        self.member.tick(self.world.now)
        for effect in self.member.take():
            if isinstance(effect, Refresh):
                self.world.at(self._delay(), lambda one=effect: self.world.serve(self, 0, one))  # type: ignore[misc]
            elif isinstance(effect, Call):
                self._send(effect)
        self.world.faults += [f"{self.name}: {fault}" for fault in self.member.faults()]

    def _delay(self) -> float:
        dice = self.world.dice
        return dice.uniform(0.001, 0.02) if dice.random() < 0.9 else dice.uniform(0.02, 0.6)

    def _send(self, call: Call) -> None:
        connection = self.connections.get(getattr(call, "node", HOME))
        if connection is None:
            self.world.at(0.0, lambda: self._unanswered(call.number))
            return
        arrives = max(self._out.get(connection, 0.0), self.world.now + self._delay())
        self._out[connection] = arrives
        self.world.at(arrives - self.world.now, lambda: self._arrive(connection, call))
        self.world.at(CALL_S, lambda: self._unanswered(call.number))

    def _arrive(self, connection: int, call: Call) -> None:
        if self.is_alive and connection in self.connections.values():
            self.world.serve(self, connection, call)

    def _unanswered(self, number: int) -> None:
        if self.is_alive:
            self.member.unanswered(number, self.world.now)
            self.turn()

    def answer(self, connection: int, call: object, reply: Reply | Refusal) -> None:
        """An answer leaves its node; answers of one connection keep their order."""
        arrives = max(self._back.get(connection, 0.0), self.world.now + self._delay())
        if arrives == float("inf"):
            return
        self._back[connection] = arrives
        self.world.at(arrives - self.world.now, lambda: self._heard(connection, call, reply))

    def _heard(self, connection: int, call: object, reply: Reply | Refusal) -> None:
        if not self.is_alive or self._back.get(connection) == float("inf"):
            return
        number = call.number  # type: ignore[attr-defined]
        if isinstance(reply, Leased):
            self.world.came(self, reply)
        if isinstance(reply, Refusal):
            self.member.refused(number, reply, self.world.now)
        else:
            self.member.answered(number, reply, self.world.now)
        self.turn()

    def table(self, routes: QueueRoutes) -> None:
        if self.is_alive:
            self.member.routed(routes)
            self.turn()

    def kill(self) -> None:
        self.is_alive = False
        session = self.member.state.session
        for node, connection in self.connections.items():
            self.world.disconnected(session, node, connection)
        self.world.at(15.0, lambda: self.world.end_session(session))

    # ---- the application ---------------------------------------------------------------------------------

    def _work(self) -> None:
        if not self.is_alive or self.member.state.is_closing:
            return
        place = self._take()
        dice = self.world.dice
        if place is None:
            self.world.at(0.05, self._work)
            return
        # Some work takes longer than a lease.
        work_s = 0.1 if dice.random() < 0.98 else 3 * self.world.lease_s
        self.world.at(dice.uniform(0.0, work_s), lambda: self._worked(place))

    def _take(self) -> ConsumerPlace | None:
        now = self.world.now
        self.member.next_task()
        stored = self.member.turn(now)
        if stored is None:
            self.turn()
            return None
        line = stored.lines[0]
        rows = min(line.end - line.first, self.world.dice.randrange(1, 9))
        epochs = self.world.queues[stored.partition].epochs
        rows = next((at for at in range(1, rows) if epochs[line.first + at] != epochs[line.first]), rows)
        if self.member.hands.verdict(stored, line.first, now) is not Verdict.GIVE:
            return None
        place, _ = self.member.hands.give(stored, line.first, rows, epochs[line.first])
        self.in_hand.append(place)
        self._judge(place, is_again=line.is_again)
        self.turn()
        return place

    def _judge(self, place: ConsumerPlace, *, is_again: bool) -> None:
        world, queue = self.world, self.world.queues[place.partition]
        if place.fencing_token < self.newest:
            world.faults.append(f"{place} is given after rows of seek {self.newest}")
        self.newest = max(self.newest, place.fencing_token)
        if world.now - world.moved_at.get(place.partition, 0.0) < PREFETCHED_S:
            return
        for row in range(place.first_offset, place.end_offset):
            if (place.fencing_token, place.partition, row) in world.acked:
                world.faults.append(f"{place} is given to {self.name}, and row {row} is acknowledged")
            lease = queue.leases.get(row)
            if lease is None or place.fencing_token != queue.incarnation:
                continue
            if lease.session != self.member.state.session:
                if lease.session in world.sessions and lease.is_delivered:
                    world.faults.append(f"{place} is given to {self.name}, row {row} is another's")
            elif is_again and not lease.is_begun:
                world.faults.append(f"{place} is given again, and its owner does not know it")

    def _worked(self, place: ConsumerPlace) -> None:
        if not self.is_alive:
            return
        self.in_hand.remove(place)
        rows = range(place.first_offset, place.end_offset)
        self.world.worked |= {(place.fencing_token, place.partition, row) for row in rows}
        bad = [row for row in rows if (place.partition, row) in self.bad]
        hands, dice = self.member.hands, self.world.dice
        if bad and dice.random() < 0.5:
            hands.settle(place, [(row, row + 1) for row in bad], Told(0, 0, 0, What.FAILED, reason=b"bad"))
            self._acknowledge(place, without=bad)
        elif bad:
            hands.settle(place, [(rows.start, rows.stop)], Told(0, 0, 0, What.FAILED, reason=b"bad"))
        elif dice.random() < 0.03:
            hands.settle(place, [(rows.start, rows.stop)], Told(0, 0, 0, What.RELEASED))
        else:
            self._acknowledge(place, without=[])
        self.turn()
        self.world.at(0.001, self._work)

    def _acknowledge(self, place: ConsumerPlace, *, without: list[int]) -> None:
        ranges, at = [], place.first_offset
        for row in [*without, place.end_offset]:
            if row > at:
                ranges.append((at, row))
            at = row + 1
        self._acks += 1
        number = self._acks
        self.owed[number] = place

        def settled(error: Exception | None) -> None:
            self.owed.pop(number, None)
            if error is not None and not isinstance(error, LostRowsError):
                return
            for first, end in ranges if error is None else rows_without(ranges, error.lost[place.partition]):
                for row in range(first, end):
                    self._acknowledged(place, row)

        if self.member.hands.settle(place, ranges, Told(0, 0, 0, What.DONE), settled):
            self.owed.pop(number, None)  # the lease is over, and known to be

    def _acknowledged(self, place: ConsumerPlace, row: int) -> None:
        world, queue = self.world, self.world.queues[place.partition]
        if place.fencing_token == queue.incarnation and row not in queue.done:
            world.faults.append(f"row {row} of {place} is said to be acknowledged, and its owner has it not")
        world.acked[place.fencing_token, place.partition, row] = world.now

    def has_in_hand(self, partition: int, incarnation: int, row: int) -> bool:
        """Whether the application works on a row, not as one of before a seek."""
        return self.is_alive and any(
            (one.partition, one.fencing_token) == (partition, incarnation)
            and one.first_offset <= row < one.end_offset
            for one in self.in_hand
        )

    def knows(self, partition: int, row: int) -> bool:
        """Whether the member knows that it has a row, or has something to tell of it."""
        fetching, telling = self.member.fetching, self.member.telling
        stored = [line for one in fetching.stored if one.partition == partition for line in one.lines]
        hands = [
            span for one in self.member.hands.all() if one.stored.partition == partition for span in one.open
        ]
        told = [one.told for one in telling.waiting() if one.partition == partition]
        spans = [(one.first, one.end) for one in stored] + hands + [(one.first, one.end) for one in told]
        return not self.is_alive or any(first <= row < end for first, end in spans)
