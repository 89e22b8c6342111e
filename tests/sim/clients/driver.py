"""One driver of a scope, as a generator: it yields requests to wait for, or a time to let pass, in us.

begin -> (stage: one to three attempts, some of them dead -> commit, again and again) until fenced,
refused, healed, or dead itself. A hasty driver asks once for a commit, and goes on unheard.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ringfence.arrow.encode import EXTENSION_ITEM
from ringfence.common.codec import Answer
from ringfence.native import cluster_messages as messages
from ringfence.native import wire
from ringfence.native._node import crc32c
from ringfence.native.errors import (
    ConflictError,
    FencedError,
    InvalidArgumentError,
    RerouteError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.native.frame import pack_request
from ringfence.native.messages import Message
from ringfence.native.wire import HEADER_BYTES, AnswerFlags, Code, Opcode, Status
from ringfence.send.stager import IDENTITY, TOKEN_BYTES
from tests.sim.checks.ledger import Batch
from tests.sim.checks.scopes import Attempt, Commit
from tests.sim.clients.content import body_of

if TYPE_CHECKING:
    from tests.sim.clients.writer import Writer
    from tests.sim.world.machine import Machine

AGAIN_US: Final = (20_000, 200_000)
CONTROL_US: Final = 6_000_000
COMMIT_US: Final = (300_000, 1_500_000, 6_000_000)
"""How long a driver waits for a commit: who goes early commits the next epoch behind a pending one."""
STAGE_US: Final = 1_500_000
STAGE_S: Final = (0.3, 1.5, 5.0)
TASKS_MAX: Final = 3
BATCHES_MAX: Final = 4
PLACES: Final = (1, 1, 2, 2, 3, 99)
"""Partitions of one attempt: more of them would wait most of the time for one that is away."""
TRIES_MAX: Final = 6
DEAD: Final = 0.25
"""Share of attempts whose task is run again: what they staged is nobody's."""
GIVEN_UP: Final = 0.08
STAGED_ANEW: Final = 0.1
DIES: Final = 0.06
REPEATED: Final = 0.15
SLOW_US: Final = 1_500_000
"""How long about a late commit comes after what its epoch staged: its partitions move meanwhile."""
HASTY: Final = 0.3
"""Share of drivers that ask once for a commit, and go on whatever becomes of it: epochs wait side by side."""


class Wish(NamedTuple):
    """One request; its answer is None when it never comes, or nobody could be asked."""

    machine: Machine | None
    number: int
    header: bytes
    body: bytes
    patience_us: int
    epoch: int = 0
    """Of the partition's owner, as the driver knows it."""


T = TypeVar("T")
Steps = Generator["int | list[Wish]", "list[Answer | None]", T]


class End(Enum):
    """How an epoch's run ended."""

    NEXT = auto()
    AGAIN = auto()
    OVER = auto()


class Begun(NamedTuple):
    scope: int
    driver: int
    decided: int


