"""START HERE: `connect` gives a Client, which gives producers, readers and topics.

One background I/O thread serves all of them.
"""

from __future__ import annotations

import os
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal, Self

from ringfence.admin import TIMEOUT_S, Admin
from ringfence.arrow.decode import Decoder
from ringfence.client_admin import ClientAdmin
from ringfence.cluster.offsets import (
    Ends,
    LogPoint,
    PartitionRequests,
    Position,
    ends_of,
    has_ended,
    log_points,
    positions_in,
    time_ms_of,
)
from ringfence.cluster.read_plan import Start, partitions_of, plan
from ringfence.cluster.table_cache import TableCache
from ringfence.cluster.watches import Watches
from ringfence.common.address import addresses
from ringfence.common.arguments import seconds, whole
from ringfence.common.options import BATCH_BYTES, BYTES_IN_FLIGHT_MAX, Options
from ringfence.common.options import TIMEOUT_S as SEND_TIMEOUT_S
from ringfence.common.process_local import ProcessLocal
from ringfence.common.send_effects import Identity
from ringfence.common.token import Token, token_of
from ringfence.consumer.consumer import Consumer
from ringfence.consumer.door import ConsumerCalls
from ringfence.consumer.exporter import Exporter
from ringfence.consumer.write_right import check_may_write
from ringfence.consuming_transaction import consuming_transaction
from ringfence.native import wire
from ringfence.native.errors import InvalidArgumentError, RingfenceError
from ringfence.network.failover import OverdueRead, overdue_read
from ringfence.network.io_thread import IoThread
from ringfence.producer import Producer
from ringfence.reader import PREFETCH_BYTES, Reader
from ringfence.scopes import MovedCommits, Scopes
from ringfence.send.resume import Rule
from ringfence.topic_calls import TopicCalls
from ringfence.transaction import Transaction

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from ringfence.common.options import OnFull
    from ringfence.common.routing import Layout


def connect(
    address: str | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
) -> Client:
    """Create a client of the node at an address. The first call connects.

    Args:
        address: `tcp://HOST[:PORT]` or `ipc://PATH`, several separated by commas; default: the environment
            variable RINGFENCE_ADDRESS, else tcp://127.0.0.1:7411.
        timeout_s: seconds until a call must have its answer, connecting and retries included.
        token: of a cluster with access control; default: the environment variable RINGFENCE_TOKEN.
        token_file: a file with the token, read at each connection, so that it may be replaced at any time.

    Raises:
        ConfigError: the address or the token has an invalid form.
    """
    return Client(
        addresses(address, os.environ), timeout_s=timeout_s, token=token_of(token, token_file, os.environ)
    )


