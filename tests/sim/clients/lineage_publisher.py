"""A producer whose partitions split and merge: the client's own machines, over simulated connections.

Rows have keys. Bodies are encoded, routed again after a layout change and joined by the client's own code.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ringfence.arrow.body_router import BodyRouter
from ringfence.arrow.encode import Body, TopicEncoder
from ringfence.common.codec import Answer, checked, request_header
from ringfence.common.retry import Backoff
from ringfence.common.routes import routes_of
from ringfence.common.routing import layout_of
from ringfence.common.send_effects import (
    BatchRefused,
    BatchStored,
    BatchUnknown,
    Effect,
    Identity,
    JoinBatches,
    Piece,
    Transmit,
)
from ringfence.native import messages, wire
from ringfence.native.errors import BatchError, RerouteError, RingfenceError
from ringfence.native.frame import open_answer
from ringfence.native.wire import MESSAGE_BYTES_MAX, Features, Opcode, RedirectReason
from ringfence.send import sender
from ringfence.send.inflight import Inflight
from tests.sim.checks import layouts
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.held_table import newest
from tests.sim.clients.keyed import ids_of, rows_of
from tests.sim.clients.publisher import DEADLINES_S, Frame, Publisher

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from tests.sim.checks.lineage_ledger import LineageLedger
    from tests.sim.world.world import World

ANY_LATER: Final = 1 << 62
"""Above every owner epoch."""
LARGE_ROWS: Final = 2_100
LARGE: Final = 0.01
UNTOLD: Final = "no node knows any more"
"""Of the error of a batch that nobody can tell the outcome of."""
KEEP_S: Final = 60
"""Above it no sealed partition forgets batches within a run."""


class Part(NamedTuple):
    """A body without an outcome, and the number of its send."""

    body: Body
    send: int
    is_returned: bool = False
    """A layout change routed it again."""

    @property
    def ids(self) -> tuple[int, ...]:
        return ids_of(bytes(self.body.data[self.body.extension_bytes :]))


class LineagePublisher(Publisher):
    """Without a name."""

    features = int(Features.RESUME_RANGES | Features.LINEAGE)

    def __init__(self, world: World, number: int, random: Random, topic: str) -> None:
        super().__init__(world, number, random, topic)
        self._parts: dict[int, Part] = {}
        self._router = BodyRouter()
        self._slot_of_send: Callable[[int], int] | None = None
        """Of a name in a topic without key, once it is open."""
        self._encoder: tuple[Layout, TopicEncoder] | None = None
        self._sends = 0
        self._is_routing = False
        self._epochs: dict[int, tuple[int, int]] = {}
        """By key: of the owner that answered OK."""
        self._tries: dict[int, int] = {}
        """By key: the newest try."""
        self._not_stored_there: set[int] = set()
        """Keys of which the owner of a sealed partition said that they are not stored there."""

    @property
    def ledger(self) -> LineageLedger:
        found: Any = self.world.ledger
        return found  # type: ignore[no-any-return]

    @property
    def idle(self) -> bool:
        return not self._parts

    # ---- tables ----

    def heard(self, frame: bytes, body: bytes) -> None:
        header = open_answer(frame)
        if header.opcode != Opcode.TABLE_PUSH:
            super().heard(frame, body)
            return
        if self.world.plan.seed % 2:
            return  # pushes are lost in these seeds: redirects must be enough
        pushed = layout_of(checked(header, memoryview(body)).control(messages.Table))
        held = self.layout
        if held is not None and pushed.topic == held.topic and newest(held, pushed) is not held:
            self.world.count("table_pushed")
            self._take_table(pushed)

    def _take_table(self, offered: Layout) -> None:
        """As the client's `TableCache`: what it holds is acknowledged to every node (I10)."""
        super()._take_table(offered)
        held = self.layout
        assert held is not None
        for line in list(self._lines.values()):
            number = self.next_request()
            fields = {"topic": held.topic, "sequence": held.generation}
            line.send(number, bytes(request_header(Opcode.TABLE_ACK, number, **fields)), b"")

    # ---- sending ----

    def submit(self) -> None:
        if self._machine is None or self.layout is None:
            return
        is_large = self.random.random() < LARGE
        count = LARGE_ROWS if is_large else self.random.randrange(1, self.world.plan.rows_max)
        self._sends += 1
        ids = self.ledger.draw(self.number, self._sends, count)
        self._submit(self._sends, ids)

    def _submit(self, send: int, ids: tuple[int, ...]) -> None:
        machine, layout = self._machine, self.layout
        assert machine is not None and layout is not None
        if self._encoder is None or self._encoder[0] is not layout:
            split, slot_of_send = self._name() is None, self._slot_of_send
            self._encoder = layout, TopicEncoder(layout, split=split, slot_of_send=slot_of_send)
        bodies = self._encoder[1].bodies(rows_of(ids), self._note(send), keep_order=True, number=send)
        deadline = self.now_s + self.random.choice(DEADLINES_S)
        for body in bodies:
            key = self._add(Part(body, send))
            self._run(machine.submit(key, body.partition, deadline, send))
        self._send()

    def _add(self, part: Part) -> int:
        self._key += 1
        self._parts[self._key] = part
        return self._key

    def _note(self, send: int) -> bytes | None:
        return None

    def _made(self, identity: Identity) -> Inflight:
        assert self.layout is not None
        return Inflight(
            identity,
            topic=self.topic,
            named=self._name() is not None,
            backoff=Backoff(first_s=0.01, cap_s=0.3),
            routes=routes_of(self.layout),
        )

    def _owner_of(self, partition: int) -> Any:
        """C13: of a partition in any state; who has a pruned one no table tells, so any node is asked."""
        assert self.layout is not None
        entry = self.layout.partitions.get(partition)
        if entry is None:
            return self.tried()
        owner = self.world.machine_of(entry)
        return owner if owner is not None and self.reach(owner) else None

    def _frame(self, order: Transmit) -> Frame:
        body, send, _ = self._parts[order.key]
        return Frame(bytes(body.data), body.extension_bytes, body.rows, send)

    def _transmit(self, owner: object, order: Transmit) -> None:
        if order.key in self._not_stored_there:
            what = f"batch {order.key} is asked for again at {order.partition}, which is sealed without it"
            self.world.violate(ViolationError("C2", what))
        self._tries[order.key] = order.attempt
        super()._transmit(owner, order)

    def _needed_version(self) -> int:
        return 0 if self._machine is None else self._machine.needed_version

    def _send(self) -> None:
        self._route_again()
        super()._send()

    # ---- outcomes and layout changes ----

    def _acknowledged(self, order: Transmit, epoch: int) -> None:
        """Rows have their outcomes from effects, which come right after it."""
        self._epochs[order.key] = epoch, epoch
        if self.ledger.partitions[order.partition].forced and self.layout is not None:
            self._check_owner(order.partition, epoch)

    def _check_owner(self, partition: int, epoch: int) -> None:
        """An operator may have chosen an owner whose log lacks what it had inherited."""
        assert self.layout is not None
        owner = self.world.machine_of(self.layout.partitions.get(partition))
        try:
            if owner is not None:
                state = self.world.watch.newest[1]
                layouts.check_owner(state, self.layout.topic, partition, epoch, owner)
        except ViolationError as broken:
            self.world.violate(broken)

    def _refused(
        self,
        machine: Inflight,
        order: Transmit,
        error: RingfenceError,
        header: wire.AnswerHeader,
        jitter: float,
    ) -> list[Effect]:
        if isinstance(error, RerouteError) and error.reason is RedirectReason.SEALED:
            if error.details.get("stored") is not None and self._tries[order.key] == order.attempt:
                self._not_stored_there.add(order.key)
            return machine.sealed(order.key, order.attempt, sender._word(error), header.generation)
        return super()._refused(machine, order, error, header, jitter)

    def _told(self, answer: Answer) -> RingfenceError:
        assert self.layout is not None
        return answer.error(self.topic, held=self.layout.generation)

    def _run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case BatchStored(key, offset):
                    part = self._parts.pop(key)
                    epochs = self._epochs.pop(key, (0, ANY_LATER))  # or told by the word of a sealed one
                    self.ledger.stored(part.ids, part.body.partition, offset, epochs)
                case BatchRefused(key, error):
                    self.world.count("part_refused")
                    self._not_stored(self._parts.pop(key), "refused", error)
                case BatchUnknown(key, error):
                    self.world.count("part_unknown")
                    self._check_untold(error)
                    self._not_stored(self._parts.pop(key), "unknown", error)
                case JoinBatches(first, second):
                    self._join(first, second)
                case _:
                    self._effects.run([effect])

    def _check_untold(self, error: RingfenceError) -> None:
        """C2: while a batch may be asked for, the owner of a sealed partition knows what became of it."""
        if UNTOLD in error.message and dict(self.world.plan.limits).get("resolve_keep_s", 0) > KEEP_S:
            self.world.violate(ViolationError("C2", f"{self.name}: {error.message[:160]}"))

    def _not_stored(self, part: Part, outcome: str, error: RingfenceError) -> None:
        self.ledger.not_stored(part.ids, outcome)

    def _route_again(self) -> None:
        """As the client's `Sender._route_again`."""
        machine, layout = self._machine, self.layout
        if machine is None or layout is None or self._is_routing:
            return
        self._is_routing = True
        while machine.unrouted and (key := machine.next_unrouted()) is not None:
            part = self._parts.pop(key)
            pieces = []
            for body, slot in self._router.routed(layout, part.body, part.send):
                pieces.append(Piece(self._add(Part(body, part.send, is_returned=True)), body.partition, slot))
            self.world.count("part_rerouted")
            self.world.counts["pieces"] += len(pieces) > 1
            self._run(machine.rerouted(key, pieces))
        self._is_routing = False

    def _join(self, first: int, second: int) -> None:
        """As the client's `Sender._join`."""
        machine, layout = self._machine, self.layout
        assert machine is not None and layout is not None
        one, other = self._parts[first], self._parts[second]
        try:
            whole = self._router.joined(layout, one.body, other.body, MESSAGE_BYTES_MAX)
        except BatchError as error:
            self._run(machine.not_joined(first, second, error))
            return
        self.world.count("parts_joined")
        key = self._add(Part(whole, one.send, is_returned=True))
        del self._parts[first], self._parts[second]
        self._run(machine.joined(first, second, key))
