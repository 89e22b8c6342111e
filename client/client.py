"""START HERE: `connect` gives a Client; a Client gives producers, readers and topics.

One background thread does it all.
"""

from __future__ import annotations

import os
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self

from ringfence.admin import TIMEOUT_S, Admin
from ringfence.arrow.decode import Decoder
from ringfence.cluster.offsets import (
    Ends,
    LogPoint,
    Position,
    Start,
    chosen,
    ends_or_silence,
    log_points,
    offsets_at,
    spans,
)
from ringfence.cluster.table_cache import Tables
from ringfence.common.address import addresses
from ringfence.common.arguments import seconds, whole
from ringfence.common.options import BATCH_BYTES, BYTES_IN_FLIGHT_MAX, Options
from ringfence.common.options import TIMEOUT_S as SEND_TIMEOUT_S
from ringfence.common.process_local import Local
from ringfence.common.send_effects import Identity
from ringfence.common.token import Token, token_of
from ringfence.native.errors import InvalidArgumentError, RingfenceError
from ringfence.network.failover import Unanswered, unanswered
from ringfence.network.io_thread import Link
from ringfence.producer import Producer
from ringfence.reader import PREFETCH_BYTES, Reader
from ringfence.scopes import Scopes
from ringfence.transaction import Transaction

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from ringfence.common.options import OnFull
    from ringfence.common.routing import Layout
    from ringfence.native.messages import Status, TopicInfo


def connect(
    address: str | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
) -> Client:
    """A client of the node at an address. Nothing is sent yet; the first call connects.

    Args:
        address: `tcp://HOST[:PORT]` or `ipc://PATH`, several separated by commas; default: the environment
            variable RINGFENCE_ADDRESS, else tcp://127.0.0.1:7411.
        timeout_s: seconds that a call waits for its answer, connecting and retries included.
        token: where the cluster asks for one; default: the environment variable RINGFENCE_TOKEN.
        token_file: a file with it, read at each connection, so that it may be replaced while this runs.

    Raises:
        ConfigError: the address has another form, or the token cannot be one.
    """
    return Client(
        addresses(address, os.environ), timeout_s=timeout_s, token=token_of(token, token_file, os.environ)
    )