class Client(TopicCalls, ConsumerCalls, ProcessLocal):
    """Thread-safe. Every method waits at most `timeout_s`; ConnectError means that no node answered.

    In a forked child the first call connects again; producers and readers of the parent raise ForkedError
    there.
    """

    def __init__(self, addresses: tuple[str, ...], *, timeout_s: float, token: Token | None = None) -> None:
        self.addresses = addresses
        self._timeout_s, self._token = seconds("timeout_s", timeout_s), token or Token()
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._io_thread_of_process = io_thread = IoThread(self.addresses, token=self._token)
        self._tables = TableCache(io_thread)
        self._moved: MovedCommits = {}
        self._watches = Watches(io_thread, self._tables)
        # A client without any references, also from its producers and readers, is closed.
        weakref.finalize(self, io_thread.drop).atexit = False

    @property
    def _io_thread(self) -> IoThread:
        if os.getpid() != self._process:  # a forked child gets its own thread, sockets and tables
            self._producers, self._consumers = weakref.WeakSet(), weakref.WeakSet()
            self._begin()
        return self._io_thread_of_process

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<ringfence.Client {','.join(self.addresses)}{state}>"

    @property
    def _admin(self) -> Admin:
        return Admin(self._io_thread, self._timeout_s)

    @property
    def unreached(self) -> str | None:
        """Why no node answers; "" while unknown, None once a node answers or the client is closed."""
        first = self._io_thread.first
        return None if self._closed or first.up is not None else first.found

    @property
    def overdue_read(self) -> OverdueRead | None:
        """The read that waits longest for an owner, after some seconds; None: there is none.

        Raises:
            ClosedError: the client is closed.
        """
        io_thread, future = self._io_thread, Future[OverdueRead | None]()
        io_thread.check_outside("overdue_read")

        def look() -> None:
            try:
                future.set_result(overdue_read(io_thread))
            except Exception as error:  # noqa: BLE001  # raised in the thread that waits
                future.set_exception(error)

        io_thread.call(look)
        return future.result()

    def close(self) -> None:
        """Close the consumers, the producers (see `Producer.close`) and the connections.

        Raises:
            RingfenceError: a send of an open producer was not stored; the first such error.
        """
        if self._closed or os.getpid() != self._process:
            self._closed = True
            return
        self._io_thread.check_outside("close")
        self._closed = True
        for consumer in list(self._consumers):
            consumer.close()
        failures: list[RingfenceError] = []
        for producer in list(self._producers):
            try:
                producer.close()
            except RingfenceError as error:
                failures.append(error)
        self._io_thread.close()
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except RingfenceError as failure:  # the error of the block continues, with a note on this one
            error.add_note(f"ringfence: while the client was closed: {type(failure).__name__}: {failure}")

    @property
    def admin(self) -> ClientAdmin:
        """Changes of layouts: split, merge, repartition, automatic changes. Cohorts, and parked rows."""
        return ClientAdmin(self, self._admin)

    # ---- writing ------------------------------------------------------------------------------------

    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        on_full: OnFull = "block",
        timeout_s: float = SEND_TIMEOUT_S,
        linger_ms: float = 0.0,
        batch_bytes: int = BATCH_BYTES,
        bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX,
        accept_fresh_start: bool = False,
        spread: bool = False,
    ) -> Producer:
        """A producer of one topic.

        Args:
            topic: its name.
            name: of a *named* producer: opening it fences its predecessor in all partitions and returns the
                resume point.
            on_full: `send` waits ("block") or raises OverloadedError ("raise") at `bytes_in_flight_max`.
            timeout_s: seconds until each send must have an outcome, retries included.
            linger_ms: time that small sends wait to be combined; 0 sends immediately.
            batch_bytes: size at which combined sends are sent without further waiting.
            bytes_in_flight_max: limit for the encoded rows of pending sends, in bytes.
            accept_fresh_start: open a name even if partitions forgot it. They have no resume point then, so
                rows that were sent before are stored again if they are sent again.
            spread: of a name in a topic without a key: the number of a send chooses its partition, so the
                name uses all partitions, and every send needs `number=`. Else all sends of a name are in one
                partition, in order. The first open of a name decides. The cluster needs level 2.

        Raises:
            NotFoundError: no such topic. InvalidArgumentError: an option is outside its range.
            ResumeUnknownError: partitions forgot this name, for example after `producer_expiry_ms` without
                a send. Nothing is sent. Check which rows are stored, then pass `accept_fresh_start=True`.
        """
        options = Options(on_full, timeout_s, linger_ms, batch_bytes, bytes_in_flight_max).check()
        io_thread = self._io_thread
        if accept_fresh_start and name is None:
            raise InvalidArgumentError("accept_fresh_start needs a named producer: pass `name` as well")
        if spread and (name is None or linger_ms):
            raise InvalidArgumentError(
                "spread needs a named producer without linger_ms: sends of one number each cannot be combined"
            )
        opened = self._admin.open_producer(topic, name, accept_fresh_start=accept_fresh_start, spread=spread)
        layout = self._tables.get(topic, self._deadline)
        producer = Producer(
            io_thread,
            self._tables,
            layout,
            Identity(opened.producer_id, opened.producer_epoch),
            name=name,
            resume=opened.resume,
            rule=Rule(opened.rule) if isinstance(opened.rule, int) else Rule.NONE,
            options=options,
            client=self,
        )
        self._producers.add(producer)
        return producer

    @property
    def scopes(self) -> Scopes:
        """Atomic writes by several tasks, for distributed jobs."""
        return Scopes(self._io_thread, self._tables, self._admin, self._moved, client=self)

    def transaction(
        self,
        topic: str | None = None,
        *,
        scope: str | None = None,
        epoch: int | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
        bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX,
        consumed: Consumer | None = None,
    ) -> Transaction:
        """Write rows atomically: all of them or none; use it in a `with` block.

        Args:
            topic: the default topic of `send`, and the topic that the scope belongs to.
            scope: a name for the writer, 1 to 234 bytes; earlier writers with this name and topic are fenced.
                Without `topic` the scope belongs to the cluster.
            epoch: from 1; a committed epoch is not written again. Default: one after the last.
            timeout_s: seconds until each batch must be staged, retries included.
            bytes_in_flight_max: limit for encoded rows that are not on disk yet, in bytes.
            consumed: a consumer with `ack="manual"` of a STREAM cohort: what it gave is settled together with
                the rows, or comes again. Instead of `scope` and `epoch`, which it draws itself.
        """
        if consumed is not None:
            return consuming_transaction(
                self.scopes,
                consumed,
                topic=topic,
                given={"scope": scope, "epoch": epoch},
                timeout_s=timeout_s,
                bytes_in_flight_max=bytes_in_flight_max,
            )
        if scope is None:
            raise InvalidArgumentError("scope= is missing: a name for the writer, or consumed= a consumer")
        return Transaction(
            self.scopes,
            topic=topic,
            scope=scope,
            epoch=epoch,
            timeout_s=timeout_s,
            bytes_in_flight_max=bytes_in_flight_max,
        )

    # ---- reading ------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        *,
        partition: int | Iterable[int] | None = None,
        start: Start = None,
        follow: bool = False,
        columns: str | Sequence[str] | None = None,
        batch_rows: int | None = None,
        prefetch_bytes: int = PREFETCH_BYTES,
        timeout_s: float | None = None,
        on_truncated: Literal["raise", "skip"] = "raise",
    ) -> Reader:
        """Iterate the rows of a topic as pyarrow record batches.

        Args:
            topic: its name.
            partition: one id or several; default: all partitions in turn, each after those that it was split
                or merged from. Rows are ordered within a partition.
            start: None or "earliest": the log start; "latest": the mark; an offset (of one partition); a
                datetime with time zone: the first batch at or after it; {partition: offset}; or positions of
                an earlier reader.
            follow: continue with new rows without end; default: end at the mark of this call.
            columns: only these, in this order; a str is one name.
            batch_rows: maximum rows of a batch; default: batches as they were sent.
            prefetch_bytes: memory limit for rows that are fetched ahead.
            timeout_s: seconds for one fetch, retries included; default: that of the client.
            on_truncated: "raise" TruncatedError for rows that were removed before they were read, or "skip"
                them. Rows of another history of the log are an error in any case.

        Raises:
            NotFoundError: no such topic or partition. InvalidArgumentError: an argument is outside its range.
            ConnectError: the owner of a partition does not respond; `partition`, and `node` and `addresses`
            in `details`, name it. Other partitions can be read with `partition`.
        """
        batch_rows = None if batch_rows is None else whole("batch_rows", batch_rows, 1)
        prefetch_bytes = whole("prefetch_bytes", prefetch_bytes, 0)
        timeout_s = self._timeout_s if timeout_s is None else seconds("timeout_s", timeout_s)
        layout = self._tables.get(topic, self._deadline)
        decoder = Decoder(layout.name, layout.schemas, columns)
        requests = self._requests()
        return Reader(
            requests.io_thread,
            requests.tables,
            plan(requests, layout, partition, start, follow=follow, on_truncated=on_truncated),
            decoder,
            follow=follow,
            batch_rows=batch_rows,
            prefetch_bytes=prefetch_bytes,
            timeout_s=timeout_s,
            on_truncated=on_truncated,
            client=self,
        )

    def end_offsets(self, topic: str, *, partition: int | Iterable[int] | None = None) -> dict[int, Ends]:
        """Log start and mark of each partition, by partition id.

        Raises:
            ConnectError: the owner of a partition does not respond; `partition`, and `node` and `addresses`
            in `details`, name it. It is raised within seconds if another node reports the same.
        """
        return self.layout_and_ends(topic, partition=partition)[1]

    def layout_and_ends(
        self, topic: str, *, partition: int | Iterable[int] | None = None, version: int = 0
    ) -> tuple[Layout, dict[int, Ends]]:
        """The layout of a topic, at least in this version, and the ends of its partitions."""
        layout = self._tables.get(topic, self._deadline)
        requests = self._requests(trusts_others=True)
        if layout.version < version:
            layout = requests.newer(layout, f"version {version} of the layout was read before", version)
        chosen = None if partition is None else partitions_of(layout, partition)
        layout, answers = requests.settled(
            layout,
            wire.Opcode.END_OFFSETS,
            0,
            lambda table: partitions_of(table, None) if chosen is None else chosen,
            follows_table=chosen is None,
        )
        return layout, ends_of(answers)

    def log_points(self, topic: str, offsets: Mapping[int, int]) -> list[LogPoint]:
        """Epoch and time of the row before each offset, by partition.

        Stored with an offset, they prove later that the log is still the same. Each offset must be above the
        log start and at most the mark. Raises TruncatedError otherwise.
        """
        layout = self._tables.get(topic, self._deadline)
        partitions_of(layout, offsets)
        return log_points(self._requests(), layout, offsets)

    def offsets_at(self, topic: str, time: dt.datetime) -> dict[int, int]:
        """By partition: first offset of a batch at or after a time with zone; the mark if there is none."""
        return {partition: position.offset for partition, (position, _) in self._at(topic, time).items()}

    def positions_at(self, topic: str, time: dt.datetime) -> list[Position]:
        """Like `offsets_at`, with the epoch by which a later `read` recognizes the log.

        Partitions that were split or merged before that time are left out: a read from the positions begins
        after them.
        """
        return [position for position, is_finished in self._at(topic, time).values() if not is_finished]

    def _at(self, topic: str, time: dt.datetime) -> dict[int, tuple[Position, bool]]:
        """Positions at a time, and whether each is the end of a sealed partition."""
        layout = self._tables.get(topic, self._deadline)
        _, answers = self._requests().settled(
            layout, wire.Opcode.OFFSET_FOR_TIME, time_ms_of(time), lambda table: partitions_of(table, None)
        )
        headers = {partition: answer.header for partition, answer in answers.items()}
        return {
            partition: (
                position,
                has_ended(headers[partition]) and position.offset >= headers[partition].end_offset,
            )
            for partition, position in positions_in(answers.items()).items()
        }

    def _exporter(self, topic: str, cohort: str, to: str) -> Exporter:
        exporter = Exporter(self, self._admin, topic, cohort, to, timeout_s=SEND_TIMEOUT_S)
        check_may_write(self._io_thread, self._tables.get(to, self._deadline), self._deadline)
        return exporter

    def _requests(self, *, trusts_others: bool = False) -> PartitionRequests:
        return PartitionRequests(self._io_thread, self._tables, self._deadline, trusts_others)

    def count(self, topic: str, *, partition: int | Iterable[int] | None = None) -> int:
        """Number of rows that can be read now. Raises ConnectError like `end_offsets`."""
        return sum(ends.rows for ends in self.end_offsets(topic, partition=partition).values())

    @property
    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_s
