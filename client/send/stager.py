"""Stage the batches of one attempt at their partitions. Readers see them after a commit names the token."""

from __future__ import annotations

import os
import struct
import time
import weakref
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ringfence.arrow.batches import each_batch
from ringfence.arrow.encode import EXTENSION_ITEM, TopicEncoder
from ringfence.arrow.pieces import read_ahead
from ringfence.common.locks import holds
from ringfence.common.process_local import ProcessLocal
from ringfence.common.retry import Backoff
from ringfence.common.scope_values import Parts, StagedRows
from ringfence.native import wire
from ringfence.native.errors import (
    ClosedError,
    RefusedError,
    RerouteError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.network.request import Request
from ringfence.send.budget import Budget
from ringfence.send.failures import defect_error
from ringfence.send.staging_requests import StagingRequests
from ringfence.send.wait_reasons import late_error

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ringfence.arrow.encode import Body
    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.common.scope_values import Begun
    from ringfence.network.io_thread import IoThread
    from ringfence.send.staging_requests import Staged
    from ringfence.send.wait_reasons import PendingSends

TOKEN_BYTES = 16
IDENTITY = struct.Struct("<QQQII16s")  # scope, driver, epoch, writer, zero, token
BATCHES_MAX = 256  # pending at one time; more of them would only hold memory
REROUTE = Backoff(first_s=0.02, cap_s=2.0)
# Length of one try at an owner. Then a newer table is fetched: another owner may have the partition.
TRY_S = 5.0


class _Batch(NamedTuple):
    topic: int
    name: str
    body: Body
    sequence: int
    deadline: float

    @property
    def place(self) -> Staged:
        return self.topic, self.body.partition, self.sequence


class Stager(ProcessLocal):
    """Stages under one token. For one thread; answers arrive on the I/O thread."""

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        begun: Begun,
        epoch: int,
        *,
        writer: int = 0,
        timeout_s: float,
        bytes_in_flight_max: int,
        client: object = None,
    ) -> None:
        """`epoch`: from 1, above the scope's decided epoch. `writer`: a number for operators.

        `client`: the owner of the connections; kept alive by this reference.
        """
        self._client = client
        self.token = os.urandom(TOKEN_BYTES)
        self._io_thread, self._tables, self._timeout_s = io_thread, tables, timeout_s
        self._begun, self._epoch = begun, epoch
        identity = IDENTITY.pack(begun.scope, begun.driver, epoch, writer, 0, self.token)
        item = EXTENSION_ITEM.pack(wire.ExtensionKind.STAGE, 0, len(identity)) + identity
        self._extension = item + bytes(-len(item) % wire.BODY_ALIGN_BYTES)
        self._staging = StagingRequests(io_thread, tables)
        self._newest, self._requests = self._staging.layouts, self._staging.requests
        self._changed = self._staging.changed
        # An attempt that is dropped without `close` must end too.
        weakref.finalize(self, self._staging.end).atexit = False
        self._budget = Budget(bytes_in_flight_max, self._blocked)
        self._layouts: dict[str, tuple[Layout, TopicEncoder]] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._parts: Parts = {}
        self._already = False
        self._error: RingfenceError | None = None
        self._closed = False

    def send(self, topic: str, batch: Any) -> None:
        """Stage rows; waits only until there is room.

        Args:
            topic: its name.
            batch: as for `Producer.send`.

        Raises:
            BatchError: the rows cannot be stored. RefusedError: an earlier send failed after some of its rows
                were staged, so nothing of the attempt may be committed. RingfenceError: an earlier batch was
                refused.
        """
        if self._closed:
            raise ClosedError("the attempt is finished; begin a new one", topic=topic)
        layout, encoder = self._layout(topic)
        handed_over = False
        try:
            ahead, rest = read_ahead(each_batch(batch, encoder.schema), self._budget.bytes_max)
            for part in chain(ahead, rest or ()):
                for chunk, _ in encoder.chunks(part):
                    self._check()
                    if self._already:
                        return
                    limit = self._io_thread.message_bytes_max
                    for body in encoder.bodies(chunk, bytes_max=limit, extension=self._extension):
                        self._budget.take(len(body.data), timeout_s=self._timeout_s)
                        handed_over = True
                        self._submit(layout, body)
        except BaseException as error:
            if handed_over:
                self._fail_attempt(error, topic)
            raise

    @holds
    def flush(self) -> None:
        """Wait until all rows that were sent are on disk.

        Raises:
            RingfenceError: the first refusal.
        """
        deadline = time.monotonic() + self._timeout_s
        with self._changed:
            while self._requests and self._error is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            late = 0 if self._error is not None else len(self._requests)
        if late:
            topic, waits = self._staging.waits()
            raise late_error("rows that were staged have", topic, waits, self._timeout_s, batches=late)
        self._check()

    def finish(self) -> StagedRows:
        """Wait until all rows are on disk, and end the attempt.

        Raises:
            RingfenceError: the first refusal. Nothing of the attempt may then be committed.
        """
        self._closed = True
        try:
            self.flush()
        finally:
            self.close()
        parts = {} if self._already else dict(self._parts)
        begun = self._begun
        return StagedRows(self.token, parts, self._already, begun.scope, self._epoch, begun.driver)

    def close(self) -> None:
        """Accept no more rows.

        Staged rows that are not committed are removed by the next commit of the scope.
        """
        self._closed = True
        self._staging.end()

    def _blocked(self, waited_s: float) -> PendingSends:
        del waited_s
        return self._staging.waits()

    @property
    def names(self) -> dict[int, str]:
        """The topics that rows were staged for: id -> name."""
        return {topic: layout.name for topic, layout in self._newest.items()}

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _fail_attempt(self, error: BaseException, topic: str) -> None:
        """Refuse the whole attempt: a caller that ignores the error would commit part of a send."""
        why = error.message if isinstance(error, RingfenceError) else f"{type(error).__name__}: {error}"
        failure = RefusedError(
            f"a send failed after part of its rows was staged ({why}); nothing of the block can be "
            "committed, run it again",
            topic=topic,
        )
        failure.__cause__ = error
        with self._changed:
            self._error = self._error or failure
            self._changed.notify_all()

    def _layout(self, topic: str) -> tuple[Layout, TopicEncoder]:
        found = self._layouts.get(topic)
        if found is None:
            layout = self._tables.get(topic, time.monotonic() + self._timeout_s)
            choice = self._staging.watch(layout)
            found = self._layouts[topic] = (layout, TopicEncoder(layout, split=True, choice=choice))
        return found

    @holds
    def _submit(self, layout: Layout, body: Body) -> None:
        place = (layout.topic, body.partition)
        sequence = self._next.get(place, 0)
        self._next[place] = sequence + 1
        with self._changed:
            while len(self._requests) >= BATCHES_MAX and self._error is None:
                self._changed.wait(1.0)
        self._request(
            _Batch(layout.topic, layout.name, body, sequence, time.monotonic() + self._timeout_s), 0
        )

    def _request(self, batch: _Batch, redirects: int) -> None:
        layout, body = self._newest[batch.topic], batch.body
        entry = layout.partitions.get(body.partition)
        if entry is None:
            message = "the partition was split or merged while rows were staged for it; send them again"
            self._ended(batch, RerouteError(message, topic=batch.name, partition=body.partition))
            return
        request = Request(
            wire.Opcode.STAGE,
            body.data,
            min(batch.deadline, time.monotonic() + TRY_S),
            topic=batch.name,
            fields={
                "topic": batch.topic,
                "partition": body.partition,
                "layout_version": layout.version,
                "owner_epoch": entry.epoch,
                "sequence": batch.sequence,
                "rows": body.rows,
                "schema_id": body.schema_id,
                "extension_bytes": body.extension_bytes,
                "crc": body.crc,
            },
        )
        with self._changed:
            self._requests[batch.place] = request
        request.future.add_done_callback(lambda future: self._answered(batch, redirects, future))
        self._io_thread.call(lambda: self._io_thread.enqueue_at_owner(request, layout, body.partition))

    # ---- on the I/O thread ------------------------------------------------------------------------------

    def _answered(self, batch: _Batch, redirects: int, future: Future[Answer]) -> None:
        try:
            answer = future.result()
        except (RerouteError, RetriableError, UnknownOutcomeError) as error:
            # A repeat is safe: a sequence of a token is stored once.
            if time.monotonic() >= batch.deadline:
                self._ended(batch, error)
                return
            self._staging.refusals[batch.place[:2]] = error
            wait_s = getattr(error, "retry_after_s", error.details.get("retry_after_s", 0.0))
            after = REROUTE.delay_s(redirects + 1, self._io_thread.jitter(), wait_s)
            self._io_thread.at(self._io_thread.now + after, lambda: self._reroute(batch, redirects + 1))
        except RingfenceError as error:
            self._ended(batch, error)
        except Exception as error:  # noqa: BLE001  # ends this attempt only
            self._ended(batch, defect_error(batch.name, error))
        else:
            if answer.header.status == wire.Status.ALREADY_COMMITTED:
                self._already = True
            self._ended(batch, None)

    def _reroute(self, batch: _Batch, redirects: int) -> None:
        def fetched(layout: Layout | None, error: RingfenceError | None) -> None:
            del error  # retried with the current layout, until the deadline
            if layout is not None:
                self._newest[batch.topic] = layout
            try:
                self._request(batch, redirects)
            except ClosedError as closed:  # the client was closed meanwhile, so the batch must be ended here
                self._ended(batch, closed)

        self._tables.fetch(batch.topic, fetched)

    def _ended(self, batch: _Batch, error: RingfenceError | None) -> None:
        self._budget.give(len(batch.body.data))
        with self._changed:
            self._requests.pop(batch.place, None)
            if error is not None:
                self._error = self._error or error
            else:
                place = batch.place[:2]
                self._parts[place] = self._parts.get(place, 0) + batch.body.rows
                self._staging.took(place)
            self._changed.notify_all()