class Client(Local):
    """Thread-safe. Every method waits at most `timeout_s`; ConnectError says that nobody answered.

    After a fork the child's first call connects anew; producers and readers of the parent raise ForkedError
    there.
    """

    def __init__(self, addresses: tuple[str, ...], *, timeout_s: float, token: Token | None = None) -> None:
        self.addresses = addresses
        self._timeout_s, self._token = seconds("timeout_s", timeout_s), token or Token()
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._link_of_process = link = Link(self.addresses, token=self._token)
        self._tables = Tables(link)
        # A client that nothing refers to any more, nor what it gave, ends as a closed one does.
        weakref.finalize(self, link.drop).atexit = False

    @property
    def _link(self) -> Link:
        if os.getpid() != self._process:  # a forked child: its own thread, sockets and tables
            self._producers = weakref.WeakSet()
            self._begin()
        return self._link_of_process

    @property
    def _admin(self) -> Admin:
        return Admin(self._link, self._timeout_s)

    @property
    def unreached(self) -> str | None:
        """Why no node answers at `addresses`, "" while not known; None once one does, or when closed."""
        first = self._link.first
        return None if self._closed or first.up is not None else first.found

    @property
    def unanswered(self) -> Unanswered | None:
        """The read that has waited for its partition's owner for seconds; None: there is none.

        Raises:
            ClosedError: the client is closed.
        """
        link, found = self._link, Future[Unanswered | None]()
        link.check_outside("unanswered")

        def look() -> None:
            try:
                found.set_result(unanswered(link))
            except Exception as error:  # noqa: BLE001  # it is raised where it is waited for
                found.set_exception(error)

        link.call(look)
        return found.result()

    def close(self) -> None:
        """Close the producers (see `Producer.close`) and the connections.

        Raises:
            RingfenceError: a send of a producer that was still open was not stored; the first such error.
        """
        if self._closed or os.getpid() != self._process:
            self._closed = True
            return
        self._link.check_outside("close")
        self._closed = True
        failures: list[RingfenceError] = []
        for producer in list(self._producers):
            try:
                producer.close()
            except RingfenceError as error:
                failures.append(error)
        self._link.close()
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
        except RingfenceError as failure:  # the body's own error goes on, and does not hide this one
            error.add_note(f"ringfence: while the client was closed: {type(failure).__name__}: {failure}")

    # ---- topics
    # ---------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        schema: Any,
        key: str | Sequence[str] = (),
        partitions: int = 1,
        replication: int = 1,
        retention_bytes: int | None = None,
        retention_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Create a topic.

        Args:
            name: `tenant/namespace/name`; a plain name means `public/default/name`.
            schema: a pyarrow Schema, or anything with `__arrow_c_schema__`.
            key: columns whose values say which partition a row belongs to, a str is one; none: whole batches
                go to any partition.
            partitions: 1 .. 4096.
            replication: copies on different nodes: 1, 3 or 5.
            retention_bytes: of each partition; None keeps all.
            retention_ms: age of the oldest rows; None keeps all.
            properties: of the application. With `{"ringfence.retention": "compacted"}` retention waits for
                `ringfence.compact`, which gives rows up once a file has them.
            exist_ok: an equal topic that exists is returned (`created` is False); one that differs is
                refused.

        Raises:
            AlreadyExistsError: the name is taken. InvalidArgumentError, SchemaError: what the message names.
        """
        return self._admin.create_topic(
            name,
            schema=schema,
            key=key,
            partitions=partitions,
            replication=replication,
            retention_bytes=retention_bytes,
            retention_ms=retention_ms,
            properties=properties,
            exist_ok=exist_ok,
        )

    def topics(self, prefix: str = "") -> list[TopicInfo]:
        """All topics whose full name begins with `prefix`, sorted by name; figures as in `topic`."""
        return self._admin.topics(prefix)

    def topic(self, name: str) -> TopicInfo:
        """One topic with its partitions. Raises NotFoundError.

        A partition whose owner does not answer has no figures: its `unknown` says why, its offsets and bytes
        are 0. `count` raises there.
        """
        return self._admin.topic(name)

    def truncate(self, name: str, *, partition: int | None = None, before_offset: int | None = None) -> None:
        """Give up rows for good.

        Args:
            name: of the topic.
            partition: only this one; None: each.
            before_offset: rows below it; None: all that can be read now.

        Raises:
            UnknownOutcomeError: it is decided, but an owner has not carried it out yet (and will), or no
            answer came. With `before_offset` it can be asked for again; without, that would take newer rows.
        """
        self._admin.truncate(
            name,
            None if partition is None else whole("partition", partition, 0),
            None if before_offset is None else whole("before_offset", before_offset, 0),
        )

    def delete_topic(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic and its rows. Raises NotFoundError unless `missing_ok`."""
        self._admin.delete(name, missing_ok=missing_ok)

    def layout(self, topic: str) -> Layout:
        """Partitions, owners and schemas of a topic, as producers use them. Raises NotFoundError."""
        return self._tables.get(topic, self._deadline)

    def add_schema(self, name: str, schema: Any) -> int:
        """Append a schema with further nullable columns at its end; returns its id.

        Older rows read null there.
        """
        return self._admin.add_schema(name, schema)

    def status(self) -> Status:
        """What the node is, and how it fares."""
        return self._admin.status()

    # ---- rows in
    # --------------------------------------------------------------------------------------------

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
    ) -> Producer:
        """A producer of one topic.

        Args:
            topic: its name.
            name: of a *named* producer: opening it fences its predecessor everywhere and brings the resume
                point.
            on_full: what `send` does while `bytes_in_flight_max` is spent: wait, or raise OverloadedError.
            timeout_s: seconds within which each send gets its outcome, retries included.
            linger_ms: how long small sends wait for company; 0 sends at once.
            batch_bytes: company this large does not wait any longer; bytes.
            bytes_in_flight_max: encoded rows that have no outcome yet; bytes. The producer's memory.
            accept_fresh_start: of a name: open it also where partitions forgot it. They have no resume point
                then, so a row that was sent before is stored again if it is sent again.

        Raises:
            NotFoundError: no such topic. InvalidArgumentError: an option is outside its range.
            ResumeUnknownError: partitions forgot this name, for example after `producer_expiry_ms` without
                a send. Nothing is sent; find out what is stored, then pass `accept_fresh_start=True`.
        """
        options = Options(on_full, timeout_s, linger_ms, batch_bytes, bytes_in_flight_max).check()
        link = self._link
        if accept_fresh_start and name is None:
            raise InvalidArgumentError("accept_fresh_start is for a producer with a name: give `name`, too")
        opened = self._admin.open_producer(topic, name, accept_fresh_start=accept_fresh_start)
        layout = self._tables.get(topic, self._deadline)
        producer = Producer(
            link,
            self._tables,
            layout,
            Identity(opened.producer_id, opened.producer_epoch),
            name=name,
            resume={point.partition: point for point in opened.resume},
            options=options,
            client=self,
        )
        self._producers.add(producer)
        return producer

    @property
    def scopes(self) -> Scopes:
        """Atomic writes in parts, for drivers and tasks of distributed jobs."""
        return Scopes(self._link, self._tables, self._admin, client=self)

    def transaction(
        self,
        topic: str | None = None,
        *,
        scope: str,
        epoch: int | None = None,
        timeout_s: float = SEND_TIMEOUT_S,
        bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX,
    ) -> Transaction:
        """Rows that come into the log all at once, or not at all; use it in a `with` block.

        Args:
            topic: where `send` puts rows that name no topic of their own, and whose scope it is.
            scope: a name for the writer, 1 to 234 bytes; an earlier writer of this name to this topic is
                fenced. Without `topic` the scope is one of the cluster.
            epoch: from 1; an epoch that was committed is not written again. Default: one behind the last.
            timeout_s: seconds within which each batch must be staged, retries included.
            bytes_in_flight_max: encoded rows that are not on disk yet; bytes.
        """
        return Transaction(
            self.scopes,
            topic=topic,
            scope=scope,
            epoch=epoch,
            timeout_s=timeout_s,
            bytes_in_flight_max=bytes_in_flight_max,
        )

    # ---- rows out
    # -------------------------------------------------------------------------------------------

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
    ) -> Reader:
        """Iterate the rows of a topic as pyarrow record batches.

        Args:
            topic: its name.
            partition: one, or some; default: all, in turn. Order holds within a partition.
            start: None or "earliest": the log start; "latest": the mark; an offset (of one partition); a
                datetime with time zone: the first batch at or after it; {partition: offset}; or positions of
                an earlier reader.
            follow: go on with new rows for ever; default: end at the mark of this call.
            columns: only these, in this order; a str is one name.
            batch_rows: batches of at most so many rows; default: as they were sent.
            prefetch_bytes: what may be held ahead of the application.
            timeout_s: seconds that a fetch may take, retries included; default: the client's.

        Raises:
            NotFoundError: no such topic or partition. InvalidArgumentError: an argument is outside its range.
            ConnectError: the owner of a partition does not answer; `partition`, and `node` and `addresses` in
            `details`, say which. The others can be read alone, by `partition`.
        """
        batch_rows = None if batch_rows is None else whole("batch_rows", batch_rows, 1)
        prefetch_bytes = whole("prefetch_bytes", prefetch_bytes, 0)
        timeout_s = self._timeout_s if timeout_s is None else seconds("timeout_s", timeout_s)
        link = self._link
        layout = self._tables.get(topic, self._deadline)
        decoder = Decoder(layout.name, layout.schemas, columns)
        found = spans(
            link, self._tables, layout, chosen(layout, partition), start, follow=follow,
            deadline=self._deadline,
        )  # fmt: skip
        return Reader(
            link,
            self._tables,
            layout,
            found,
            decoder,
            follow=follow,
            batch_rows=batch_rows,
            prefetch_bytes=prefetch_bytes,
            timeout_s=timeout_s,
            client=self,
        )

    def end_offsets(self, topic: str, *, partition: int | Iterable[int] | None = None) -> dict[int, Ends]:
        """Log start and mark of each partition, by its id.

        Raises:
            ConnectError: the owner of a partition does not answer; `partition`, and `node` and `addresses` in
            `details`, say which. It comes within seconds where another node knows as much.
        """
        link = self._link
        layout = self._tables.get(topic, self._deadline)
        asked = ends_or_silence(link, self._tables, layout, chosen(layout, partition), self._deadline)
        return {found.partition: found for found in asked}

    def log_points(self, topic: str, offsets: Mapping[int, int]) -> list[LogPoint]:
        """Epoch and time of the row before each offset, by partition.

        Keep them with an offset: at a later time they prove that the log is still the same. Each offset is
        above the log start and at most the mark. Raises TruncatedError where it is not.
        """
        link = self._link
        layout = self._tables.get(topic, self._deadline)
        chosen(layout, offsets)
        return log_points(link, self._tables, layout, offsets, self._deadline)

    def offsets_at(self, topic: str, time: dt.datetime) -> dict[int, int]:
        """By partition: the first offset of a batch at or after a time with zone; the mark if none is."""
        return {position.partition: position.offset for position in self.positions_at(topic, time)}

    def positions_at(self, topic: str, time: dt.datetime) -> list[Position]:
        """As `offsets_at`, to be kept: with the epoch, by which a later `read` knows the log again."""
        link = self._link
        layout = self._tables.get(topic, self._deadline)
        found = offsets_at(link, self._tables, layout, chosen(layout, None), time, self._deadline)
        return list(found.values())

    def count(self, topic: str, *, partition: int | Iterable[int] | None = None) -> int:
        """Rows that can be read now. Raises ConnectError as `end_offsets`."""
        return sum(found.rows for found in self.end_offsets(topic, partition=partition).values())

    @property
    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_s
