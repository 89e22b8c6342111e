"""Carry out exports of parked ranges: one transaction each. `parked_export.py` decides the steps."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from ringfence.common.retry import Backoff
from ringfence.consumer.parked import Parked, ParkedRequests
from ringfence.consumer.parked_export import (
    BeginScope,
    Commit,
    CommitAnswer,
    DiscardRows,
    Ending,
    Export,
    Failed,
    Fenced,
    Mark,
    Marked,
    RowsDiscarded,
    RowsStaged,
    ScopeBegun,
    StageRows,
    Take,
    TakeAnswer,
    scope_of,
)
from ringfence.consumer.parked_rows import check_other_topic, check_target, rows_of
from ringfence.native.errors import (
    ConflictError,
    FencedError,
    InvalidArgumentError,
    NotFoundError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.native.wire import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ringfence.admin import Admin
    from ringfence.client import Client
    from ringfence.common.routing import Layout
    from ringfence.common.scope_values import Begun, StagedRows
    from ringfence.consumer.parked import Item
    from ringfence.consumer.parked_export import Call, Event
    from ringfence.send.stager import Stager

# Between questions to an owner that does not answer, or has not heard of the COMMIT yet.
PAUSE: Final = Backoff(first_s=0.05, cap_s=1.0)


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What an export has done, by (partition, number).

    Attributes:
        exported: ranges that are exported now; `rows` of them were copied by this call.
        rows: number of rows that were copied.
        gone: rows of these ranges that the log did not have any more.
        not_parked: put back, discarded or exported before by others.
        elsewhere: another exporter works on them.
        closed: `retry` or `discard` has ended the export, and is to be repeated.
    """

    exported: tuple[Item, ...] = ()
    rows: int = 0
    gone: int = 0
    not_parked: tuple[Item, ...] = ()
    elsewhere: tuple[Item, ...] = ()
    closed: tuple[Item, ...] = ()


class Exporter:
    """Exports from one cohort to one topic. For one thread."""

    def __init__(
        self, client: Client, admin: Admin, topic: str, cohort: str, to: str, *, timeout_s: float
    ) -> None:
        """Raises RingfenceError if the target cannot take the rows."""
        self._client, self._timeout_s = client, timeout_s
        self.requests = ParkedRequests(admin, topic, cohort)
        self._topic, self._to = topic, to
        self._source: Layout = client.layout(topic)
        self.check()

    def check(self) -> None:
        """Refuse a target that cannot take the rows as they are now."""
        self._source, target = self._client.layout(self._topic), self._client.layout(self._to)
        check_other_topic(self._source.topic, target.topic, target.name)
        check_target(_schema(self._source), _schema(target), self._source.name, target.name)

    def export(self, parked: Parked, cohort: int, *, again: bool = False) -> OneExport:
        """Export one range of the cohort with this id. Raises the error that ended it."""
        name = scope_of(cohort, *parked.item)
        machine = Export(name, parked.scope if parked.is_exporting else 0, again)
        one = OneExport(self, parked, machine)
        one.run()
        return one

    # ---- calls -------------------------------------------------------------------------------------------

    def begin(self, name: str) -> Begun:
        """Begin the scope of a range; it is not needed after the range is exported."""
        return self._client.scopes.begin(name, one_off=True)

    def stage(self, begun: Begun, epoch: int, parked: Parked) -> StagedRows:
        """Copy the rows, invisible to readers."""
        attempt: Stager = self._client.scopes.attempt(begun, epoch, timeout_s=self._timeout_s)
        try:
            with contextlib.closing(self._rows(parked)) as batches:
                for batch in batches:
                    attempt.send(self._to, batch)
            return attempt.finish()
        finally:
            attempt.close()

    def _rows(self, parked: Parked) -> Generator[pa.RecordBatch]:
        """The rows of a range that can be read; none of a partition that was pruned."""
        try:
            yield from rows_of(self._client, self._source.name, self.requests.cohort, parked)
        except NotFoundError as error:
            if not _is_of_partition(error, parked.partition):
                raise

    def commit(self, begun: Begun, epoch: int, staged: StagedRows) -> None:
        """There is one copy, also if another exporter has committed it."""
        self._client.scopes.commit_told(begun, epoch, [staged])

    def discard(self, begun: Begun, epoch: int) -> None:
        with contextlib.suppress(RingfenceError):  # the next COMMIT of the scope discards them, too
            self._client.scopes.expire(begun, epoch)

    def until(self) -> float:
        return time.monotonic() + self._timeout_s


