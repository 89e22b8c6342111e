"""Stage rows again whose partitions were split or merged before their transaction was committed.

    COMMIT --moved, partitions--> STAGED_LIST, FETCH of their staged records
                                  STAGE under one more token, each batch with its origin
           <-------------------- COMMIT with all tokens, and the new partitions

A sealed log takes no publish record, so a COMMIT that names one is refused, and decides nothing. Only such a
refusal leads here: a COMMIT without an answer may be decided, and is repeated as it is.

What is staged there must be what the commit names: for an ACTIVE partition its owner compares that before the
commit is decided, and of a sealed one nobody does later.

An *origin* is the place of the first staging: the version that sealed it, and the record number. A publish
lists rows by origin, so rows keep the order of their sends over any number of layout changes. A batch that
is staged again keeps its origin. Tokens are only added: a token that is left out may be that of a claim.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ringfence.arrow.encode import Body
from ringfence.cluster.offsets import redirect_delay_s
from ringfence.common import extension
from ringfence.native import wire
from ringfence.native._node import RecordReader, crc32c
from ringfence.native.errors import (
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    ProtocolError,
    RerouteError,
    RetriableError,
    RingfenceError,
    UnknownOutcomeError,
    WaitTimeoutError,
)
from ringfence.native.layout_messages import StagedBatches, StagedList
from ringfence.native.messages import encode
from ringfence.network.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.native.cluster_messages import ScopeCommit
    from ringfence.network.io_thread import IoThread
    from ringfence.send.stager import Stager

# Layout changes between the staging of rows and their commit; nodes accept so many tokens more.
RESTAGED_MAX: Final = 64
# Of one answer with staged records: a few bodies, which the budget of the attempt limits as well.
FETCH_BYTES: Final = 8 << 20
TRY_S: Final = 5.0
# Between two questions to an owner that does not know yet that its partition is sealed: a node may apply the
# COMMIT of the layout change some ms after the one that refused the transaction.
UNSEALED_S: Final = 0.01


class Restager:
    """Of one commit; for one thread."""

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        attempt: Callable[[], Stager],
        timeout_s: float,
        on_moved: Callable[[ScopeCommit], object] | None = None,
    ) -> None:
        """`attempt`: begins an attempt of the same scope, driver and epoch. `timeout_s`: of each request.

        `on_moved`: gets each new commit before it is put. From then on only this one can be decided.
        """
        self._io_thread, self._tables = io_thread, tables
        self._attempt, self._timeout_s = attempt, timeout_s
        self._on_moved = on_moved
        self._layouts: dict[int, Layout] = {}

    def commit(self, put: Callable[[ScopeCommit], Answer], message: ScopeCommit) -> Answer:
        """Put the commit, and after each refusal `moved` what it becomes.

        Raises:
            RingfenceError: as `put`. DeadlineError: rows were not staged again in time; nothing is committed.
            InvalidArgumentError: a sealed partition has other rows than the commit names; nothing is
                committed.
        """
        for _ in range(RESTAGED_MAX):
            try:
                return put(message)
            except ConflictError as error:
                if error.code is not wire.Code.MOVED:
                    raise
                message = self.moved(message, {int(one) for one in error.details.get("partitions", ())})
                if self._on_moved is not None:
                    self._on_moved(message)
        return put(message)

    def moved(self, message: ScopeCommit, sealed: set[int]) -> ScopeCommit:
        """Stage the rows of sealed partitions again; the commit of all rows where they are now."""
        left = {(topic, partition): rows for topic, partition, rows in message.parts}
        gone = [place for place in left if place[1] in sealed]
        if not gone:
            raise ProtocolError(
                "the node refuses the commit because of sealed partitions, and names none of it; nothing is "
                "committed",
                scope=message.scope_id,
                epoch=message.epoch,
                partitions=sorted(sealed),
            )
        attempt = self._attempt()
        try:
            for topic, partition in gone:
                self._stage_again(attempt, message, (topic, partition), left[topic, partition])
            staged = attempt.finish()
        except (UnknownOutcomeError, WaitTimeoutError, RerouteError, RetriableError) as error:
            raise DeadlineError(
                "a partition with rows of the transaction was split or merged, and these rows could not be "
                f"staged again in time ({error.message}); nothing is committed: run it again",
                scope=message.scope_id,
                epoch=message.epoch,
            ) from error
        finally:
            attempt.close()
        for place in gone:
            del left[place]
        for place, rows in staged.parts.items():
            left[place] = left.get(place, 0) + rows
        parts = [(topic, partition, rows) for (topic, partition), rows in sorted(left.items())]
        return replace(message, tokens=[*message.tokens, staged.token], parts=parts)

    def _stage_again(
        self, attempt: Stager, message: ScopeCommit, place: tuple[int, int], wanted: int
    ) -> None:
        topic, partition = place
        listed, version = self._listed(message, topic, partition)
        layout = self._layout(topic)
        staged = sum(count for _, count in listed)
        if staged != wanted:
            raise InvalidArgumentError(
                f"{wanted} rows are to be committed in partition {partition}, which was split or merged, and "
                f"{staged} are staged there; nothing is committed: commit exactly what was staged, or stage "
                "it again",
                topic=layout.name,
                partition=partition,
                scope=message.scope_id,
                epoch=message.epoch,
            )
        for header, front, rows in self._records(topic, partition, [record for record, _ in listed]):
            origin = extension.items_of(front).get(wire.ExtensionKind.ORIGIN)
            if origin is None:
                origin = extension.ORIGIN.pack(version, header.record_number)
            own = attempt.extension_with({wire.ExtensionKind.ORIGIN: origin})
            data = bytearray(own) + rows
            body = Body(partition, data, crc32c(data), header.rows, header.schema_id, len(own), None)
            attempt.stage_again(layout, body)

    # ---- what is staged there ---------------------------------------------------------------------------

    def _listed(self, message: ScopeCommit, topic: int, partition: int) -> tuple[list[tuple[int, int]], int]:
        """(record number, rows) of what is staged, ascending, and the version that sealed the partition."""
        wanted = StagedList(scope=message.scope_id, epoch=message.epoch, tokens=list(message.tokens))
        found: list[tuple[int, int]] = []
        while True:
            page = self._page(topic, partition, wanted)
            found += [(record, rows) for record, rows, _ in page.batches]
            if not page.more or not page.batches:
                return found, page.sealed_version
            wanted = replace(wanted, after=found[-1][0])

    def _page(self, topic: int, partition: int, wanted: StagedList) -> StagedBatches:
        """One answer of an owner that has applied the layout change: the refusing node may be ahead of it."""
        end, tries = time.monotonic() + self._timeout_s, 0
        while True:
            answer = self._ask(topic, partition, wire.Opcode.STAGED_LIST, encode(wanted), {})
            page = answer.control(StagedBatches)
            if page.sealed_version:
                return page
            tries += 1
            behind = RetriableError("its owner does not know yet that it is sealed", partition=partition)
            delay_s = redirect_delay_s(tries, behind)
            if time.monotonic() + delay_s >= end:
                raise behind
            time.sleep(delay_s)

    def _records(
        self, topic: int, partition: int, listed: list[int]
    ) -> Iterator[tuple[wire.RecordHeader, memoryview, memoryview]]:
        """(header, extension, Arrow message) of the listed records. They are final: the log is sealed.

        An owner that is new, and does not serve the partition as sealed yet, shows none that is staged at its
        end.
        """
        wanted, end = deque(listed), time.monotonic() + self._timeout_s
        while wanted:
            first = wanted[0]
            fields = {"sequence": first, "send": FETCH_BYTES, "flags": int(wire.RequestFlags.STAGED)}
            answer = self._ask(topic, partition, wire.Opcode.FETCH, b"", fields)
            for head, start, length in RecordReader(answer.body):
                header = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack(head))
                if wanted and header.record_number == wanted[0]:
                    wanted.popleft()
                    rows = start + header.extension_bytes
                    yield header, answer.body[start:rows], answer.body[rows : start + length]
            if not wanted or wanted[0] != first:
                end = time.monotonic() + self._timeout_s
            elif time.monotonic() >= end:
                raise ProtocolError("a staged record is not in the log", partition=partition, record=first)
            else:
                time.sleep(UNSEALED_S)

    def _layout(self, topic: int) -> Layout:
        return self._tables.get_by_id(topic, time.monotonic() + self._timeout_s)

    def _ask(
        self, topic: int, partition: int, opcode: wire.Opcode, body: bytes, fields: dict[str, int]
    ) -> Answer:
        """Ask the owner of a partition, wherever it is, until the deadline."""
        end, redirects = time.monotonic() + self._timeout_s, 0
        layout = self._layouts.get(topic) or self._layout(topic)
        while True:
            self._layouts[topic] = layout
            place = {"topic": topic, "partition": partition, "layout_version": layout.version}
            request = Request(
                opcode, body, min(end, time.monotonic() + TRY_S), topic=layout.name, fields=fields | place
            )
            try:
                return self._io_thread.request_owner(request, layout, partition).result()
            except (RerouteError, RetriableError) as error:
                redirects += 1
                delay_s = redirect_delay_s(redirects, error)
                if time.monotonic() + delay_s >= end:
                    raise
                time.sleep(delay_s)
                layout = self._layout(topic)


def is_definite(error: RingfenceError) -> bool:
    """Whether a refused COMMIT decided nothing, whatever its earlier tries did: sealed logs end."""
    return isinstance(error, ConflictError) and error.code is wire.Code.MOVED
