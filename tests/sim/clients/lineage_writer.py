"""A transactional writer whose partitions split and merge: rows that lie in a sealed one are staged again.

A COMMIT that names a sealed partition is refused (`moved`), and decides nothing. Then its driver reads what
is staged there, routes it by the newest table, stages it under one more token with the place of its first
staging, and commits again; as the client's `Restager` does, whose requests wait on threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from ringfence.arrow.body_router import BodyRouter
from ringfence.arrow.encode import Body, TopicEncoder
from ringfence.common import extension
from ringfence.common.codec import Answer, request_header
from ringfence.native import layout_messages, wire
from ringfence.native._node import RecordReader, crc32c
from ringfence.native.errors import FencedError, InvalidArgumentError, RerouteError, RingfenceError
from ringfence.native.frame import pack_request
from ringfence.native.messages import encode
from ringfence.native.wire import (
    HEADER_BYTES,
    AnswerFlags,
    Features,
    Opcode,
    RedirectReason,
    RequestFlags,
    Status,
)
from ringfence.send.stager import IDENTITY, TOKEN_BYTES
from tests.sim.checks.lineage_scopes import LineageAttempt, LineageScopes
from tests.sim.checks.scopes import Attempt, Commit
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.driver import AGAIN_US, STAGE_S, STAGE_US, Begun, Driver, End, Steps, Wish
from tests.sim.clients.keyed import rows_of
from tests.sim.clients.reader import staged_header
from tests.sim.clients.writer import Writer

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from tests.sim.checks.lineage_ledger import LineageLedger

SENDS_MAX: Final = 4
SLOW_TASKS: Final = 0.4
"""Share of tasks that stage one send after the other: their partitions are replaced between two of them."""
SLOW_TASK_US: Final = 150_000
HIDDEN_S: Final = 2.5
"""Longer than an owner that answers may take to serve a partition as sealed."""
RESTAGE_S: Final = 6.0
"""To find and stage again what lies in sealed partitions; then the epoch is begun again."""


class Piece(NamedTuple):
    """One batch of an attempt, and its sequence in its partition."""

    body: Body
    sequence: int


class Listed(NamedTuple):
    """A staged record: what is in front of its rows, and its rows."""

    header: wire.RecordHeader
    extension: bytes
    rows: bytes


class LineageWriter(Writer):
    """Its drivers know that partitions are replaced."""

    features = int(Features.RESUME_RANGES | Features.LINEAGE)

    def driver(self, instance: bytes) -> Driver:
        return LineageDriver(self, instance)

    def owner_wish(self, opcode: int, partition: int, message: Any) -> Wish:
        """A request to the owner of a partition in any state."""
        assert self.layout is not None
        body, number = encode(message), self.next_request()
        header = request_header(
            opcode,
            number,
            topic=self.layout.topic,
            partition=partition,
            layout_version=self.layout.version,
            flags=RequestFlags.CONTROL,
            body_bytes=len(body),
            body_crc=crc32c(body),
            deadline_ms=STAGE_US // 1_000,
        )
        return Wish(self._owner(partition), number, bytes(header), body, STAGE_US)

    def record_wish(self, partition: int, record: int) -> Wish:
        """A FETCH of staged records from this one on."""
        assert self.layout is not None
        number = self.next_request()
        header = staged_header(self.layout.topic, number, partition, record)
        return Wish(self._owner(partition), number, header, b"", STAGE_US)

    def _owner(self, partition: int) -> Any:
        assert self.layout is not None
        entry = self.layout.partitions.get(partition)
        return None if entry is None else self.world.machine_of(entry)


class LineageDriver(Driver):
    """Rows have keys; each send becomes a batch for each partition with rows of it."""

    @property
    def _scopes(self) -> LineageScopes:
        found: Any = self._world.scopes
        return found  # type: ignore[no-any-return]

    @property
    def _ledger(self) -> LineageLedger:
        found: Any = self._world.ledger
        return found  # type: ignore[no-any-return]

    @property
    def _asker(self) -> LineageWriter:
        found: Any = self._writer
        return found  # type: ignore[no-any-return]

    @property
    def _layout(self) -> Layout:
        assert self._writer.layout is not None, "who has no table begins no epoch"
        return self._writer.layout

    # ---- staging ----

    def _stage(self, begun: Begun, epoch: int) -> Steps[tuple[Attempt | None, End]]:
        """As of `Driver`; an attempt whose partition is sealed on the way is nobody's."""
        attempt = self._attempt(begun.scope, begun.driver, epoch)
        sequences, for_s = Counter[int](), self._random.choice(STAGE_S)
        is_slow = self._random.random() < SLOW_TASKS
        bodies: list[Body] = []
        for send in range(1, self._random.randrange(1, SENDS_MAX) + 1):
            count = self._random.randrange(1, self._world.plan.rows_max)
            ids = self._ledger.draw(attempt.producer, send, count)
            attempt.sends.append(ids)
            bodies += TopicEncoder(self._layout, split=True).bodies(
                rows_of(ids), extension=self._front(attempt)
            )
            if is_slow:
                staged, end = yield from self._put(bodies, for_s, sequences)
                if staged is None:
                    return None, end
                attempt.placed += staged
                bodies.clear()
                yield 1 + int(self._random.expovariate(1 / SLOW_TASK_US))
        staged, end = yield from self._put(bodies, for_s, sequences)
        if staged is None:
            return None, end
        attempt.placed += staged
        return attempt, End.NEXT

    def _attempt(self, scope: int, driver: int, epoch: int) -> LineageAttempt:
        return self._scopes.attempt(scope, driver, epoch, self._random.randbytes(TOKEN_BYTES))

    def _front(self, attempt: Attempt, origin: bytes | None = None) -> bytes:
        """The extension of a batch of the attempt; `origin`: of rows that were staged before."""
        identity = IDENTITY.pack(
            attempt.scope, attempt.driver, attempt.epoch, self._writer.number, 0, attempt.token
        )
        found: dict[int, bytes] = {wire.ExtensionKind.STAGE: identity}
        if origin is not None:
            found[wire.ExtensionKind.ORIGIN] = origin
        return extension.packed(found)

    def _put(
        self, bodies: list[Body], for_s: float, sequences: Counter[int]
    ) -> Steps[tuple[Counter[int] | None, End]]:
        """Until each is on disk: rows by partition. None: not all are, and how to go on.

        `sequences`: of the attempt, by partition. What a sealed partition has not is routed again once
        nothing there is without an answer (C3, C4).
        """
        rows, left = Counter[int](), list[Piece]()

        def add(body: Body) -> None:
            left.append(Piece(body, sequences[body.partition]))
            sequences[body.partition] += 1
            rows[body.partition] += body.rows

        for body in bodies:
            add(body)
        until_s, sealed, router = self._writer.now_s + for_s, list[Body](), BodyRouter()
        while left or sealed:
            if not left:
                if any(self._layout.entry(body.partition) is not None for body in sealed):
                    if self._writer.now_s > until_s:
                        return None, End.AGAIN
                    yield self._random.randrange(*AGAIN_US)
                    yield from self._fetch_table()
                    continue
                self._world.count("attempt_rerouted")
                for body in sealed:
                    rows[body.partition] -= body.rows
                    for routed in router.routed(self._layout, body, 0):
                        add(routed.body)
                sealed.clear()
            wishes = [self._piece_wish(piece) for piece in left]
            answers = yield wishes
            again: list[Piece] = []
            for piece, wish, answer in zip(left, wishes, answers, strict=True):
                if answer is not None and answer.header.status == Status.STAGED:
                    if not answer.header.flags & AnswerFlags.REPEATED:
                        self._world.watch.stored(wish.machine, piece.body.partition, wish.epoch)
                    continue
                end = self._refused_end(answer)
                if end is not None:
                    return None, end
                if answer is not None and _is_sealed(answer):
                    sealed.append(piece.body)
                else:
                    again.append(piece)
            if again and (self._writer.now_s > until_s or self._gives_up()):
                self._world.count("attempt_late")
                return None, End.AGAIN
            left[:] = again
            if left:
                yield self._random.randrange(*AGAIN_US)
                yield from self._fetch_table()
        return +rows, End.NEXT

    def _gives_up(self) -> bool:
        """Whether batches without an answer are not sent again."""
        return self._world.healed

    def _refused_end(self, answer: Answer | None) -> End | None:
        """How to go on without this attempt; None: the batch is sent again."""
        if answer is None:
            return None
        if answer.header.status == Status.ALREADY_COMMITTED:
            return End.NEXT
        error = answer.error(self._writer.topic)
        if isinstance(error, RerouteError) or error.retriable:
            return None
        return End.OVER if isinstance(error, FencedError | InvalidArgumentError) else End.AGAIN

    def _piece_wish(self, piece: Piece) -> Wish:
        body, layout = piece.body, self._layout
        entry = layout.partitions.get(body.partition)
        epoch = 0 if entry is None else entry.epoch
        number, header, data = self._writer.next_request(), bytearray(HEADER_BYTES), bytes(body.data)
        pack_request(
            header,
            0,
            Opcode.STAGE,
            number,
            topic=layout.topic,
            partition=body.partition,
            layout_version=layout.version,
            owner_epoch=epoch,
            sequence=piece.sequence,
            rows=body.rows,
            deadline_ms=STAGE_US // 1_000,
            extension_bytes=body.extension_bytes,
            body_bytes=len(data),
            body_crc=body.crc,
        )
        machine = None if entry is None else self._world.machine_of(entry)
        return Wish(machine, number, bytes(header), data, STAGE_US, epoch)

    # ---- commits ----

    def _sends(self, chosen: list[Attempt]) -> Commit:
        rows = Counter[int]()
        for attempt in chosen:
            assert isinstance(attempt, LineageAttempt), attempt
            rows.update(attempt.placed)
        tokens = frozenset(attempt.token for attempt in chosen)
        return self._asks(chosen[0], tokens, rows)

    def _asks(self, first: Attempt | Commit, tokens: frozenset[bytes], rows: Counter[int]) -> Commit:
        commit = Commit(first.scope, first.driver, first.epoch, tokens, tuple(sorted(rows.items())))
        self._scopes.sends_as(commit)
        return commit

    def _stage_again(self, commit: Commit, error: RingfenceError) -> Steps[Commit | None]:
        """What of it lies in sealed partitions, under one more token. None: it could not in time."""
        sealed = {int(one) for one in error.details.get("partitions", ())}
        rows = Counter(dict(commit.rows))
        until_s, router = self._writer.now_s + RESTAGE_S, BodyRouter()
        attempt = self._attempt(commit.scope, commit.driver, commit.epoch)
        bodies: list[Body] = []
        for partition in sorted(sealed & rows.keys()):
            del rows[partition]
            found = yield from self._staged_in(commit, partition, until_s)
            if found is None:
                return None
            version, records = found
            while self._layout.version < version:
                if self._writer.now_s > until_s:
                    return None
                yield self._random.randrange(*AGAIN_US)
                yield from self._fetch_table()
            for record in records:
                own = self._with_origin(attempt, version, record)
                data = bytearray(own) + record.rows
                head = record.header
                body = Body(partition, data, crc32c(data), head.rows, head.schema_id, len(own), None)
                bodies += [routed.body for routed in router.routed(self._layout, body, 0)]
        staged, _ = yield from self._put(bodies, RESTAGE_S, Counter())
        if staged is None:
            return None
        self._world.count("restaged")
        return self._asks(commit, commit.tokens | {attempt.token}, rows + staged)

    def _with_origin(self, attempt: Attempt, version: int, record: Listed) -> bytes:
        """The place of the first staging goes with the rows."""
        origin = extension.items_of(record.extension).get(wire.ExtensionKind.ORIGIN)
        if origin is None:
            origin = extension.ORIGIN.pack(version, record.header.record_number)
        return self._front(attempt, origin)

    def _staged_in(
        self, commit: Commit, partition: int, until_s: float
    ) -> Steps[tuple[int, list[Listed]] | None]:
        """The version that sealed a partition, and its records of the commit's tokens; None: not in time."""
        wanted = layout_messages.StagedList(
            scope=commit.scope, epoch=commit.epoch, tokens=sorted(commit.tokens)
        )
        numbers: list[int] = []
        while True:
            answer = yield from self._owner_says(
                partial(self._asker.owner_wish, Opcode.STAGED_LIST, partition, wanted), until_s
            )
            if answer is None:
                return None
            page = answer.control(layout_messages.StagedBatches)
            if not page.sealed_version:  # it has not applied the COMMIT yet
                if self._writer.now_s > until_s:
                    return None
                yield self._random.randrange(*AGAIN_US)
                continue
            numbers += [record for record, _, _ in page.batches]
            if not page.more or not page.batches:
                break
            wanted = replace(wanted, after=numbers[-1])
        found: list[Listed] = []
        shown_s = self._writer.now_s
        while len(found) < len(numbers):
            first = numbers[len(found)]
            answer = yield from self._owner_says(partial(self._asker.record_wish, partition, first), until_s)
            if answer is None:
                return None
            left = {*numbers[len(found) :]}
            more = [one for one in _listed(bytes(answer.body)) if one.header.record_number in left]
            if more:
                shown_s = self._writer.now_s
            elif self._writer.now_s - shown_s > HIDDEN_S:
                what = f"partition {partition} lists the staged record {first}, and does not return it"
                raise ViolationError("T3", what)
            else:  # a new owner that does not serve it as sealed yet
                yield self._random.randrange(*AGAIN_US)
            found += more
        self._world.count("stage_read")
        return page.sealed_version, found

    def _owner_says(self, wish: Callable[[], Wish], until_s: float) -> Steps[Answer | None]:
        """What the owner of a sealed partition answers, whoever it is; None: nobody does in time."""
        while self._writer.now_s <= until_s and not self._world.healed:
            answers = yield [wish()]
            answer = answers[0]
            if answer is not None and answer.header.status == Status.OK:
                return answer
            yield self._random.randrange(*AGAIN_US)
            yield from self._fetch_table()
        return None


def _is_sealed(answer: Answer) -> bool:
    """The batch is not in the partition, and never will be."""
    return answer.header.status == Status.REDIRECT and answer.header.code == RedirectReason.SEALED


def _listed(body: bytes) -> Iterator[Listed]:
    for packed, start, length in RecordReader(body):
        header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(packed))
        rows = start + header.extension_bytes
        yield Listed(header, body[start:rows], body[rows : start + length])