class Driver:
    """`instance`: the same one again is the same driver; empty: whoever was before is fenced."""

    def __init__(self, writer: Writer, instance: bytes) -> None:
        self._writer, self._instance = writer, instance
        self._world, self._random = writer.world, writer.random
        self._is_hasty = self._random.random() < HASTY

    def steps(self) -> Steps[None]:
        begun = yield from self.begin()
        if begun is None:
            return
        epoch = begun.decided + 1
        while not self._world.healed:
            pause_us = self._random.expovariate(1 / self._world.plan.commit_us)
            yield 1 if self._is_hasty else 1 + int(pause_us)
            end = yield from self._epoch(begun, epoch)
            if end is End.OVER:
                return
            epoch += end is End.NEXT

    def begin(self) -> Steps[Begun | None]:
        """None: this instance was fenced by a later one.

        It fences the driver that it was told of: some of its tries are served long after others began.
        """
        after = 0
        while True:
            message = messages.ScopeBegin(
                scope=self._writer.name, instance=self._instance, after=after, drawn=not self._instance
            )
            known = self._world.scopes.acknowledged_upto()
            self._world.scopes.asks(self._writer.name, self._instance, after)
            answer = yield from self._control(Opcode.BEGIN, message, CONTROL_US)
            if answer is not None and answer.header.status == Status.OK:
                told = answer.control(messages.ScopeBegun)
                self._world.count("driver_began")
                self._world.scopes.began(told.scope_id, told.committed, known)
                return Begun(told.scope_id, told.driver, told.decided)
            error = None if answer is None else answer.error()
            if isinstance(error, FencedError):
                return None
            if isinstance(error, ConflictError):
                self._world.count("begin_conflict")
                after = error.details["driver"]
                continue
            yield self._random.randrange(*AGAIN_US)

    # ---- one epoch ----

    def _epoch(self, begun: Begun, epoch: int) -> Steps[End]:
        random = self._random
        chosen: list[Attempt] = []
        for _ in range(random.randrange(1, TASKS_MAX + 1)):
            while True:
                attempt, end = yield from self._stage(begun, epoch)
                if attempt is None:
                    return end
                if random.random() >= DEAD:
                    break
                self._world.count("attempt_dead")
            chosen.append(attempt)
        dice = random.random()
        if dice < GIVEN_UP:
            return (yield from self._expire(begun, epoch))
        if dice < GIVEN_UP + STAGED_ANEW:
            return End.AGAIN
        if dice < GIVEN_UP + STAGED_ANEW + DIES:
            return End.OVER
        if random.random() < self._world.plan.late_commits:
            self._writer.is_late = True
            yield 1 + int(random.expovariate(1 / SLOW_US))
            self._writer.is_late = False
        commit = self._sends(chosen)
        message = self._message(commit)
        if random.random() < DIES:  # nobody hears what becomes of it
            wish = self._writer.control(Opcode.COMMIT, message, CONTROL_US)
            self._writer.put_wish(wish, lambda _: None)
            return End.OVER
        return (yield from self._commit(commit, message))

    def _stage(self, begun: Begun, epoch: int) -> Steps[tuple[Attempt | None, End]]:
        """One attempt, with each batch on disk; else None and how to go on."""
        world, random = self._world, self._random
        layout = self._writer.layout
        assert layout is not None, "who has no table begins no epoch"
        token = random.randbytes(TOKEN_BYTES)
        attempt = world.scopes.attempt(begun.scope, begun.driver, epoch, token)
        active = [entry.partition for entry in layout.active]
        chosen = random.sample(active, min(len(active), random.choice(PLACES)))
        left: list[tuple[int, Batch]] = []
        for partition in chosen:
            for sequence in range(random.randrange(1, BATCHES_MAX)):
                rows = random.randrange(1, world.plan.rows_max)
                batch = world.ledger.sent(-self._writer.number, partition, rows)
                attempt.batches.append(batch)
                left.append((sequence, batch))
        until_s = self._writer.now_s + random.choice(STAGE_S)
        while True:
            wishes = [self._stage_wish(attempt, sequence, batch) for sequence, batch in left]
            answers = yield wishes
            again, end = self._sorted(left, wishes, answers)
            if end is not None:
                return None, end
            if not again:
                return attempt, End.NEXT
            if self._writer.now_s > until_s or world.healed:
                world.count("attempt_late")
                return None, End.AGAIN
            left = again
            yield random.randrange(*AGAIN_US)
            yield from self._fetch_table()

    def _sorted(
        self, sent: list[tuple[int, Batch]], wishes: list[Wish], answers: list[Answer | None]
    ) -> tuple[list[tuple[int, Batch]], End | None]:
        """Which batches must be sent again; or how to go on without this attempt."""
        again: list[tuple[int, Batch]] = []
        end = None
        for one, wish, answer in zip(sent, wishes, answers, strict=True):
            if answer is None:
                again.append(one)
                continue
            header = answer.header
            if header.status == Status.STAGED:
                if not header.flags & AnswerFlags.REPEATED:
                    self._world.watch.stored(wish.machine, one[1].partition, wish.epoch)
                continue
            if header.status == Status.ALREADY_COMMITTED:
                end = End.NEXT
                continue
            error = answer.error(self._writer.topic)
            if isinstance(error, RerouteError | RetriableError | UnknownOutcomeError):
                again.append(one)
            elif isinstance(error, FencedError | InvalidArgumentError):
                end = End.OVER
            else:  # quarantined, say: the rows go elsewhere
                end = end or End.AGAIN
        return again, end

    def _stage_wish(self, attempt: Attempt, sequence: int, batch: Batch) -> Wish:
        layout = self._writer.layout
        assert layout is not None
        identity = IDENTITY.pack(
            attempt.scope, attempt.driver, attempt.epoch, self._writer.number, 0, attempt.token
        )
        item = EXTENSION_ITEM.pack(wire.ExtensionKind.STAGE, 0, len(identity)) + identity
        extension = item + bytes(-len(item) % wire.BODY_ALIGN_BYTES)
        body = extension + body_of(batch.first, batch.rows)
        entry = layout.entry(batch.partition)
        epoch = 0 if entry is None else entry.epoch
        number = self._writer.next_request()
        header = bytearray(HEADER_BYTES)
        pack_request(
            header,
            0,
            Opcode.STAGE,
            number,
            topic=layout.topic,
            partition=batch.partition,
            layout_version=layout.version,
            owner_epoch=epoch,
            sequence=sequence,
            rows=batch.rows,
            deadline_ms=STAGE_US // 1_000,
            extension_bytes=len(extension),
            body_bytes=len(body),
            body_crc=crc32c(body),
        )
        return Wish(self._world.machine_of(entry), number, bytes(header), body, STAGE_US, epoch)

    # ---- its end ----

    def _sends(self, chosen: list[Attempt]) -> Commit:
        """The COMMIT of these attempts, which is about to be sent."""
        return self._world.scopes.sends(chosen)

    def _stage_again(self, commit: Commit, error: RingfenceError) -> Steps[Commit | None]:
        """Partitions of it are sealed, so nothing is decided: the same rows where they are now, or None."""
        yield from ()  # a generator, as those that override it
        raise AssertionError(f"nothing is sealed at this level: {commit}, {error}")

    def _message(self, commit: Commit) -> messages.ScopeCommit:
        layout = self._writer.layout
        assert layout is not None
        parts = [(layout.topic, partition, rows) for partition, rows in commit.rows]
        return messages.ScopeCommit(
            scope_id=commit.scope,
            driver=commit.driver,
            epoch=commit.epoch,
            tokens=sorted(commit.tokens),
            parts=parts,
        )

    def _commit(self, commit: Commit, message: messages.ScopeCommit) -> Steps[End]:
        """Until it is known, or given up: then the scope, begun anew, tells."""
        scopes, random = self._world.scopes, self._random
        for _ in range(1 if self._is_hasty else TRIES_MAX):
            patience_us = COMMIT_US[0] if self._is_hasty else random.choice(COMMIT_US)
            answer = yield from self._control(Opcode.COMMIT, message, patience_us)
            if answer is not None and answer.header.status == Status.OK:
                scopes.acknowledged(commit)
                self._world.count("epoch_acknowledged")
                if random.random() < REPEATED:
                    yield from self._repeat(commit, message)
                return End.NEXT
            if answer is not None and answer.header.status == Status.ALREADY_COMMITTED:
                own = answer.control(messages.AlreadyCommitted).own
                scopes.already(commit, own)
                self._world.count("epoch_already")
                self._world.count({True: "epoch_own", False: "epoch_others", None: "epoch_untold"}[own])
                return End.NEXT
            error = None if answer is None else answer.error()
            if error is not None and error.code is Code.MOVED:
                self._world.count("epoch_moved")
                again = yield from self._stage_again(commit, error)
                if again is None:
                    return End.AGAIN
                commit, message = again, self._message(again)
                continue
            if error is not None and error.code is Code.UNKNOWN_PARTITION:
                self._world.count("epoch_pruned")  # with what was staged there
                return End.AGAIN
            if isinstance(error, FencedError):
                scopes.fenced(commit)
                self._world.count("driver_fenced")
                return End.OVER
            if isinstance(error, InvalidArgumentError):
                scopes.refused(commit, error.message)
                return End.OVER
            yield random.randrange(*AGAIN_US)
        self._world.count("epoch_unknown")
        return End.NEXT if self._is_hasty else End.OVER

    def _repeat(self, commit: Commit, message: messages.ScopeCommit) -> Steps[None]:
        """What is committed is told to anybody, and nothing changes."""
        answer = yield from self._control(Opcode.COMMIT, message, CONTROL_US)
        if answer is not None and answer.header.status == Status.ALREADY_COMMITTED:
            self._world.scopes.already(commit, answer.control(messages.AlreadyCommitted).own)
            self._world.count("epoch_repeated")

    def _expire(self, begun: Begun, epoch: int) -> Steps[End]:
        message = messages.ScopeExpire(scope_id=begun.scope, epoch=epoch, driver=begun.driver)
        answer = yield from self._control(Opcode.EXPIRE, message, CONTROL_US)
        if answer is None or answer.header.status not in (Status.OK, Status.ALREADY_COMMITTED):
            return End.OVER
        if answer.header.status == Status.OK:
            self._world.scopes.expired(begun.scope, epoch)
            self._world.count("epoch_expired")
        return End.NEXT

    # ---- asking ----

    def _control(self, opcode: int, message: Message, patience_us: int) -> Steps[Answer | None]:
        answers = yield [self._writer.control(opcode, message, patience_us)]
        return answers[0]

    def _fetch_table(self) -> Steps[None]:
        answers = yield [self._writer.table_wish()]
        self._writer.table(answers[0])
