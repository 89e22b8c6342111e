"""Nodes, connections and a clock for `inflight`, all pure: what a test draws decides what happens next.

A cut connection may still deliver what was on its way, later, in its own order: that is what a node's socket
buffer does. So a retry can overtake the try that it replaces.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ringfence.common.retry import Backoff
from ringfence.common.send_effects import (
    BatchRefused,
    BatchStored,
    BatchUnknown,
    Effect,
    FetchTable,
    Identity,
    JoinBatches,
    OpenEpoch,
    Transmit,
)
from ringfence.native.errors import RerouteError, RingfenceError, refusal
from ringfence.native.wire import Code, RedirectReason
from ringfence.send.inflight import Inflight
from tests.fakes.routes import even_routes

FAR = 1e9
# Every table of the model names all of them.
PARTITIONS = 4


@dataclass
class Stored:
    """A partition of the model: last sequence and content per identity, and all keys in order of storing."""

    last: dict[Identity, int] = field(default_factory=dict)
    content: dict[tuple[Identity, int], int] = field(default_factory=dict)
    keys: list[int] = field(default_factory=list)


@dataclass
class Wire:
    """A connection: requests on their way, answers on their way back."""

    requests: deque[Transmit] = field(default_factory=deque)
    answers: deque[Callable[[], list[Effect]]] = field(default_factory=deque)
    overdue_read: dict[tuple[int, int], Transmit] = field(default_factory=dict)


class InflightWorld:
    """One producer under test. `bad` keys are refused for their content, whenever they are looked at."""

    def __init__(self, *, window: int = 4, named: bool = False) -> None:
        self.identities = itertools.count(1)
        self.machine = Inflight(
            Identity(1, 0),
            named=named,
            window=window,
            redirects_max=3,
            backoff=Backoff(first_s=0.01, cap_s=0.1),
        )
        self.window, self.named = window, named
        self.now = 0.0
        self.logs: dict[int, Stored] = {}
        self.outcomes: dict[int, BatchStored | BatchRefused | BatchUnknown] = {}
        self.partition_of: dict[int, int] = {}
        self.bad: set[int] = set()
        self.fenced = False
        self.wire, self.old = Wire(), list[Wire]()
        self.wants_table = self.wants_epoch = 0
        self.named_by: dict[tuple[Identity, int, int], int] = {}  # (identity, partition, sequence) -> key
        self.epoch_count = 0

    # ---- actions
    # --------------------------------------------------------------------------------------------

    def submit(self, partition: int, *, bad: bool = False, deadline: float = FAR) -> int:
        key = len(self.partition_of)
        self.partition_of[key] = partition
        if bad:
            self.bad.add(key)
        self.logs.setdefault(partition, Stored())
        self.run(self.machine.submit(key, partition, deadline))
        return key

    def transmit(self, partition: int) -> bool:
        order = self.machine.transmit(partition, self.now) if partition in self.logs else None
        if order is None:
            return False
        name = (order.producer, partition, order.sequence)
        assert self.named_by.setdefault(name, order.key) == order.key, (
            f"{name} is used again for other content"
        )
        self.wire.requests.append(order)
        self.wire.overdue_read[order.key, order.attempt] = order
        # A batch counts once: a former owner may not have answered an earlier try of it.
        same = {
            other.key
            for other in self.wire.overdue_read.values()
            if (other.producer, other.partition) == (order.producer, partition)
            and self.machine._current(other.key, other.attempt) is not None
        }
        flight = len(same)
        assert flight <= self.window, f"{flight} unanswered in partition {partition}"
        return True

    def serve(self, wire: Wire, fault: str = "") -> None:
        """The node takes the next request of a connection; `fault` is what goes wrong."""
        order = wire.requests.popleft()
        answer = self._answer(order, fault)
        if wire is self.wire and fault != "answer lost":
            wire.answers.append(answer)
        elif wire is self.wire:
            self._time_is_up(order)

    def deliver(self) -> None:
        self.run(self.wire.answers.popleft()())

    def cut(self) -> None:
        """The connection dies; what the node did not read yet may still reach it."""
        lost = list(self.wire.overdue_read)
        self.old.append(self.wire)
        self.wire = Wire()
        self.run(self.machine.lost(lost))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.run(self.machine.expire(self.now))

    def table(self, moved: Iterable[int] = ()) -> None:
        """The table that was asked for; one that names other owners is pushed, too."""
        moved = list(moved)
        if self.wants_table or moved:
            self.wants_table = 0
            self.run(self.machine.table_arrived(even_routes(range(PARTITIONS)), moved, now=self.now))

    def epoch(self) -> None:
        if self.wants_epoch:
            self.wants_epoch = 0
            self.epoch_count += 1
            self.run(self.machine.opened(Identity(next(self.identities) + 1, 0)))

    def settle(self) -> None:
        """No more faults: until everything has its outcome, and every late request was served."""
        for _ in range(20_000):
            while any(self.transmit(partition) for partition in self.logs):
                pass
            while self.wire.requests:
                self.serve(self.wire)
            while self.wire.answers:
                self.deliver()
            self.table()
            self.epoch()
            if not len(self.machine):
                break
            self.advance(0.05)
        for wire in self.old:
            while wire.requests:
                self.serve(wire)

    # ---- the node
    # -------------------------------------------------------------------------------------------

    def _answer(self, order: Transmit, fault: str) -> Callable[[], list[Effect]]:
        log = self.logs[order.partition]
        last = log.last.get(order.producer, -1)
        if fault in {"overloaded", "deadline"}:
            return self._refusal(order, Code.OVERLOADED if fault == "overloaded" else Code.DEADLINE)
        if fault == "early":
            return self._refusal(order, Code.HELD, early=True)
        if fault == "redirect":
            error = RerouteError("moved", reason=RedirectReason.STALE_EPOCH, partition=order.partition)
            return lambda: (
                self._done_with(order)
                or self.machine.redirected(order.key, order.attempt, error, 1, self.now, 0.5)
            )
        if self.fenced:
            return self._refusal(order, Code.FENCED_PRODUCER)
        if fault == "forgotten" and last < 0:
            return self._refusal(order, Code.FORGOTTEN)
        if order.sequence <= last:
            kept = log.content[order.producer, order.sequence]
            assert kept == order.key, f"sequence {order.sequence} holds {kept}, sent {order.key}"
            return lambda: self._done_with(order) or self.machine.done(order.key, order.attempt, 0)
        if order.sequence > last + 1:
            return self._refusal(order, Code.SEQUENCE_GAP, expected=last + 1)
        if order.key in self.bad:
            return self._refusal(order, Code.BAD_BODY)
        log.last[order.producer] = order.sequence
        log.content[order.producer, order.sequence] = order.key
        log.keys.append(order.key)
        if fault == "unknown":
            return self._refusal(order, Code.UNKNOWN_OUTCOME)
        return lambda: self._done_with(order) or self.machine.done(order.key, order.attempt, 0)

    def _refusal(
        self, order: Transmit, code: Code, *, early: bool = False, **values: int
    ) -> Callable[[], list[Effect]]:
        error: RingfenceError = refusal(code, code.name, partition=order.partition, **values)
        return lambda: (
            self._done_with(order)
            or self.machine.refused(order.key, order.attempt, error, self.now, 0.5, early=early)
        )

    def _done_with(self, order: Transmit) -> list[Effect]:
        self.wire.overdue_read.pop((order.key, order.attempt), None)
        return []

    def _time_is_up(self, order: Transmit) -> None:
        self._done_with(order)
        self.run(self.machine.lost([(order.key, order.attempt)]))

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case FetchTable():
                    self.wants_table += 1
                case OpenEpoch():
                    self.wants_epoch += 1
                case JoinBatches():
                    raise AssertionError("no layout change joins batches here")
                case _:
                    assert effect.key not in self.outcomes, f"{effect} after {self.outcomes[effect.key]}"
                    self.outcomes[effect.key] = effect

    # ---- what must hold
    # ---------------------------------------------------------------------------------------

    def check(self) -> None:
        assert sorted(self.outcomes) == sorted(self.partition_of), "every batch ends in exactly one outcome"
        for partition, log in self.logs.items():
            assert len(set(log.keys)) == len(log.keys), (
                f"I6: stored twice in partition {partition}: {log.keys}"
            )
            done = [key for key in log.keys if isinstance(self.outcomes[key], BatchStored)]
            assert done == sorted(done), f"I7: order of partition {partition}: {log.keys}"
            if self.named:
                sent = [key for key, place in self.partition_of.items() if place == partition]
                assert log.keys == sent[: len(log.keys)], f"a hole in partition {partition}: {log.keys}"
        stored = {key for log in self.logs.values() for key in log.keys}
        for key, outcome in self.outcomes.items():
            assert not (isinstance(outcome, BatchStored) and key not in stored), (
                f"I5: {key} is acknowledged and not stored"
            )
            assert not (isinstance(outcome, BatchRefused) and key in stored), (
                f"{key} is refused and stored: {outcome}"
            )
            assert not (key in self.bad and isinstance(outcome, BatchStored)), f"bad {key} is done"
