"""Request offsets from the owners of partitions: log start and mark, offsets of a time, points of a log."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ringfence.common.arguments import NUMBER_MAX
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
)
from ringfence.network.request import Request, owner_silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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
# Tables that are fetched for positions in partitions that the first table does not have.
FUTURE_TRIES = 4
# Layout changes of a topic that one request of all its partitions follows: each takes longer than a request.
LAYOUTS_MAX = 8
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
    `Position(partition, end, epoch)`, which proves that the log is still the same. `ended`: the partition was
    split or merged, so no row comes after these.
    """

    partition: int
    start: int
    end: int
    epoch: int = 0
    ended: bool = False

    @property
    def rows(self) -> int:
        return self.end - self.start


def ends_of(answers: Mapping[int, Answer]) -> dict[int, Ends]:
    """Log start and mark of each partition, from answers to END_OFFSETS."""
    headers = {one: answer.header for one, answer in answers.items()}
    return {
        one: Ends(one, header.first_offset, header.end_offset, header.send, has_ended(header))
        for one, header in headers.items()
    }


def has_ended(header: wire.AnswerHeader) -> bool:
    """Whether the owner says that the partition is sealed, and that no row comes after this answer."""
    return bool(header.flags & wire.AnswerFlags.ENDED)


class PartitionRequests(NamedTuple):
    """Requests to the owners of partitions, which follow changes of owners until the deadline.

    `trusts_others`: fail as soon as another node reports that an owner does not respond (ConnectError).
    """

    io_thread: IoThread
    tables: TableCache
    deadline: float
    trusts_others: bool = False

    def newer(self, layout: Layout, reason: str, version: int = 0) -> Layout:
        """A table with a newer version than `layout`, at least `version`. Nodes may lag.

        Raises:
            RerouteError: no node has one before the deadline; `reason` says why it must exist.
        """
        tries, wanted = 0, max(version, layout.version + 1)
        while True:
            newest = self.tables.get_by_id(layout.topic, self.deadline, layout.name, wanted)
            if newest.version >= wanted:
                return newest
            tries += 1
            error = RerouteError(
                f"{reason}, and the newest routing table has version {newest.version}",
                reason=wire.RedirectReason.SEALED,
                topic=layout.name,
                version=wanted,
            )
            delay_s = redirect_delay_s(tries, error)
            if time.monotonic() + delay_s >= self.deadline:
                raise error
            time.sleep(delay_s)

    def with_partitions(self, layout: Layout, partitions: Iterable[int]) -> Layout:
        """`layout`, or a newer table: a node that lags does not have the newest partitions yet."""
        newest = max(partitions, default=0)
        for tries in range(FUTURE_TRIES):
            if newest <= max(layout.partitions):
                break
            time.sleep(0.05 * tries)
            layout = self.tables.get_by_id(layout.topic, self.deadline, layout.name)
        return layout

    def settled(
        self,
        layout: Layout,
        opcode: wire.Opcode,
        sequence: int,
        partitions: Callable[[Layout], Iterable[int]],
        *,
        follows_table: bool = True,
    ) -> tuple[Layout, dict[int, Answer]]:
        """Answers of all partitions of one table, which is returned, too.

        A partition that has ended while the table has it as ACTIVE has children with rows that the table does
        not know. So a newer table is fetched, and its partitions are requested as well.
        """
        answers: dict[int, Answer] = {}
        for _ in range(LAYOUTS_MAX):
            wanted = list(partitions(layout))
            missing = [one for one in wanted if one not in answers]
            try:
                answers |= self.all(layout, missing, opcode, sequence)
            except NotFoundError as error:
                if error.code != wire.Code.UNKNOWN_PARTITION or not follows_table:
                    raise
                before = layout
                layout = self.tables.get_by_id(layout.topic, self.deadline, layout.name)
                if before.generation == layout.generation:
                    raise
                continue  # it was pruned meanwhile
            ended = [one for one in wanted if has_ended(answers[one].header) and layout.entry(one)]
            if not ended or not follows_table:
                return layout, {one: answers[one] for one in wanted}
            version = max(answers[one].header.layout_version for one in ended)
            layout = self.newer(layout, f"partition {ended[0]} was sealed", version)
        raise RerouteError(
            f"the layout changed {LAYOUTS_MAX} times while all partitions were requested; try again",
            topic=layout.name,
            version=layout.version,
        )

    def all(
        self,
        layout: Layout,
        partitions: Iterable[int],
        opcode: wire.Opcode,
        sequence: int | Mapping[int, int],
    ) -> dict[int, Answer]:
        """Answers of the partitions, requested in parallel."""
        ids = list(partitions)
        answers: dict[int, Answer] = {}
        last: RerouteError | RetriableError | None
        left, redirects = ids, 0
        while left:
            requests = []
            for one in left:
                number = sequence if isinstance(sequence, int) else sequence[one]
                requests.append((one, self._request(layout, one, opcode, number)))
            left, last = [], None
            for one, future in requests:
                try:
                    answers[one] = future.result()
                except (RerouteError, RetriableError) as error:
                    left.append(one)
                    last = error
            if last is not None:
                redirects += 1
                if self.trusts_others and isinstance(last, ConnectError):
                    self._check_owners(layout, left, tries=redirects)
                delay_s = redirect_delay_s(redirects, last)
                if time.monotonic() + delay_s >= self.deadline:
                    raise last
                time.sleep(delay_s)
                layout = self.tables.get_by_id(layout.topic, self.deadline, layout.name)
        return {one: answers[one] for one in ids}

    def _check_owners(self, layout: Layout, left: list[int], *, tries: int) -> None:
        """Raises ConnectError if another node has no statistics of a partition from the same owner."""
        try:
            info = self.tables.described(layout.name, min(self.deadline, time.monotonic() + TRY_S))
        except RingfenceError:
            return  # no node answers: the owner is tried again
        if info.topic != layout.topic or (info.replication > 1 and tries == 1):
            return  # another replica may take over soon
        for part in info.partitions:
            entry = layout.partitions.get(part.partition)
            if part.partition in left and part.unknown and entry is not None and part.owner == entry.owner:
                raise owner_silent(layout, part.partition, part.unknown)

    def _request(self, layout: Layout, partition: int, opcode: wire.Opcode, sequence: int) -> Future[Answer]:
        rows = 1 if opcode == wire.Opcode.FETCH else 0
        request = Request(
            opcode,
            b"",
            min(self.deadline, time.monotonic() + (COUNT_TRY_S if self.trusts_others else TRY_S)),
            topic=layout.name,
            fields={"topic": layout.topic, "partition": partition, "sequence": sequence, "rows": rows},
            held=layout.generation,
        )
        return self.io_thread.request_owner(request, layout, partition)


