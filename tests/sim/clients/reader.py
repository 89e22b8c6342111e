"""Reading: frames of fetches, and a reader of all partitions that remembers what it was given."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from ringfence.common.codec import request_header
from ringfence.native import wire
from ringfence.native._node import RecordReader
from ringfence.native.frame import open_answer
from ringfence.native.wire import AnswerHeader, Code, Opcode, RecordKind, RequestFlags, Status
from ringfence.staged_reader import HEAD, places
from tests.sim.checks.ledger import Published, Record, Stored
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.content import first_id
from tests.sim.world.wire import Wire

if TYPE_CHECKING:
    from tests.sim.data_plane import DataPlane

BYTES: Final = 65_536
POLL_MS: Final = 200
REST_US: Final = 50_000
ANEW: Final = 0.02  # share of answers behind which a partition is read from its start again

_UNPACK = wire.RECORD_STRUCT.unpack
_MAKE = wire.RecordHeader._make


def fetch_header(
    topic: int, request_id: int, partition: int, offset: int, epoch: int, wait_ms: int, bytes_max: int = BYTES
) -> bytes:
    """A FETCH from `offset` on; `epoch` is that of the row before, 0 if none was read."""
    return bytes(
        request_header(
            Opcode.FETCH,
            request_id,
            topic=topic,
            partition=partition,
            sequence=offset,
            owner_epoch=epoch,
            send=bytes_max,
            deadline_ms=wait_ms,
        )
    )


def staged_header(topic: int, request_id: int, partition: int, record: int) -> bytes:
    """A FETCH of staged records from this number on."""
    return bytes(
        request_header(
            Opcode.FETCH,
            request_id,
            topic=topic,
            partition=partition,
            sequence=record,
            send=BYTES,
            flags=RequestFlags.STAGED,
        )
    )


FirstId = Callable[[memoryview | bytes, int], int]
"""The first id of a body of so many rows."""


class Staged(NamedTuple):
    """A staged record, which has no offsets of its own. `body`: its rows."""

    record: int
    rows: int
    first: int
    body: bytes


def staged_of(body: bytes, first_of: FirstId = first_id) -> list[Staged]:
    """Of the answer to a FETCH of staged records."""
    found = []
    for packed, start, length in RecordReader(body):
        record = _MAKE(_UNPACK(packed))
        rows = body[start + record.extension_bytes : start + length]
        found.append(Staged(record.record_number, record.rows, first_of(rows, record.rows), rows))
    return found


def records_of(header: AnswerHeader, body: bytes, first_of: FirstId = first_id) -> list[Record]:
    """The rows of a FETCH answer, which must lie below its mark, and what publishes rows."""
    records: list[Record] = []
    view = memoryview(body)
    for packed, start, length in RecordReader(body):
        record = _MAKE(_UNPACK(packed))
        if record.kind not in (RecordKind.ROWS, RecordKind.PUBLISH):
            continue
        if record.first_offset + record.rows > header.end_offset:
            what = f"partition {header.partition}: rows at {record.first_offset}, mark {header.end_offset}"
            raise ViolationError("I14", what)
        rows = view[start : start + length]
        if record.kind == RecordKind.PUBLISH:
            scope, number, _ = HEAD.unpack_from(rows)
            listed = tuple(places(record, rows))
            records.append(
                Published(
                    record.first_offset, record.rows, record.owner_epoch, bytes(rows), scope, number, listed
                )
            )
            continue
        rows = rows[record.extension_bytes :]  # behind a note, if there is one
        first = first_of(rows, record.rows)
        records.append(Stored(record.first_offset, record.rows, first, record.owner_epoch, bytes(rows)))
    return records


def latest_ms(body: bytes) -> int:
    """The latest time of a record in the answer to a FETCH; 0 if there is none."""
    return max((_MAKE(_UNPACK(packed)).time_ms for packed, _, _ in RecordReader(body)), default=0)


class Reader:
    """One fetch of each partition is under way at a time."""

    def __init__(self, world: DataPlane, random: Random) -> None:
        self._world, self._random = world, random
        self._places = dict.fromkeys(world.partitions, (0, 0))  # offset, epoch of the row before
        self._asked: dict[int, int] = {}  # partition by request
        self._wire: Wire | None = None
        self._request = 0
        world.agenda.after(random.randrange(REST_US), self._beat)

    def cut(self) -> None:
        if self._wire is not None:
            self._wire.cut()
            self._wire = None
            self._asked.clear()

    def _beat(self) -> None:
        if self._wire is None and self._world.host.running:
            self._wire = self._world.connect(lambda _: None, self._answered)
        if self._wire is not None:
            for partition in self._world.partitions:
                if partition not in self._asked.values():
                    self._ask(self._wire, partition)
        self._world.agenda.after(REST_US, self._beat)

    def _ask(self, wire_: Wire, partition: int) -> None:
        self._request += 1
        self._asked[self._request] = partition
        offset, epoch = self._places[partition]
        frame = fetch_header(self._world.topic, self._request, partition, offset, epoch, POLL_MS)
        wire_.send(self._request, frame, b"")

    def _answered(self, frame: bytes, body: bytes) -> None:
        header = open_answer(frame)
        partition = self._asked.pop(header.request_id, None)
        if partition is None:
            return
        if header.status == Status.OK:
            records = records_of(header, body)
            for record in records:
                self._world.ledger.read(partition, record)
            if records:
                self._places[partition] = records[-1].offset + records[-1].rows, records[-1].epoch
        elif header.status == Status.REFUSED and header.code == Code.TRUNCATED:
            self._truncated(partition, header)
        if self._random.random() < ANEW:
            self._places[partition] = self._world.ledger.partitions[partition].start, 0

    def _truncated(self, partition: int, header: AnswerHeader) -> None:
        """Rows were given up below the reader; or it holds rows that never were, which must not be."""
        offset, epoch = self._places[partition]
        part = self._world.ledger.partitions[partition]
        if offset > max(part.start, part.lost_below) and header.first_offset <= offset:
            what = f"partition {partition}: the rows below {offset} that were read under {epoch} are gone"
            raise ViolationError("I14", what)
        self._places[partition] = header.first_offset, 0
