"""A producer of the cluster: the client's own in-flight machine, codec and routing, over many nodes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ringfence.common.codec import Answer
from ringfence.common.retry import Backoff, deadline_ms
from ringfence.common.routes import routes_of
from ringfence.common.routing import Layout, is_early, layout_of, moved_between
from ringfence.common.send_effects import Effect, Identity, Transmit
from ringfence.native import messages, wire
from ringfence.native._node import crc32c
from ringfence.native.errors import RerouteError, RetriableError, RingfenceError
from ringfence.native.frame import pack_request
from ringfence.native.wire import HEADER_BYTES, AnswerFlags, Code, Opcode, RedirectReason, Status
from ringfence.send.inflight import Inflight
from ringfence.send.reroute import Phase
from tests.sim.clients.content import body_of
from tests.sim.clients.customer import ClusterClient
from tests.sim.clients.effects import EffectRunner
from tests.sim.clients.held_table import newest

if TYPE_CHECKING:
    from tests.sim.world.world import World

PATIENCE_US: Final = 1_500_000
CONTROL_PATIENCE_US: Final = 6_000_000
BEAT_US: Final = 40_000
AGAIN_US: Final = 150_000
DEADLINES_S: Final = (0.5, 3.0, 20.0)
LARGE_ROWS: Final = 4_200
LARGE: Final = 0.01


class Frame(NamedTuple):
    """The body of a batch, and what of it stands in the header."""

    body: bytes
    extension_bytes: int
    rows: int
    number: int


class Publisher(ClusterClient):
    """Sends batches to one topic until healed, each until it has an outcome."""

    def __init__(self, world: World, number: int, random: Random, topic: str) -> None:
        super().__init__(world, f"p{number}", random)
        self.number, self.topic = number, topic
        self.layout: Layout | None = None
        self._machine: Inflight | None = None
        self._effects = EffectRunner(
            world.agenda, random, world.ledger, fetch_table=self._fetch, open_epoch=self._open
        )
        self._doors: dict[int, int] = {}  # by request: what was durably open when it arrived
        self._partition_of: dict[int, int] = {}
        self._key = 0
        self._fetching = self._opening = False
        world.agenda.after(random.randrange(BEAT_US), self._beat)

    @property
    def idle(self) -> bool:
        return not self._effects.batches

    @property
    def ready(self) -> bool:
        """It has a table and an identity."""
        return self._machine is not None and self.layout is not None

    def submit(self) -> None:
        if self._machine is None or self.layout is None:
            return
        partition = self.random.choice(self.layout.active).partition
        rows = (
            LARGE_ROWS if self.random.random() < LARGE else self.random.randrange(1, self.world.plan.rows_max)
        )
        self._key += 1
        self._effects.batches[self._key] = self.world.ledger.sent(self.number, partition, rows)
        deadline = self.now_s + self.random.choice(DEADLINES_S)
        self._run(self._machine.submit(self._key, partition, deadline))
        self._send()

    def hang_up(self, name: str, late: float = 0.0) -> None:
        super().hang_up(name, late)
        self._send()

    # ---- beginning: topic, table, identity ----

    def _beat(self) -> None:
        self.lose_patience()
        if self.layout is None:
            self._fetch()
        elif self._machine is None:
            self._open()
        else:
            # Again and again: what was asked for when nobody could be reached is not forgotten.
            if self._machine.waits_for_table:
                self._fetch()
            elif self._machine.phase is Phase.OPENING:
                self._open()
            self._run(self._machine.expire(self.now_s))
            self._send()
        self.world.agenda.after(BEAT_US, self._beat)

    def _fetch(self) -> None:
        machine = None if self._fetching else self.tried()
        if machine is None:
            return
        self._fetching = True
        if self.layout is None:
            body = messages.encode(messages.TopicName(name=self.topic))
            self.ask(
                machine,
                Opcode.TOPIC_DESCRIBE,
                self._described,
                body=body,
                patience_us=CONTROL_PATIENCE_US,
                deadline_ms=5_000,
            )
        else:
            self._table_from(self.layout.topic)

    def _described(self, answer: Answer | None) -> None:
        if answer is None or answer.header.status != Status.OK:
            self.world.agenda.after(AGAIN_US, self._fetch_over)
            return
        self._table_from(answer.control(messages.TopicInfo).topic)

    def _table_from(self, topic: int) -> None:
        machine = self.tried()
        if machine is None:
            self.world.agenda.after(AGAIN_US, self._fetch_over)
            return
        version = self._needed_version()
        self.ask(
            machine,
            Opcode.TABLE,
            self._table,
            patience_us=PATIENCE_US,
            topic=topic,
            layout_version=version,
            deadline_ms=1_000,
        )

    def _needed_version(self) -> int:
        """The least version of a table that helps; 0: any."""
        return 0

    def _table(self, answer: Answer | None) -> None:
        if answer is None or answer.header.status != Status.OK:
            self.world.agenda.after(AGAIN_US, self._fetch_over)
            return
        self._fetching = False
        self._take_table(layout_of(answer.control(messages.Table)))

    def _take_table(self, offered: Layout) -> None:
        before = self.layout
        self.layout = newest(before, offered)
        if self._machine is not None:
            moved = [] if before is None else list(moved_between(before, self.layout))
            self._run(self._machine.table_arrived(routes_of(self.layout), moved, now=self.now_s))
            self._send()

    def _fetch_over(self) -> None:
        self._fetching = False

    def _open(self) -> None:
        if self._opening or (self._machine is not None and self._machine.phase is not Phase.OPENING):
            return
        machine = self.tried()
        if machine is None:
            return
        self._opening = True
        wanted = messages.ProducerOpen(
            topic=self.topic, name=self._name(), accept_fresh_start=self._accepts_fresh_start()
        )
        if self._spreads():
            wanted = msgspec.structs.replace(wanted, spread=True)
        body = messages.encode(wanted)
        self.ask(
            machine,
            Opcode.PRODUCER_OPEN,
            self._opened,
            body=body,
            patience_us=CONTROL_PATIENCE_US,
            deadline_ms=5_000,
        )

    def _accepts_fresh_start(self) -> bool:
        return False

    def _spreads(self) -> bool:
        """Whether the numbers of its sends choose partitions."""
        return False

    def _opened(self, answer: Answer | None) -> None:
        if answer is None or answer.header.status != Status.OK:
            self.world.agenda.after(AGAIN_US, self._open_over)
            return
        self._opening = False
        told = answer.control(messages.ProducerOpened)
        identity = Identity(told.producer_id, told.producer_epoch)
        self.world.watch.identity(self.name, identity)
        if self._machine is None:
            self._machine = self._made(identity)
        else:
            self._run(self._machine.opened(identity))
            self._send()

    def _made(self, identity: Identity) -> Inflight:
        return Inflight(identity, backoff=Backoff(first_s=0.01, cap_s=0.3))

    def _open_over(self) -> None:
        self._opening = False

    # ---- sending ----

    def _send(self) -> None:
        machine = self._machine
        if machine is None or self.layout is None:
            return
        for partition in list(machine.ready):
            owner = self._owner_of(partition)
            if owner is None:
                continue
            while (order := machine.transmit(partition, self.now_s)) is not None:
                self._transmit(owner, order)

    def _owner_of(self, partition: int) -> Any:
        """The machine that a request about the partition goes to; None: it is not known, or away."""
        assert self.layout is not None
        owner = self.world.machine_of(self.layout.entry(partition))
        return owner if owner is not None and self.reach(owner) else None

    def _transmit(self, owner: object, order: Transmit) -> None:
        layout = self.layout
        assert layout is not None
        entry = layout.partitions.get(order.partition)
        sent = self._frame(order)
        number = self.next_request()
        header = bytearray(HEADER_BYTES)
        epoch = 0 if entry is None else entry.epoch
        pack_request(
            header,
            0,
            Opcode.PUBLISH,
            number,
            topic=layout.topic,
            partition=order.partition,
            layout_version=layout.version,
            owner_epoch=epoch,
            producer_id=order.producer.producer_id,
            producer_epoch=order.producer.producer_epoch,
            sequence=order.sequence,
            send=sent.number,
            rows=sent.rows,
            deadline_ms=deadline_ms(min(order.deadline, self.now_s + 2.0), self.now_s),
            extension_bytes=sent.extension_bytes,
            body_bytes=len(sent.body),
            body_crc=crc32c(sent.body),
        )
        self._partition_of[number] = order.partition

        def told(answer: Answer | None) -> None:
            fenced = self._doors.pop(number, 0)
            del self._partition_of[number]
            self._answered(order, epoch, fenced, owner, answer)

        self.put(owner, number, bytes(header), sent.body, told, PATIENCE_US)  # type: ignore[arg-type]

    def _name(self) -> str | None:
        """Under which it opens."""
        return None

    def _frame(self, order: Transmit) -> Frame:
        batch = self._effects.batches[order.key]
        extension, number = self._marked(order)
        return Frame(extension + body_of(batch.first, batch.rows), len(extension), batch.rows, number)

    def _marked(self, order: Transmit) -> tuple[bytes, int]:
        """The extension in front of the batch, and its `send`."""
        return b"", order.sequence

    def arrived(self, request_id: int) -> None:
        partition = self._partition_of.get(request_id)
        if partition is not None and request_id not in self._doors:
            self._doors[request_id] = self.world.ledger.partitions[partition].fenced

    def _answered(
        self, order: Transmit, epoch: int, fenced: int, owner: object, answer: Answer | None
    ) -> None:
        machine, ledger = self._machine, self.world.ledger
        assert machine is not None
        if answer is None:
            self._run(machine.lost([(order.key, order.attempt)]))
            return
        header, jitter = answer.header, self.random.random()
        if header.status == Status.OK:
            if not header.flags & AnswerFlags.REPEATED:
                ledger.admitted(order.partition, epoch, fenced)
                self.world.watch.stored(owner, order.partition, epoch)
            ledger.answered(order.partition, order.producer, order.sequence, epoch, header.owner_epoch)
            self._acknowledged(order, epoch)
            self._run(machine.done(order.key, order.attempt, header.first_offset))
            self._send()
            return
        error = self._told(answer)
        self.world.count(f"answer_{error.code.name.lower() if error.code else 'redirect'}")
        if error.code is Code.SEQUENCE_GAP:
            ledger.expected(order.partition, order.producer, header.sequence, header.owner_epoch)
        self._run(self._refused(machine, order, error, header, jitter))
        self._send()

    def _told(self, answer: Answer) -> RingfenceError:
        return answer.error(self.topic)

    def _acknowledged(self, order: Transmit, epoch: int) -> None:
        """The owner of this epoch answered OK."""
        batch = self._effects.batches.get(order.key)
        if batch is not None and not batch.outcome:
            batch.epochs = epoch, epoch

    def _refused(
        self,
        machine: Inflight,
        order: Transmit,
        error: RingfenceError,
        header: wire.AnswerHeader,
        jitter: float,
    ) -> list[Effect]:
        """As the client's `Sender.answered`."""
        early = False
        if isinstance(error, RerouteError) and error.reason is not RedirectReason.CLOSED:
            assert self.layout is not None
            early = is_early(error, header.generation, self.layout)
            return machine.redirected(
                order.key, order.attempt, error, header.generation, self.now_s, jitter, early=early
            )
        if isinstance(error, RerouteError):
            early = True
            error = RetriableError("the partition is not open", retry_after_s=header.retry_after_ms / 1000)
        return machine.refused(order.key, order.attempt, error, self.now_s, jitter, early=early)

    def _run(self, effects: list[Effect]) -> None:
        self._effects.run(effects)