def log_points(requests: PartitionRequests, layout: Layout, offsets: Mapping[int, int]) -> list[LogPoint]:
    """The points of the logs at `offsets`, by partition.

    Raises:
        TruncatedError: the row before an offset is not in the log.
    """
    rows = {partition: offset - 1 for partition, offset in offsets.items()}
    answers = requests.all(layout, rows, wire.Opcode.FETCH, rows)
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


def offsets_at(
    requests: PartitionRequests, layout: Layout, partitions: Iterable[int], start: Any
) -> dict[int, Position]:
    """The first batch at or after a time, in each partition; the mark if there is none.

    Raises:
        InvalidArgumentError: the time has no zone.
    """
    return positions_in(
        requests.all(layout, partitions, wire.Opcode.OFFSET_FOR_TIME, time_ms_of(start)).items()
    )


def positions_in(answers: Iterable[tuple[int, Answer]]) -> dict[int, Position]:
    """The positions in answers to OFFSET_FOR_TIME."""
    return {one: Position(one, answer.header.first_offset, answer.header.send) for one, answer in answers}


def time_ms_of(start: Any) -> int:
    """Milliseconds since 1970. Raises InvalidArgumentError for a time without a zone."""
    if not isinstance(start, dt.datetime) or start.tzinfo is None:
        raise InvalidArgumentError(
            "a start time must be a datetime with a time zone, for example datetime.now(timezone.utc)",
            start=repr(start),
        )
    return min(max(0, int(start.timestamp() * 1000)), NUMBER_MAX)


def redirect_delay_s(redirects: int, error: RingfenceError) -> float:
    """Pause after redirects in a row: a planned change of owner takes milliseconds, a failover seconds."""
    return float(min(REDIRECT_S_MAX, max(0.01 * 2**redirects, error.details.get("retry_after_s", 0.0))))
