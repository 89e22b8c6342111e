"""The application's side of simulated members: the consumer's own steps, without threads and columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from ringfence.consumer import core, queue_core
from ringfence.consumer.core import Core
from ringfence.consumer.queue_core import QueueCore
from ringfence.consumer.values import ConsumerPlace, MemberOptions
from tests.sim.checks.ledger import Stored
from tests.sim.clients.keyed import first_id, ids_of
from tests.sim.clients.reader import records_of

if TYPE_CHECKING:
    from ringfence.common.codec import Answer
    from tests.sim.clients.member_process import MemberProcess


class Record(NamedTuple):
    """Where a record stands, as the decoder says it."""

    first_offset: int
    rows: int
    epoch: int


class Ids:
    """The rows of a record, in place of its columns."""

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids

    @property
    def num_rows(self) -> int:
        """As of a record batch."""
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return 16 * len(self.ids)

    def slice(self, at: int, length: int | None = None) -> Ids:
        """As of a record batch."""
        return Ids(self.ids[at:] if length is None else self.ids[at : at + length])


class Answers:
    """Takes records apart in place of the decoder."""

    def __init__(self, process: MemberProcess) -> None:
        self._process = process

    def of(self, span: Any, answer: Answer | None) -> Iterator[tuple[Record, Ids]]:
        """The rows of records that `span` wants."""
        if answer is None:
            return
        partition = answer.header.partition
        for record in records_of(answer.header, bytes(answer.body), first_id):
            self._process.world.ledger.read(partition, record)
            assert isinstance(record, Stored), "no transactions in these seeds"
            first, end = span.rows_of(Record(record.offset, record.rows, record.epoch))
            if first < end:
                ids = ids_of(record.body)[first - record.offset : end - record.offset]
                yield Record(first, end - first, record.epoch), Ids(ids)


class SimCore(Core):
    """Of a STREAM or a CHECKPOINT."""

    def __init__(self, process: MemberProcess, options: MemberOptions) -> None:
        self.options, self.topic = options, process.topic
        self._lock: Any = process  # for its `lock`
        self._answers: Any = Answers(process)
        self.member = self.new_member(options)
        self.place: ConsumerPlace | None = None
        self.is_closed = False

    def check(self) -> None:
        """Any call can be served."""

    def turn(self) -> None:
        """The process does so after each step."""


class SimQueueCore(QueueCore):
    """Of a QUEUE."""

    def __init__(self, process: MemberProcess, options: MemberOptions) -> None:
        self.options, self.topic = options, process.topic
        self._lock: Any = process
        self._answers: Any = Answers(process)
        self.member = self.new_member(options)
        self.place: ConsumerPlace | None = None
        self.is_closed = False

    def check(self) -> None:
        """Any call can be served."""

    def turn(self) -> None:
        """The process does so after each step."""


@contextmanager
def clock_of(process: MemberProcess) -> Iterator[None]:
    """The application's calls look at the clock of this process."""
    with (
        patch.object(core, "now_s", lambda: process.time_s),
        patch.object(queue_core, "now_s", lambda: process.time_s),
    ):
        yield


__all__ = ["Ids", "SimCore", "SimQueueCore", "clock_of"]
