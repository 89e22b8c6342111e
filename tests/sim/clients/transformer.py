"""A process that reads as a member of a STREAM and writes what it makes of rows to `out`, exactly once.

Its application is a fiber with the library's own consumer, chunks and transaction; the member, the claims and
the COMMITs are the library's, too. It aborts at times, dozes in a block, and asks again for unknown outcomes.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from ringfence.consumer import bodies
from ringfence.consumer.any_core import Batch
from ringfence.consumer.bell import Bell
from ringfence.consumer.calls import Claim, Ring, Settled
from ringfence.consumer.consumer import Consumer
from ringfence.consumer.member import Member
from ringfence.consumer.settings import Settings
from ringfence.consumer.values import MemberOptions, Task
from ringfence.consuming_transaction import consuming_transaction
from ringfence.native.errors import ClosedError, MemberError, RingfenceError, UnknownOutcomeError
from tests.sim.checks.consumed import ConsumedRecord
from tests.sim.clients import keyed, waiting
from tests.sim.clients.cast import StreamCast
from tests.sim.clients.cores import SimCore
from tests.sim.clients.member import StreamHabits, StreamProcess
from tests.sim.clients.member_process import BEAT_US
from tests.sim.clients.transform_writer import TransformScopes, TransformWriter
from tests.sim.world.fiber import Fiber

if TYPE_CHECKING:
    from ringfence.consumer.calls import Call, Effect, NodeCall, Refusal, Reply
    from tests.sim.checks.consumed import ConsumedLedger
    from tests.sim.consumed import ConsumedSimulation

OUT: Final = "out"
ABORTS: Final = 0.08
"""Share of blocks whose application raises an error."""
DOZES: Final = 0.1
"""Share of blocks in which it does nothing for a while, or longer than a lease."""
DOZES_S: Final = (0.5, 4.0, 14.0)
CLOSES: Final = 0.3
"""Share of unknown outcomes behind which it closes its consumer; else it asks again."""
AGAIN_S: Final = 0.3
TRIES_MAX: Final = 40


class ApplicationError(Exception):
    """Something of the application's own."""


@dataclass(frozen=True)
class TransformHabits(StreamHabits):
    """Of an application that writes what it reads."""

    rows: int = 500
    """Of a block, at most."""
    wait_s: float = 0.5
    timeout_s: float = 5.0


class TransformCore(SimCore):
    """The steps of the consumer, in a fiber."""

    def __init__(self, process: TransformProcess, options: MemberOptions) -> None:
        super().__init__(process, options)
        self._process = process
        self.lock: Any = process.lock
        self.io_thread: Any = SimpleNamespace(check_outside=lambda _: None)
        self.schema = keyed.ROWS
        self.identity: Any = SimpleNamespace(member=options.name, cohort=process.mode)

    @property
    def link(self) -> Any:  # type: ignore[override]
        return self._process  # for its `cohort`

    @property
    def layout(self) -> Any:  # type: ignore[override]
        return self._process.layout

    def step(self, *, comes_back: bool = False, is_seen: bool = True) -> Task | Batch | None:
        found = super().step(comes_back=comes_back, is_seen=is_seen)
        if isinstance(found, Batch):
            rows: Any = found.rows
            self._process.record.given(self._process, found.place, rows.ids)
            self._process.got(found.place.partition)
        return found

    def close(self, *, leave: bool, timeout_s: float) -> None:
        self.is_closed = True


