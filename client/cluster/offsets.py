"""Resolve the `start` argument of a read to a span of offsets for each partition."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ringfence.common.arguments import NUMBER_MAX, whole
from ringfence.native import wire
from ringfence.native._node import RecordReader
from ringfence.native.errors import (
    ConnectError,
    InvalidArgumentError,
    NotFoundError,
    ProtocolError,
    RerouteError,
    RetriableError,
    RingfenceError,
    TruncatedError,
)
from ringfence.network.request import Request, owner_silent

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import IoThread

# Seconds of one try at an owner; then a newer table is fetched.
TRY_S = 5.0
# Seconds of one try of a count, before other nodes are queried: a failover takes 2 to 3 s.
COUNT_TRY_S = 3.5
# Maximum seconds between two tries while a partition has no owner.
REDIRECT_S_MAX = 1.0
# The largest offset of a row. Epochs are log indexes and stay far below.
OFFSET_MAX = NUMBER_MAX


class Position(NamedTuple):
    """The next row to read. `epoch`: owner epoch of the row before it; 0: no row was read.

    The epoch proves that the log is still the same.
    """

    partition: int
    offset: int
    epoch: int = 0


class LogPoint(NamedTuple):
    """A place between two rows, with the epoch and the time of the row before it.

    Two logs that have the same point at an offset have the same rows below it.
    """

    partition: int
    offset: int
    epoch: int
    time_ms: int


class Ends(NamedTuple):
    """Rows `start` .. `end - 1` of a partition can be read now.

    `epoch` is the owner epoch of the row before `end`; 0: unknown to the node. A later read can begin at
    `Position(partition, end, epoch)`, which proves that the log is still the same.
    """

    partition: int
    start: int
    end: int
    epoch: int = 0

    @property
    def rows(self) -> int:
        return self.end - self.start


class Span(NamedTuple):
    """The rows to read of one partition; `end` None: continue without end."""

    partition: int
    start: int
    epoch: int
    end: int | None
    from_log_start: bool


Start = (
    None
    | Literal["earliest", "latest"]
    | int
    | dt.datetime
    | Mapping[int, int]
    | Mapping[int, Position]
    | Iterable[Position]
)


def partitions_of(layout: Layout, partition: Any) -> list[int]:
    """Ids of the partitions to read: all active ones, or those of the argument `partition`.

    Raises:
        NotFoundError: the topic has no such partition.
    """
    if partition is None:
        return [entry.partition for entry in layout.active]
    ids = _whole_numbers(partition)
    for one in ids:
        if one not in layout.partitions:
            raise NotFoundError(
                "the topic has no such partition",
                topic=layout.name,
                partition=one,
                known=sorted(layout.partitions),
            )
    return ids


def ends(
    io_thread: IoThread, tables: TableCache, layout: Layout, partitions: Iterable[int], deadline: float
) -> list[Ends]:
    """Log start and mark of each partition, requested in parallel."""
    return _ends(_request_all(io_thread, tables, layout, partitions, wire.Opcode.END_OFFSETS, 0, deadline))


def ends_or_silence(
    io_thread: IoThread, tables: TableCache, layout: Layout, partitions: Iterable[int], deadline: float
) -> list[Ends]:
    """Like `ends`, but fails as soon as another node reports that an owner does not respond.

    Raises:
        ConnectError: an owner answers neither the client nor another node.
    """
    answers = _request_all(
        io_thread, tables, layout, partitions, wire.Opcode.END_OFFSETS, 0, deadline, trusts_others=True
    )
    return _ends(answers)


def _ends(answers: Mapping[int, Answer]) -> list[Ends]:
    headers = {one: answer.header for one, answer in answers.items()}
    return [Ends(one, header.first_offset, header.end_offset, header.send) for one, header in headers.items()]


def log_points(
    io_thread: IoThread, tables: TableCache, layout: Layout, offsets: Mapping[int, int], deadline: float
) -> list[LogPoint]:
    """The points of the logs at `offsets`, by partition.

    Raises:
        TruncatedError: the row before an offset is not in the log.
    """
    rows = {partition: offset - 1 for partition, offset in offsets.items()}
    answers = _request_all(io_thread, tables, layout, rows, wire.Opcode.FETCH, rows, deadline)
    points = []
    for partition, answer in answers.items():
        record = _record_with(answer, rows[partition])
        points.append(LogPoint(partition, offsets[partition], record.owner_epoch, record.time_ms))
    return points


def _record_with(answer: Answer, offset: int) -> wire.RecordHeader:
    """The record that has the row `offset`. Raises ProtocolError if the answer to a FETCH lacks it."""
    for packed, _, _ in RecordReader(answer.body):
        header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(packed))
        if header.first_offset <= offset < header.first_offset + header.rows:
            return header
    raise ProtocolError("the node's answer lacks the requested row", offset=offset)


def spans(
    io_thread: IoThread,
    tables: TableCache,
    layout: Layout,
    partitions: list[int],
    start: Start,
    *,
    follow: bool,
    deadline: float,
) -> list[Span]:
    """One span for each partition: from `start` to the current mark, or without end.

    Raises:
        NotFoundError: `start` names a partition that the topic does not have.
        InvalidArgumentError: `start` has an invalid form, and the message lists the valid ones; or `start` is
            after the mark, where no reader can have read a row.
        TruncatedError: `start` is a position, and the log no longer has the row before it.
    """
    marks = ends(io_thread, tables, layout, partitions, deadline)
    positions = _positions(io_thread, tables, layout, marks, start, deadline)
    partitions_of(layout, positions)  # unknown partitions mean another topic: all rows would be read again
    for mark in marks:
        _check_in_log(layout, mark, positions.get(mark.partition))
    return [
        Span(
            mark.partition,
            start=positions[mark.partition].offset if mark.partition in positions else mark.start,
            epoch=positions[mark.partition].epoch if mark.partition in positions else 0,
            end=None if follow else mark.end,
            from_log_start=mark.partition not in positions,
        )
        for mark in marks
    ]


def _positions(
    io_thread: IoThread, tables: TableCache, layout: Layout, marks: list[Ends], start: Any, deadline: float
) -> dict[int, Position]:
    """The positions to begin at; partitions without one begin at the log start."""
    if start is None or start == "earliest":
        return {}
    if start == "latest":
        return {mark.partition: Position(mark.partition, mark.end, mark.epoch) for mark in marks}
    if isinstance(start, dt.datetime):
        return offsets_at(io_thread, tables, layout, [mark.partition for mark in marks], start, deadline)
    if _is_whole(start):
        if len(marks) != 1:
            raise InvalidArgumentError(
                "an offset belongs to one partition; pass partition=, or {partition: offset}", start=start
            )
        return {marks[0].partition: _position(marks[0].partition, start)}
    if isinstance(start, Mapping):
        positions = [
            _position(*value) if isinstance(value, Position) else _position(partition, value)
            for partition, value in start.items()
        ]
        return {position.partition: position for position in positions}
    if not isinstance(start, str) and isinstance(start, Iterable):
        try:
            return {position.partition: position for position in (_position(*one) for one in start)}
        except TypeError as error:
            raise InvalidArgumentError(
                "a position must be (partition, offset, epoch)", start=repr(start)
            ) from error
    raise InvalidArgumentError(
        'start must be None, "earliest", "latest", an offset, a datetime, {partition: offset} or positions',
        start=repr(start),
    )


def _position(partition: object, offset: object, epoch: object = 0) -> Position:
    """Raises InvalidArgumentError for values that no header can hold."""
    number = whole("start: a partition", partition, 0)
    return Position(number, _whole_of(number, "offset", offset), _whole_of(number, "epoch", epoch))


def _whole_of(partition: int, name: str, value: object) -> int:
    """Like `whole`, with the partition in the error."""
    try:
        return whole(f"start: the {name}", value, 0)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.message, partition=partition, given=repr(value)) from None


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _whole_numbers(value: object) -> list[int]:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [whole("partition", one, 0) for one in value]
    return [whole("partition", value, 0)]


def _check_in_log(layout: Layout, mark: Ends, position: Position | None) -> None:
    """Refuse a position after the end of the log: it belongs to another log, and waiting would skip rows.

    Raises:
        InvalidArgumentError: the position has no epoch.
        TruncatedError: the position has an epoch (its row was read once), and the log does not have the row.
    """
    if position is None or position.offset < mark.end:
        return  # the first FETCH compares the epoch
    if position.offset > mark.end and not position.epoch:
        raise InvalidArgumentError(
            f'start: the log ends at {mark.end}; begin at most there ("latest")',
            topic=layout.name,
            partition=mark.partition,
            offset=position.offset,
        )
    if position.offset == mark.end and (not position.epoch or mark.epoch in {0, position.epoch}):
        return
    why = (
        f"is of epoch {mark.epoch}"
        if position.offset == mark.end
        else f"does not exist: it ends at {mark.end}"
    )
    raise TruncatedError(
        f"the log has another history now: the row before {position.offset}, which was of epoch "
        f"{position.epoch}, {why}; continue at the log start, or at another offset",
        topic=layout.name,
        partition=mark.partition,
        offset=position.offset,
        epoch=position.epoch,
        start_offset=mark.start,
    )


def offsets_at(
    io_thread: IoThread,
    tables: TableCache,
    layout: Layout,
    partitions: Iterable[int],
    start: Any,
    deadline: float,
) -> dict[int, Position]:
    """The first batch at or after a time, in each partition; the mark if there is none.

    Raises:
        InvalidArgumentError: the time has no zone.
    """
    if not isinstance(start, dt.datetime) or start.tzinfo is None:
        raise InvalidArgumentError(
            "a start time must be a datetime with a time zone, for example datetime.now(timezone.utc)",
            start=repr(start),
        )
    time_ms = min(max(0, int(start.timestamp() * 1000)), NUMBER_MAX)
    answers = _request_all(
        io_thread, tables, layout, partitions, wire.Opcode.OFFSET_FOR_TIME, time_ms, deadline
    )
    return {
        one: Position(one, answer.header.first_offset, answer.header.send) for one, answer in answers.items()
    }


def redirect_delay_s(redirects: int, error: RingfenceError) -> float:
    """Pause after redirects in a row: a planned change of owner takes milliseconds, a failover seconds."""
    return float(min(REDIRECT_S_MAX, max(0.01 * 2**redirects, error.details.get("retry_after_s", 0.0))))


def _request_all(
    io_thread: IoThread,
    tables: TableCache,
    layout: Layout,
    partitions: Iterable[int],
    opcode: wire.Opcode,
    sequence: int | Mapping[int, int],
    deadline: float,
    *,
    trusts_others: bool = False,
) -> dict[int, Answer]:
    """Request all partitions in parallel, and follow changes of owners until the deadline.

    `trusts_others`: fail earlier if another node reports that an owner does not respond.
    """
    ids = list(partitions)
    answers: dict[int, Answer] = {}
    last: RerouteError | RetriableError | None
    left, redirects = ids, 0
    try_s = COUNT_TRY_S if trusts_others else TRY_S
    while left:
        requests = []
        for one in left:
            number = sequence if isinstance(sequence, int) else sequence[one]
            requests.append((one, _request(io_thread, layout, one, opcode, number, deadline, try_s)))
        left, last = [], None
        for one, future in requests:
            try:
                answers[one] = future.result()
            except (RerouteError, RetriableError) as error:
                left.append(one)
                last = error
        if last is not None:
            redirects += 1
            if trusts_others and isinstance(last, ConnectError):
                _check_owners(tables, layout, left, deadline, tries=redirects)
            delay_s = redirect_delay_s(redirects, last)
            if time.monotonic() + delay_s >= deadline:
                raise last
            time.sleep(delay_s)
            layout = tables.get_by_id(layout.topic, deadline, layout.name)
    return {one: answers[one] for one in ids}


def _check_owners(
    tables: TableCache, layout: Layout, left: list[int], deadline: float, *, tries: int
) -> None:
    """Raises ConnectError if another node has no statistics of a partition from the same owner."""
    try:
        info = tables.described(layout.name, min(deadline, time.monotonic() + TRY_S))
    except RingfenceError:
        return  # no node answers: the owner is tried again
    if info.topic != layout.topic or (info.replication > 1 and tries == 1):
        return  # another replica may take over soon
    for part in info.partitions:
        entry = layout.partitions.get(part.partition)
        if part.partition in left and part.unknown and entry is not None and part.owner == entry.owner:
            raise owner_silent(layout, part.partition, part.unknown)


def _request(
    io_thread: IoThread,
    layout: Layout,
    partition: int,
    opcode: wire.Opcode,
    sequence: int,
    deadline: float,
    try_s: float,
) -> Future[Answer]:
    rows = 1 if opcode == wire.Opcode.FETCH else 0
    request = Request(
        opcode,
        b"",
        min(deadline, time.monotonic() + try_s),
        topic=layout.name,
        fields={"topic": layout.topic, "partition": partition, "sequence": sequence, "rows": rows},
    )
    return io_thread.request_owner(request, layout, partition)