class OneExport:
    """One range on its way. `rows` were copied."""

    def __init__(self, exporter: Exporter, parked: Parked, machine: Export) -> None:
        self._exporter, self.parked, self._machine = exporter, parked, machine
        self._begun: Begun | None = None
        self._staged: StagedRows | None = None
        self.rows = 0

    @property
    def ending(self) -> Ending:
        ending = self._machine.ending
        assert ending is not None, "it has ended"
        return ending

    @property
    def gone(self) -> int:
        """Rows that were parked and could not be copied any more."""
        return self.parked.rows - self.rows if self.ending is Ending.EXPORTED else 0

    def run(self) -> None:
        """Carry out the calls. Raises the error that ended the export."""
        call: Call | None = self._machine.begin()
        while call is not None:
            call = self._machine.event(call, self._outcome(call))
        if self._machine.error is not None:
            raise self._machine.error

    def _outcome(self, call: Call) -> Event:
        try:
            return self._carried_out(call)
        except RingfenceError as error:
            return Failed(error)

    def _carried_out(self, call: Call) -> Event:
        exporter, item = self._exporter, self.parked.item
        match call:
            case BeginScope(name):
                self._begun = begun = exporter.begin(name)
                return ScopeBegun(begun.scope, begun.committed, begun.decided)
            case StageRows(epoch):
                return self._stage(epoch)
            case Take(scope, force):
                return self._take(scope, force=force)
            case Commit(epoch):
                return self._commit(epoch)
            case Mark(scope):
                _repeated(partial(exporter.requests.mark, "exported", item, scope), exporter.until(), item)
                return Marked()
            case DiscardRows(epoch):
                assert self._begun is not None
                exporter.discard(self._begun, epoch)
                return RowsDiscarded()

    def _stage(self, epoch: int) -> Event:
        assert self._begun is not None
        try:
            self._staged = self._exporter.stage(self._begun, epoch, self.parked)
        except FencedError:
            return Fenced()
        return RowsStaged()

    def _take(self, scope: int, *, force: bool) -> TakeAnswer:
        parked, until, tries = self.parked, self._exporter.until(), 0
        is_other = parked.is_exporting and parked.scope != scope
        while True:
            outcome = self._exporter.requests.mark("begin", parked.item, scope, force=force)
            if outcome.done:
                return TakeAnswer.TAKEN
            if parked.item in outcome.not_parked + outcome.exported:
                return TakeAnswer.NOT_PARKED
            if is_other or parked.item in outcome.exporting:
                return TakeAnswer.NOT_KNOWN
            tries += 1
            pause_s = PAUSE.delay_s(tries, 0.5)
            if time.monotonic() + pause_s >= until:
                raise RetriableError(
                    "the owner of a parked range does not say that its export begins; nothing is copied",
                    partition=parked.partition,
                    number=parked.number,
                )
            time.sleep(pause_s)

    def _commit(self, epoch: int) -> Event:
        begun, staged = self._begun, self._staged
        assert begun is not None
        assert staged is not None
        try:
            self._exporter.commit(begun, epoch, staged)
        except FencedError:
            return CommitAnswer.FENCED
        except (UnknownOutcomeError, InvalidArgumentError):
            # Without an answer; or the epoch has expired: an operator has closed the scope.
            return CommitAnswer.NOT_KNOWN
        self.rows = staged.rows
        return CommitAnswer.COMMITTED


def _repeated(mark: Callable[[], Any], until: float, item: Item) -> None:
    """Mark a range as exported, until its owner knows that the copy is committed."""
    tries = 0
    while True:
        try:
            outcome = mark()
            if outcome.done or item in outcome.not_parked or item in outcome.exported:
                return
            error: RingfenceError = RetriableError(
                "its copy is committed, and its owner does not record that it is exported; export it again: "
                "nothing is copied twice",
                partition=item[0],
                number=item[1],
            )
        except (RetriableError, ConflictError) as refused:
            error = refused
        tries += 1
        pause_s = PAUSE.delay_s(tries, 0.5)
        if time.monotonic() + pause_s >= until:
            raise error
        time.sleep(pause_s)


def _is_of_partition(error: NotFoundError, partition: int) -> bool:
    """Whether the topic is there, and the partition is not. What the plan of a read refuses has no code."""
    return error.code is Code.UNKNOWN_PARTITION or (error.code is None and error.partition == partition)


def _schema(layout: Layout) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(layout.schemas[-1]))