class TransformProcess(StreamProcess):
    """One life of a transformer."""

    record: ConsumedRecord
    habits: TransformHabits

    def __init__(
        self,
        cast: TransformCast,
        member: str,
        number: int,
        random: Random,
        habits: TransformHabits,
        *,
        takeover: bool,
    ) -> None:
        self.simulation = cast.world
        self.lock = nullcontext()
        super().__init__(cast, member, number, random, habits, takeover=takeover)
        self.book: ConsumedLedger = cast.world.book
        self._bell = Bell()
        self._bell.flag = waiting.Event()  # type: ignore[assignment]
        self.writer = TransformWriter(self, Random(random.random()), OUT)
        self.world.clients.append(self.writer)
        self._fiber = Fiber(self._application, self)
        self._has_begun, self._is_first = False, True
        self._watch_aborts()

    def _options(self, *, takeover: bool) -> MemberOptions:
        options = super()._options(takeover=takeover)
        return options._replace(is_auto=False, is_named=True, tells=frozenset())

    def _new_member(self, options: MemberOptions) -> Member:
        self.core = TransformCore(self, options)
        return self.core.member

    def _watch_aborts(self) -> None:
        consuming = self.member.consuming
        aborted = consuming.aborted

        def observed() -> None:
            if self.is_alive:
                for partition in consuming._holds:
                    if (gate := self.member.state.gates.get(partition)) is not None and gate.hold:
                        self.record.returned(partition, gate.hold, gate.told.offset)
            aborted()

        consuming.aborted = observed  # type: ignore[method-assign]

    # ---- life ----

    def kill(self) -> None:
        if self.is_alive:
            super().kill()
            self._fiber.kill()
            self.writer.end()
            self.world.clients.remove(self.writer)

    def turned(self) -> None:
        """The application did something."""
        self._after()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Ring():
                self._bell.ring()
            case Claim():
                self.world.count("claim_sent")
                self._call(effect)
            case _:
                super()._carry_out(effect)

    def _reply_of(self, call: NodeCall) -> Any:
        if isinstance(call, Claim):
            assert self.layout is not None
            return partial(bodies.settled_of, topic=self.layout.name, is_claim=True)
        return super()._reply_of(call)

    def _hears(self, call: Call, outcome: Reply | Refusal) -> None:
        super()._hears(call, outcome)
        if isinstance(call, Claim):
            is_taken = isinstance(outcome, Settled) and not outcome.not_taken
            self.world.count("claim_taken" if is_taken else "claim_refused")
            if is_taken:
                session, partition = self.member.state.session, call.ranges[0].partition
                self.simulation.moments.came("claimed", session, partition)

    def _step(self) -> int:
        if not self._has_begun:
            self._has_begun = True
            self.writer.run(self._fiber)
        return BEAT_US

    # ---- the application ----

    def _application(self) -> None:
        settings = Settings(
            topic=self.topic, cohort=self.mode, member=self.member_name, ack="manual", idle_s=1.0
        )
        positions: Any = None
        consumer = Consumer(self.core, settings, self._bell, positions)
        scopes = TransformScopes(self.writer)
        while self.is_alive:
            try:
                for batches in consumer.chunks(rows=self.habits.rows, wait_s=self.habits.wait_s):
                    if batches:
                        self._block(scopes, consumer, batches)
            except (ClosedError, MemberError) as error:
                self._ends(error)
                return
            except RingfenceError as error:
                self._refused(error)
                waiting.pause(AGAIN_S)

    def got(self, partition: int) -> None:
        """The application has rows."""
        if self._is_first:
            self._is_first = False
            self.simulation.moments.came("given", self.member.state.session, partition)

    def _ends(self, error: Exception) -> None:
        self.world.agenda.after(0, partial(self._cast.ended, self, error))

    def _refused(self, error: RingfenceError) -> None:
        self.world.count(f"block_{type(error).__name__}")
        self.world.tell(self.name, "block refused:", repr(error)[:200])

    def _block(self, scopes: TransformScopes, consumer: Consumer, batches: list[Any]) -> None:
        dice, habits = self.random, self.habits
        transaction, self._is_first = None, True
        try:
            with consuming_transaction(
                scopes, consumer, topic=OUT, given={}, timeout_s=habits.timeout_s, bytes_in_flight_max=1 << 20
            ) as transaction:
                for batch in batches:
                    transaction.send(batch)
                if not self.world.healed:
                    self._works(dice)
            self.world.count("block_committed")
        except ApplicationError:
            self.world.count("block_aborted")
        except UnknownOutcomeError:
            assert transaction is not None
            self._asks_again(transaction)

    def _works(self, dice: Random) -> None:
        waiting.pause(dice.random() * self.habits.work_us / 1e6)
        if dice.random() < DOZES:
            self.world.count("block_dozed")
            waiting.pause(dice.choice(DOZES_S))
        if dice.random() < ABORTS:
            raise ApplicationError

    def _asks_again(self, transaction: Any) -> None:
        self.world.count("block_unknown")
        if self.random.random() < CLOSES:
            raise ClosedError("the application gave up")
        for _ in range(TRIES_MAX):
            waiting.pause(AGAIN_S)
            try:
                transaction.commit()
            except UnknownOutcomeError:
                continue
            self.world.count("block_told")
            return
        raise ClosedError("no node tells what became of the commit")


class TransformCast(StreamCast):
    """The transformers of one cohort."""

    record: ConsumedRecord
    world: ConsumedSimulation

    def __init__(self, world: ConsumedSimulation, dice: Random, members: int) -> None:
        super().__init__(world, dice, members)
        self.record = ConsumedRecord(world, self.mode)

    def _new(self, name: str, number: int, dice: Random, *, takeover: bool) -> TransformProcess:
        habits = TransformHabits(
            work_us=dice.choice((5_000, 100_000, 1_000_000)),
            is_auto=False,
            clock=dice.choice((0.99, 1.0, 1.01)),
            rows=dice.choice((50, 500, 2_000)),
            wait_s=dice.choice((0.2, 0.5, 1.0)),
            timeout_s=dice.choice((2.0, 5.0, 15.0)),
        )
        return TransformProcess(self, name, number, dice, habits, takeover=takeover)

    def end(self) -> None:
        """The run is over: no thread is left."""
        for process in [*self.world.clients]:
            if isinstance(process, TransformProcess):
                process.kill()
