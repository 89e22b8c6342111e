"""The writing side of a simulated transformer: stages what was made of rows, in the topic `out`.

`TransformScopes` is the library's `Scopes`; an attempt's batches go over the simulated writer's connections.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.admin import Admin
from ringfence.arrow.body_router import BodyRouter
from ringfence.arrow.encode import Body, TopicEncoder
from ringfence.common.codec import Answer, request_header
from ringfence.common.routing import layout_of
from ringfence.common.scope_values import Begun, StagedRows
from ringfence.native import messages, wire
from ringfence.native.errors import DeadlineError, RingfenceError
from ringfence.native.wire import Opcode, Status
from ringfence.scopes import Scopes
from ringfence.send.stager import TOKEN_BYTES
from tests.sim.clients.driver import Driver, End, Steps, Wish
from tests.sim.clients.held_table import newest
from tests.sim.clients.keyed import rows_of
from tests.sim.clients.lineage_writer import LineageDriver, LineageWriter
from tests.sim.clients.waiting import SimIo, SimTables
from tests.sim.clients.writer import BEAT_US, TABLE_US
from tests.sim.world import fiber

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sim.checks.lineage_scopes import LineageScopes
    from tests.sim.clients.cores import Ids
    from tests.sim.clients.transformer import TransformProcess

TIMEOUT_S: Final = 20.0
"""Of control requests."""


class TransformDriver(LineageDriver):
    """Stages the batches of a transaction, and knows why it could not."""

    error: RingfenceError | None = None

    def _gives_up(self) -> bool:
        return False  # also in peace

    def _refused_end(self, answer: Answer | None) -> End | None:
        end = super()._refused_end(answer)
        if end in (End.OVER, End.AGAIN):
            assert answer is not None
            self.error = answer.error(self._writer.topic)
        return end


class TransformWriter(LineageWriter):
    """Its drivers are the transactions of a process."""

    def __init__(self, process: TransformProcess, random: Random, topic: str) -> None:
        self.process, self.muted_until = process, 0
        number = int(process.name.rpartition(".")[2])
        super().__init__(process.simulation, number, random, topic)
        self.name = f"{process.name}w"

    @property
    def scopes(self) -> LineageScopes:
        """The ledger of scopes."""
        found: Any = self.world.scopes
        return found  # type: ignore[no-any-return]

    def driver(self, instance: bytes) -> Driver:
        return TransformDriver(self, instance)

    # ---- the application ----

    def run(self, running: fiber.Fiber) -> None:
        """Carry out what the fiber asks for, to its end."""
        self._start(self._orders(running))

    def _orders(self, running: fiber.Fiber) -> Steps[None]:
        told = fiber.NOTHING
        while True:
            try:
                order = running.resume(told)
            except fiber.FiberOverError:
                return
            self.process.turned()
            try:
                told = fiber.Outcome((yield from order))
            except RingfenceError as error:
                told = fiber.Outcome(error=error)

    def _go(self, driver: Steps[None], deaths: int, got: Any) -> None:
        wait_us = self.process.paused_until - self.world.agenda.now_us
        if wait_us > 0 and self.process.is_alive:
            self.world.agenda.after(wait_us, partial(self._go, driver, deaths, got))
            return
        super()._go(driver, deaths, got)

    def mute(self, us: int) -> None:
        """None of its requests leaves for so long, while the member goes on beside it."""
        self.muted_until = max(self.muted_until, self.world.agenda.now_us + us)

    @property
    def is_mute(self) -> bool:
        return self.world.agenda.now_us < self.muted_until

    def end(self) -> None:
        """The process is gone."""
        self.dies()
        for name in list(self._lines):
            self.hang_up(name, self.random.random())

    # ---- tables ----

    def _beat(self) -> None:
        if not self.process.is_alive:
            return
        if not self.process.is_paused:
            self.lose_patience()
            if self.layout is None:
                self.put_wish(self.table_wish(), self.table)
        self.world.agenda.after(BEAT_US, self._beat)

    def table_wish(self) -> Wish:
        """A request for the newest table of the topic; not sent while there is no topic."""
        state = self.world.watch.newest[1]
        topic = None if state is None else state.topic_named(f"public/default/{self.topic}")
        number = self.next_request()
        if topic is None:
            return Wish(None, number, b"", b"", TABLE_US)
        header = request_header(Opcode.TABLE, number, topic=int(topic.topic), deadline_ms=1_000)
        return Wish(self.tried(), number, bytes(header), b"", TABLE_US)

    def table(self, answer: Answer | None) -> None:
        """The newer of the two is held."""
        if answer is not None and answer.header.status == Status.OK:
            told = layout_of(answer.control(messages.Table))
            self.layout = told if self.layout is None else newest(self.layout, told)

    def fetched(self) -> Steps[None]:
        """A table of now."""
        answers = yield [self.table_wish()]
        self.table(answers[0])


class TransformScopes(Scopes):
    """The library's, with attempts over simulated connections."""

    def __init__(self, writer: TransformWriter) -> None:
        io: Any = SimIo(writer)
        tables: Any = SimTables(writer)
        super().__init__(io, tables, Admin(io, TIMEOUT_S), {})
        self._writer = writer

    def attempt(self, begun: Begun, epoch: int, **_: Any) -> Any:
        return SimStager(self._writer, begun, epoch)


