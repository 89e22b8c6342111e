"""A producer: the client's own state machine and frames, over a simulated connection."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from ringfence.common import codec
from ringfence.common.retry import Backoff, deadline_ms
from ringfence.common.send_effects import FetchTable, Identity, Transmit
from ringfence.native._node import crc32c
from ringfence.native.errors import RerouteError
from ringfence.native.frame import open_answer, pack_request
from ringfence.native.wire import HEADER_BYTES, AnswerFlags, Code, Opcode, Status
from ringfence.send.inflight import Inflight
from tests.fakes.routes import routes
from tests.sim.clients.content import body_of
from tests.sim.clients.effects import EffectRunner
from tests.sim.world.wire import Wire

if TYPE_CHECKING:
    from tests.sim.data_plane import DataPlane

ANSWER_US: Final = 1_000_000  # without an answer for so long a try is given up
BEAT_US: Final = 25_000
DEADLINES_S: Final = (0.5, 3.0, 20.0)
LARGE_ROWS: Final = 4_200  # 33 KiB: received into a block of its own
LARGE: Final = 0.02


@dataclass(slots=True)
class Try:
    """One request under way."""

    key: int
    attempt: int
    partition: int
    epoch: int
    identity: Identity
    sequence: int
    fenced: int = 0  # what was durably open when it arrived
    sent_us: int = 0


class Producer:
    """Sends batches until told to stop, each until it has an outcome."""

    def __init__(self, world: DataPlane, random: Random, number: int) -> None:
        self.number = number
        self._world, self._random = world, random
        self._machine = Inflight(self._identity(), backoff=Backoff(first_s=0.01, cap_s=0.2))
        self._effects = EffectRunner(
            world.agenda, random, world.ledger, fetch_table=self._table, open_epoch=self._reopen
        )
        self._tries: dict[int, Try] = {}
        self._epochs: dict[int, int] = {}
        self._wire: Wire | None = None
        self._request = self._key = 0
        world.agenda.after(random.randrange(BEAT_US), self._beat)

    @property
    def idle(self) -> bool:
        return not len(self._machine)

    @property
    def now_s(self) -> float:
        return self._world.agenda.now_us / 1e6

    def submit(self) -> None:
        """One more batch, to any partition."""
        partition = self._random.choice(self._world.partitions)
        rows = LARGE_ROWS if self._random.random() < LARGE else self._random.randrange(1, 64)
        self._key += 1
        self._effects.batches[self._key] = self._world.ledger.sent(self.number, partition, rows)
        deadline = self.now_s + self._random.choice(DEADLINES_S)
        self._effects.run(self._machine.submit(self._key, partition, deadline))
        self._send()

    def cut(self) -> None:
        """The connection is gone; whatever had no answer is lost."""
        if self._wire is not None:
            self._wire.cut()
            self._wire = None
            lost = [(sent.key, sent.attempt) for sent in self._tries.values()]
            self._tries.clear()
            self._effects.run(self._machine.lost(lost))

    # ---- inside ----

    def _identity(self) -> Identity:
        number = self._world.draw_id()
        return Identity(number, number)

    def _beat(self) -> None:
        now_us = self._world.agenda.now_us
        late = [number for number, sent in self._tries.items() if now_us - sent.sent_us > ANSWER_US]
        lost = [(sent.key, sent.attempt) for sent in map(self._tries.pop, late)]
        self._effects.run(self._machine.lost(lost))
        self._effects.run(self._machine.expire(self.now_s))
        if self._wire is None and self._world.host.running:
            self._wire = self._world.connect(self._arrived, self._answered)
        if not self._epochs:
            self._effects.run([FetchTable(0)])
        self._send()
        self._world.agenda.after(BEAT_US, self._beat)

    def _send(self) -> None:
        if self._wire is None or not self._epochs:
            return
        for partition in list(self._machine.ready):
            while (order := self._machine.transmit(partition, self.now_s)) is not None:
                self._transmit(self._wire, order)

    def _transmit(self, wire: Wire, order: Transmit) -> None:
        batch = self._effects.batches[order.key]
        body = body_of(batch.first, batch.rows)
        self._request += 1
        epoch = self._epochs[order.partition]
        self._tries[self._request] = Try(
            order.key,
            order.attempt,
            order.partition,
            epoch,
            order.producer,
            order.sequence,
            sent_us=self._world.agenda.now_us,
        )
        header = bytearray(HEADER_BYTES)
        pack_request(
            header,
            0,
            Opcode.PUBLISH,
            self._request,
            topic=self._world.topic,
            partition=order.partition,
            layout_version=1,
            owner_epoch=epoch,
            producer_id=order.producer.producer_id,
            producer_epoch=order.producer.producer_epoch,
            sequence=order.sequence,
            send=order.sequence,
            rows=batch.rows,
            deadline_ms=deadline_ms(order.deadline, self.now_s),
            body_bytes=len(body),
            body_crc=crc32c(body),
        )
        wire.send(self._request, bytes(header), body)

    def _arrived(self, request_id: int) -> None:
        sent = self._tries.get(request_id)
        if sent is not None:
            sent.fenced = self._world.ledger.partitions[sent.partition].fenced

    def _answered(self, frame: bytes, body: bytes) -> None:
        header = open_answer(frame)
        sent = self._tries.pop(header.request_id, None)
        if sent is None:
            return
        machine, jitter = self._machine, self._random.random()
        if header.status == Status.OK:
            if not header.flags & AnswerFlags.REPEATED:
                self._world.ledger.admitted(sent.partition, sent.epoch, sent.fenced)
            self._world.ledger.answered(
                sent.partition, sent.identity, sent.sequence, opened=header.owner_epoch
            )
            self._effects.run(machine.done(sent.key, sent.attempt, header.first_offset))
        else:
            error = codec.checked(header, memoryview(body)).error("t")
            self._world.count(f"answer_{error.code.name.lower() if error.code else 'redirect'}")
            if error.code is Code.SEQUENCE_GAP:
                self._world.ledger.expected(
                    sent.partition, sent.identity, header.sequence, header.owner_epoch
                )
            if isinstance(error, RerouteError):
                effects = machine.redirected(
                    sent.key, sent.attempt, error, header.generation, self.now_s, jitter
                )
            else:
                effects = machine.refused(sent.key, sent.attempt, error, self.now_s, jitter)
            self._effects.run(effects)
        self._send()

    def _table(self) -> None:
        known = self._world.epochs
        self._epochs = (
            {partition: known.get(partition, 0) for partition in self._world.partitions} if known else {}
        )
        self._effects.run(self._machine.table_arrived(routes(self._world.slots)))
        self._send()

    def _reopen(self) -> None:
        self._effects.run(self._machine.opened(self._identity()))
        self._send()
