"""Stage the batches of one attempt at their partitions. Readers see them after a commit names the token."""

from __future__ import annotations

import contextlib
import os
import struct
import time
import weakref
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from ringfence.arrow.batches import each_batch, in_chunks
from ringfence.arrow.encode import TopicEncoder
from ringfence.arrow.partition_choice import PartitionChoice
from ringfence.arrow.pieces import read_ahead
from ringfence.common import extension
from ringfence.common.locks import holds
from ringfence.common.process_local import ProcessLocal
from ringfence.common.scope_values import StagedRows
from ringfence.native import wire
from ringfence.native.errors import ClosedError, RefusedError, RingfenceError
from ringfence.send.budget import Budget
from ringfence.send.stage_sender import StagedSoFar, StageSender, StageSenders
from ringfence.send.wait_reasons import late_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.arrow.encode import Body
    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.routing import Layout
    from ringfence.common.scope_values import Begun
    from ringfence.network.io_thread import IoThread
    from ringfence.send.wait_reasons import PendingSends

TOKEN_BYTES = 16
IDENTITY = struct.Struct("<QQQII16s")  # scope, driver, epoch, writer, zero, token
BATCHES_MAX = 256  # pending at one time; more of them would only hold memory


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
        self._identity = IDENTITY.pack(begun.scope, begun.driver, epoch, writer, 0, self.token)
        self._extension = self.extension_with({})
        self._so_far = StagedSoFar()
        self._senders = StageSenders(io_thread, tables, self._so_far)
        # An attempt that is dropped without `close` must end too.
        weakref.finalize(self, _end, io_thread, self._senders).atexit = False
        self._budget = Budget(bytes_in_flight_max, partial(_waits, self._senders))
        self._encoders: dict[str, tuple[StageSender, TopicEncoder, PartitionChoice | None]] = {}
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
        sender, encoder = self._sender(topic)
        handed_over = False
        try:
            ahead, rest = read_ahead(each_batch(batch, encoder.schema), self._budget.bytes_max)
            for part in chain(ahead, rest or ()):
                for chunk, _ in in_chunks(part, split=encoder.split):
                    self._check()
                    if self._so_far.already:
                        return
                    limit = self._io_thread.message_bytes_max
                    for body in encoder.bodies(chunk, bytes_max=limit, extension=self._extension):
                        self._budget.take(len(body.data), timeout_s=self._timeout_s)
                        handed_over = True
                        self._submit(sender, body)
        except BaseException as error:
            if handed_over:
                self._fail_attempt(error, topic)
            raise

    def extension_with(self, items: Mapping[int, bytes]) -> bytes:
        """The extension of a batch of this attempt, with further items."""
        return extension.packed({wire.ExtensionKind.STAGE: self._identity, **items})

    def stage_again(self, layout: Layout, body: Body) -> None:
        """Stage a body of a partition that is sealed: it goes to the partitions that replaced it.

        Raises:
            RingfenceError: an earlier batch was refused, or there was no room in time.
        """
        self._check()
        self._budget.take(len(body.data), timeout_s=self._timeout_s)
        self._submit(self._sender_of(layout, None), body)

    @holds
    def flush(self) -> None:
        """Wait until all rows that were sent are on disk.

        Raises:
            RingfenceError: the first refusal.
        """
        deadline = time.monotonic() + self._timeout_s
        so_far = self._so_far
        with so_far.changed:
            while so_far.pending and so_far.error is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                so_far.changed.wait(left)
            late = 0 if so_far.error is not None else so_far.pending
        if late:
            topic, waits = self._senders.waits()
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
        already = self._so_far.already
        parts = {} if already else dict(self._so_far.parts)
        begun = self._begun
        return StagedRows(self.token, parts, already, begun.scope, self._epoch, begun.driver)

    def close(self) -> None:
        """Accept no more rows.

        Staged rows that are not committed are removed by the next commit of the scope.
        """
        self._closed = True
        _end(self._io_thread, self._senders)

    @property
    def names(self) -> dict[int, str]:
        """The topics that rows were staged for: id -> name."""
        return {topic: sender.layout.name for topic, sender in self._senders.senders.items()}

    def _check(self) -> None:
        if self._so_far.error is not None:
            raise self._so_far.error

    def _fail_attempt(self, error: BaseException, topic: str) -> None:
        """Refuse the whole attempt: a caller that ignores the error would commit part of a send."""
        why = error.message if isinstance(error, RingfenceError) else f"{type(error).__name__}: {error}"
        failure = RefusedError(
            f"a send failed after part of its rows was staged ({why}); nothing of the block can be "
            "committed, run it again",
            topic=topic,
        )
        failure.__cause__ = error
        self._so_far.set_error(failure)

    def _sender(self, topic: str) -> tuple[StageSender, TopicEncoder]:
        """The sender of a topic, and an encoder for its newest layout."""
        found = self._encoders.get(topic)
        if found is None:
            layout = self._tables.get(topic, time.monotonic() + self._timeout_s)
            # With a key, or one partition, there is nothing to choose.
            choice = None if layout.key or len(layout.active) == 1 else PartitionChoice()
            sender = self._sender_of(layout, choice)
        else:
            sender, encoder, choice = found
            if encoder.layout is sender.layout:
                return sender, encoder
        encoder = self._encoder(sender.layout, choice)
        self._encoders[topic] = sender, encoder, choice
        return sender, encoder

    def _sender_of(self, layout: Layout, choice: PartitionChoice | None) -> StageSender:
        sender = self._senders.senders.get(layout.topic)
        if sender is None:
            sender = StageSender(
                self._io_thread,
                self._tables,
                layout,
                self.token,
                self._so_far,
                on_body_ended=self._budget.give,
                choice=choice,
            )
            self._senders.begin(sender, choice)
        return sender

    @staticmethod
    def _encoder(layout: Layout, choice: PartitionChoice | None) -> TopicEncoder:
        return TopicEncoder(layout, split=True, choice=choice)

    @holds
    def _submit(self, sender: StageSender, body: Body) -> None:
        so_far = self._so_far
        with so_far.changed:
            while so_far.pending >= BATCHES_MAX and so_far.error is None:
                so_far.changed.wait(1.0)
        so_far.add(1)
        deadline = time.monotonic() + self._timeout_s
        self._io_thread.call(partial(sender.submit, sender.sink, [body], 0, deadline, last=False))


def _end(io_thread: IoThread, senders: StageSenders) -> None:
    """End the senders. What is pending has no outcome that anybody waits for."""
    if senders.senders:
        error = ClosedError("the attempt is finished; begin a new one")
        with contextlib.suppress(RingfenceError):  # the client is closed, and has ended them
            io_thread.call(partial(senders.end, error))


def _waits(senders: StageSenders, waited_s: float) -> PendingSends:
    del waited_s
    return senders.waits()