class SimStager:
    """As the library's `Stager`: the batches of one attempt."""

    def __init__(self, writer: TransformWriter, begun: Begun, epoch: int) -> None:
        self._writer, self._begun, self._epoch = writer, begun, epoch
        self.token = writer.random.randbytes(TOKEN_BYTES)
        self._attempt = writer.scopes.attempt(begun.scope, begun.driver, epoch, self.token)
        self._driver = TransformDriver(writer, b"")
        self._sequences, self._rows = Counter[int](), Counter[int]()
        self._bodies: list[Body] = []
        self._sends = 0
        self._is_already = False

    def send(self, topic: str, batch: Ids) -> None:
        """Rows with the same keys, each made of one row."""
        layout = self._driver._layout
        self._sends += 1
        ids = self._writer.process.book.derived(self._attempt.producer, self._sends, batch.ids)
        self._attempt.sends.append(ids)
        encoder = TopicEncoder(layout, split=True)
        self._bodies += encoder.bodies(rows_of(ids), extension=self.extension_with({}))
        if self._writer.random.random() < 0.5:
            self.flush()

    def extension_with(self, items: Mapping[int, bytes]) -> bytes:
        return self._driver._front(self._attempt, items.get(wire.ExtensionKind.ORIGIN))

    def stage_again(self, layout: Any, body: Body) -> None:
        """Rows of a sealed partition, where they are now."""
        del layout
        self._bodies += [routed.body for routed in BodyRouter().routed(self._driver._layout, body, 0)]

    def flush(self) -> None:
        """Until all is on disk."""
        bodies, self._bodies = self._bodies, []
        for_s = self._writer.random.choice((1.5, 5.0, 10.0))
        fiber.current().ask(self._staged(bodies, for_s))

    def _staged(self, bodies: list[Body], for_s: float) -> Steps[None]:
        staged, end = yield from self._driver._put(bodies, for_s, self._sequences)
        if staged is not None:
            self._rows += staged
        elif end is End.NEXT:
            self._is_already = True
        elif self._driver.error is not None:
            raise self._driver.error
        else:
            raise DeadlineError("not all rows were staged in time", topic=self._writer.topic)

    def finish(self) -> StagedRows:
        """What is staged."""
        self.flush()
        topic = self._driver._layout.topic
        parts = {(topic, partition): rows for partition, rows in sorted(self._rows.items())}
        begun = self._begun
        return StagedRows(
            self.token,
            {} if self._is_already else parts,
            self._is_already,
            begun.scope,
            self._epoch,
            begun.driver,
        )

    def close(self) -> None:
        """Nothing is under way."""

    @property
    def names(self) -> dict[int, str]:
        """The topics of its rows."""
        return {self._driver._layout.topic: self._writer.topic} if self._sends else {}
