"""The application's side of a member, whatever the mode: steps that never wait."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from ringfence.answer_batches import AnswerBatches
from ringfence.cluster.table_cache import TableCache
from ringfence.common.fork import guard
from ringfence.common.locks import OwnedLock
from ringfence.consumer.link import Link
from ringfence.native.errors import ClosedError, ReentrantError, RingfenceError
from ringfence.staged_reader import may_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from ringfence.arrow.decode import Decoder
    from ringfence.common.routing import Layout
    from ringfence.consumer.any_member import AnyMember
    from ringfence.consumer.link import Identity
    from ringfence.consumer.settings import Settings
    from ringfence.consumer.values import ConsumerPlace, MemberOptions, Task
    from ringfence.network.io_thread import IoThread

FETCH_BYTES = 4_194_304  # of one answer with staged rows
logger = logging.getLogger(__name__)


class Batch(NamedTuple):
    """Rows, and where they are. `failures`: QUEUE, deliveries of them that ended badly."""

    place: ConsumerPlace
    rows: pa.RecordBatch
    failures: int = 0


class AnyCore(ABC):
    """One member with its I/O thread. For one thread at a time, but for `close` and what says otherwise."""

    member: AnyMember
    link_type = Link

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        layout: Layout,
        decoder: Decoder,
        identity: Identity,
        options: MemberOptions,
        *,
        timeout_s: float,
        on_ring: Callable[[], None],
    ) -> None:
        self.identity, self.options, self.topic = identity, options, layout.name
        self.io_thread, self.tables, self.layout = io_thread, tables, layout
        self._lock = OwnedLock()
        self.lock = self._lock.lock
        self.member = self.new_member(options)
        self.schema = decoder.schema
        self._timeout_s = timeout_s
        self._answers = AnswerBatches(
            io_thread, tables, layout, decoder, batch_rows=None, fetch_bytes=FETCH_BYTES, timeout_s=timeout_s
        )
        self.place: ConsumerPlace | None = None
        self.is_closed = False
        self._owner = guard("consumer")
        self.link = self.link_type(
            io_thread, tables, layout, self.member, identity, lock=self._lock.lock, ring=on_ring
        )
        self.link.begin()

    def comes_again(self, error: BaseException) -> bool:
        """Whether rows that cannot be decoded now can be later: the owner of a transaction's rows is away.

        They are fetched again then, which the log says; the application hears of it as little as of other
        rows whose owner is away.
        """
        if not isinstance(error, RingfenceError) or not may_pass(error):
            return False
        logger.warning(
            "topic %s, cohort %s: rows of a transaction are fetched again: %s",
            self.topic,
            self.identity.cohort,
            error,
        )
        return True

    @staticmethod
    @abstractmethod
    def new_member(options: MemberOptions) -> AnyMember:
        """The state machine."""

    # ---- steps -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises ClosedError, ForkedError or ReentrantError if no call can be served."""
        self._owner.check()
        if self.is_closed:
            raise ClosedError("the consumer is closed; create another one", topic=self.topic)
        if self._lock.is_mine():
            raise ReentrantError(
                "a call of a consumer in a signal handler would interrupt another one: use a thread"
            )

    @abstractmethod
    def step(self, *, comes_back: bool = False, is_seen: bool = True) -> Task | Batch | None:
        """What the application gets next; None: nothing is there.

        `comes_back`: it asks for the next batch, so with "auto" it is done with the ones before. Without
        `is_seen` it has the batch after a call of `seen` only; until then no acknowledgement counts its rows.
        """

    @abstractmethod
    def seen(self) -> bool:
        """The application gets the batches that it has not got. False: it must not, their rows come again."""

    @abstractmethod
    def take_back(self) -> None:
        """The application will not get the batches that it has not got: their rows come again."""

    def turn(self) -> None:
        """Let the I/O thread carry out what is due."""
        self.io_thread.post(self.link.turn)

    # ---- what the application says -------------------------------------------------------------------------

    def done(self, task: Task) -> None:
        """It came back from a callback."""
        with self._lock.lock:
            self.member.done(task)
        self.turn()

    def again(self, task: Task) -> None:
        """Its callback was interrupted: the next step has it again."""
        with self._lock.lock:
            self.member.state.tasks.appendleft(task)

    @abstractmethod
    def locate(self, task: Task, settings: Settings) -> None:
        """Ask the application's store for positions (CHECKPOINT)."""

    @abstractmethod
    def acknowledge(
        self, place: ConsumerPlace | None, then: Callable[[Exception | None], None] | None = None
    ) -> None:
        """Rows of a place are done; None: all that was given. `then`: called when owners have it."""

    @abstractmethod
    def pause(self, partitions: Iterable[int], *, is_paused: bool) -> None:
        """Stop or go on giving rows of partitions."""

    @abstractmethod
    def interrupted(self, error: BaseException) -> None:
        """An exception ended the use of the consumer."""

    # ---- what it may know. From any thread -----------------------------------------------------------------

    @abstractmethod
    def assignment(self) -> list[int]:
        """The partitions of which this member has something."""

    @property
    @abstractmethod
    def is_member(self) -> bool:
        """Whether rows may come."""

    @abstractmethod
    def lag(self) -> dict[int, int]:
        """By partition that is held: rows that are not settled."""

    @abstractmethod
    def fencing_token(self, partition: int) -> int | None:
        """The number of the hold; None: the partition is not held."""

    def waits_for(self) -> list[int]:
        """Sealed partitions whose children wait for an acknowledgement."""
        with self._lock.lock:
            return self.member.waits_for()

    # ---- the end -------------------------------------------------------------------------------------------

    def close(self, *, leave: bool, timeout_s: float) -> None:
        """Release what is held and leave; waits for that, at most `timeout_s`. From any thread."""
        if self.is_closed or not self._owner.mine:
            self.is_closed = True
            return
        self.is_closed = True
        deadline = time.monotonic() + timeout_s
        try:
            with self._lock.lock:
                self.member.close(leave=leave)
            self.turn()
            while time.monotonic() < deadline and not self._is_over():
                time.sleep(0.005)
        except ClosedError:
            return
        finally:
            self.io_thread.close()

    def _is_over(self) -> bool:
        with self._lock.lock:
            return self.member.is_closed
