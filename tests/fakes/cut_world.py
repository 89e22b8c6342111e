"""A producer's pure state machine against owners whose partitions are split, merged and repartitioned. Pure.

Requests and answers of one partition arrive in their order, as over one connection, or never. What the client
has given up may be served at any later time. Tables arrive late. Of a named producer the process may be
killed at any moment, while its requests are on their way; its successor draws an epoch, raises it at one
partition after the other and sends everything again that its resume points do not have.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from ringfence.common.retry import Backoff
from ringfence.common.routes import Routes
from ringfence.common.send_effects import (
    BatchRefused,
    BatchStored,
    BatchUnknown,
    Effect,
    FetchTable,
    Identity,
    JoinBatches,
    OpenEpoch,
    Piece,
    Sealed,
    Transmit,
)
from ringfence.native.errors import BatchError, RerouteError, RingfenceError, refusal
from ringfence.native.wire import Code
from ringfence.send.inflight import Inflight
from tests.fakes.cut_owners import NAMED_ID, SLOTS, Answer, Batch, Part, Row, Topic

FAR = 1e9
TURNS_MAX = 3_000


class Reply(NamedTuple):
    order: Transmit
    answer: Answer


class CutWorld:
    """One producer. `machine_type`: the state machine, or one with a planted bug."""

    def __init__(
        self, *, named: bool = False, bounds: tuple[int, ...] = (4,), machine_type: type[Inflight] = Inflight
    ) -> None:
        self.topic = Topic(*bounds)
        self.named, self.machine_type = named, machine_type
        self.now, self.epoch, self.kills = 0.0, 1, 0
        self.held = 1
        self.sent = 0
        self.batches: dict[int, Batch] = {}
        self.requests: list[tuple[Transmit, Batch, int]] = []
        self.late: list[tuple[Transmit, Batch, int]] = []  # given up, and still on their way
        self.replies: list[Reply] = []
        self.outcomes: dict[Row, str] = {}
        self.contents: dict[int, list[int]] = {}  # the slots of each send; the same from any process
        self.covered: dict[int, int] | None = None  # of an open under way: slot -> point
        self.points: dict[int, int] = {}  # of the last open
        self.wants_table = self.wants_epoch = False
        self.joins_fail = False
        self._next_key = 0
        self.machine = self._machine()

    def _machine(self) -> Inflight:
        return self.machine_type(
            Identity(NAMED_ID, self.epoch),
            named=self.named,
            window=3,
            backoff=Backoff(first_s=0.01, cap_s=0.05),
            routes=self.table,
        )

    @property
    def table(self) -> Routes:
        return self.topic.tables[self.held]

    # ---- the producer -------------------------------------------------------------------------------

    def send(self, slots: list[int], *, deadline: float = FAR, encoded: int | None = None) -> None:
        """One send with a row for each slot. `encoded`: the version whose layout the caller encodes with."""
        if self.covered is not None:
            return
        self.sent += 1
        slots = self.contents.setdefault(self.sent, slots)
        routes = self.topic.tables[self.held if encoded is None else encoded]
        if self.named:
            for slot in slots:
                if self.sent <= self.points.get(slot, 0):
                    self._tell([(self.sent, slot)], "D")
            slots = [slot for slot in slots if self.sent > self.points.get(slot, 0)]
        for partition, rows in self._grouped(routes, [(self.sent, slot) for slot in slots]):
            key = self._new(Batch(rows, self.sent))
            self.run(self.machine.submit(key, partition, deadline, self.sent))

    def _grouped(self, routes: Routes, rows: list[Row]) -> list[tuple[int, tuple[Row, ...]]]:
        found = []
        for partition, (lo, hi) in sorted(routes.active.items(), key=lambda item: item[1]):
            own = tuple(row for row in rows if lo <= row[1] <= hi)
            if own:
                found.append((partition, own))
        return found

    def _new(self, batch: Batch) -> int:
        self._next_key += 1
        self.batches[self._next_key] = batch
        return self._next_key

    def transmit(self) -> bool:
        """Send one batch of each partition that is ready."""
        any_sent = False
        for partition in list(self.machine.ready):
            order = self.machine.transmit(partition, self.now)
            if order is not None:
                self.requests.append((order, self.batches[order.key], self.held))
                any_sent = True
        return any_sent

    def route_again(self, count: int = 1) -> None:
        """What the sender does with bodies of sealed partitions."""
        for _ in range(count):
            key = self.machine.next_unrouted()
            if key is None:
                return
            batch = self.batches[key]
            pieces = [
                Piece(self._new(Batch(rows, batch.send)), partition, rows[0][1])
                for partition, rows in self._grouped(self.table, list(batch.rows))
            ]
            self.run(self.machine.rerouted(key, pieces))

    def table_comes(self, version: int) -> None:
        if version >= self.held:
            self.held, self.wants_table = version, False
            self.run(self.machine.table_arrived(self.table, now=self.now))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.machine.expire(self.now))

    def reopen(self) -> None:
        if self.wants_epoch:
            self.wants_epoch = False
            self.epoch += 1
            self.run(self.machine.opened(Identity(100 + self.epoch, self.epoch)))

    # ---- the network --------------------------------------------------------------------------------

    def serve(self, at: int, fault: str = "") -> None:
        """The owner takes the first request of the partition of request `at`."""
        partition = self.requests[at][0].partition
        at = next(place for place, one in enumerate(self.requests) if one[0].partition == partition)
        order, batch, version = self.requests.pop(at)
        assert isinstance(order.identity, Identity)
        if fault == "overloaded":
            answer: Answer = refusal(Code.OVERLOADED, "full", partition=order.partition)
        else:
            answer = self.topic.serve(order.partition, order.identity, order.sequence, batch, version)
        self.replies.append(Reply(order, answer))

    def serve_late(self, at: int) -> None:
        order, batch, version = self.late.pop(at)
        assert isinstance(order.identity, Identity)
        self.topic.serve(order.partition, order.identity, order.sequence, batch, version)

    def lose(self, at: int) -> None:
        """The client gives a try up. The request may be served later, its answer is never read."""
        if at < len(self.requests):
            self.late.append(self.requests.pop(at))
            order = self.late[-1][0]
        else:
            order = self.replies.pop(at - len(self.requests)).order
        self.run(self.machine.lost([(order.key, order.attempt)]))

    def deliver(self, at: int) -> None:
        """The client reads the first answer of the partition of answer `at`."""
        partition = self.replies[at].order.partition
        at = next(place for place, one in enumerate(self.replies) if one.order.partition == partition)
        order, answer = self.replies.pop(at)
        machine, key, attempt = self.machine, order.key, order.attempt
        match answer:
            case Sealed():
                self.run(machine.sealed(key, attempt, answer, answer.version))
            case RerouteError():
                self.run(machine.redirected(key, attempt, answer, self.topic.version, self.now, 0.5))
            case RingfenceError():
                early = answer.code is Code.HELD
                self.run(machine.refused(key, attempt, answer, self.now, 0.5, early=early))
            case (_, offset):
                self.run(machine.done(key, attempt, offset))

    # ---- a named producer is killed -----------------------------------------------------------------

    def kill(self) -> None:
        """Kill the process. Its requests stay on their way; its successor begins to open the name."""
        self.epoch += 1
        self.kills += 1
        self.machine = self._machine()
        self.late += self.requests
        self.requests.clear()
        self.replies.clear()
        self.outcomes.clear()
        self.batches, self.sent, self.covered = {}, 0, {}

    def raise_at(self, part: Part) -> None:
        """The open's next step; it ends once every slot is covered."""
        if self.covered is None or not self.topic.raise_epoch(part, self.epoch):
            return
        lo, hi = part.slots
        for slot in range(lo, hi + 1):
            self.covered.setdefault(slot, part.points.get(slot, 0))
        if len(self.covered) == SLOTS:
            self.points, self.covered = self.covered, None

    # ---- effects ------------------------------------------------------------------------------------

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case FetchTable():
                    self.wants_table = True
                case OpenEpoch():
                    self.wants_epoch = True
                case JoinBatches(first, second):
                    self._join(first, second)
                case BatchStored(key):
                    self._tell(self.batches[key].rows, "D")
                case BatchRefused(key):
                    self._tell(self.batches[key].rows, "R")
                case BatchUnknown(key):
                    self._tell(self.batches[key].rows, "U")

    def _join(self, first: int, second: int) -> None:
        one, other = self.batches[first], self.batches[second]
        assert one.send == other.send
        if self.joins_fail:
            self.run(self.machine.not_joined(first, second, BatchError("too large")))
            return
        key = self._new(Batch(one.rows + other.rows, one.send))
        self.run(self.machine.joined(first, second, key))

    def _tell(self, rows: tuple[Row, ...] | list[Row], outcome: str) -> None:
        for row in rows:
            assert row not in self.outcomes, f"{row} ends as {outcome} after {self.outcomes[row]}"
            self.outcomes[row] = outcome

    # ---- the end ------------------------------------------------------------------------------------

    def settle(self) -> None:
        """No more faults: until every send has its outcome and no request is on its way."""
        self.topic.abort()
        dice = random.Random(0)
        for _ in range(TURNS_MAX):
            for part in self.topic.active():
                self.raise_at(part)
            self.table_comes(self.topic.version)
            self.route_again(100)
            self.transmit()
            while self.requests:
                self.serve(dice.randrange(len(self.requests)))
            while self.replies:
                self.deliver(dice.randrange(len(self.replies)))
            self.reopen()
            if not len(self.machine) and not self.requests and self.covered is None:
                while self.late:
                    self.serve_late(dice.randrange(len(self.late)))
                return
            self.advance(0.01)
        raise AssertionError(f"no end: {len(self.machine)} batches are pending")

    def check(self) -> None:
        """L3 to L5 and L7 of docs/design/layout_changes.md."""
        for slot in range(SLOTS):
            stored = self.topic.lineage(slot)
            told = {send: outcome for (send, own), outcome in self.outcomes.items() if own == slot}
            assert len(set(stored)) == len(stored), f"I5: slot {slot} has sends {stored}: one twice"
            known = [send for send in stored if told.get(send) != "U"]
            assert known == sorted(known), f"I7: slot {slot} has sends {stored} in another order"
            lost = [send for send, outcome in told.items() if outcome == "D" and send not in stored]
            assert not lost, f"I5: slot {slot}: sends {lost} are acknowledged and nowhere"
            wrong = [send for send, outcome in told.items() if outcome == "R" and send in stored]
            assert not wrong, f"L5: slot {slot}: sends {wrong} are refused and stored"
            if self.named:
                holes = [send for send, outcome in told.items() if outcome in "RU" and send not in stored]
                after = [send for send in stored if holes and send > min(holes)]
                assert not after, f"L7: slot {slot}: sends {after} are stored after a hole at {min(holes)}"
