"""The application's side of a member: one step at a time, without waiting. Sync and asyncio use it alike.

A step gives a callback that is due, or the next batch, or nothing. Rows are decoded here, in the caller's
thread and outside the lock; right before they are given, the member looks at its lease once more.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ringfence.consumer.any_core import AnyCore, Batch
from ringfence.consumer.clock import now_s
from ringfence.consumer.holding import LOST
from ringfence.consumer.lost_rows import Outcomes, lost_error
from ringfence.consumer.member import Member
from ringfence.consumer.stores import begin_of
from ringfence.consumer.values import partitions_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from ringfence.arrow.decode import Place as DecodedPlace
    from ringfence.consumer.gate import Stored
    from ringfence.consumer.giving import Turn
    from ringfence.consumer.settings import Settings
    from ringfence.consumer.values import ConsumerPlace, MemberOptions, Task
    from ringfence.native import wire


class _Span:
    """The rows of one answer that the application gets, for the decoder."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    def rows_of(self, record: wire.RecordHeader) -> tuple[int, int]:
        end = record.first_offset + record.rows
        return max(record.first_offset, self._stored.start), min(end, self._stored.end)


class Core(AnyCore):
    """One member with its I/O thread. For one thread at a time, but for `close` and what says otherwise."""

    member: Member

    @staticmethod
    def new_member(options: MemberOptions) -> Member:
        """The state machine."""
        return Member(options)

    # ---- steps -------------------------------------------------------------------------------------------

    def step(self, *, comes_back: bool = False, is_seen: bool = True) -> Task | Batch | None:
        """See `AnyCore.step`."""
        self.check()
        while True:
            with self._lock.lock:
                if comes_back and self.options.is_auto:
                    self.member.giving.acknowledge_given()
                comes_back = False
                if (error := self.member.take_error()) is not None:
                    raise error
                self.member.consuming.check_give()
                if (task := self.member.next_task()) is not None:
                    return task
                turn = self.member.turn(now_s())
            if turn is None:
                return None
            if (batch := self._decoded(turn, is_seen=is_seen)) is not None:
                return batch

    def _decoded(self, turn: Turn, *, is_seen: bool) -> Batch | None:
        """The next batch of an answer; None: there is none, or it must not be given now."""
        stored = turn.stored
        if stored.batches is None:
            stored.batches = self._answers.of(_Span(stored), stored.body)  # type: ignore[arg-type]
        try:
            item = next(stored.batches, None)
        except BaseException as error:
            with self._lock.lock:
                self.member.giving.rewind(turn)
            if not self.comes_again(error):
                raise
            self.turn()
            return None
        return self._given(turn, item, is_seen=is_seen)

    def _given(
        self, turn: Turn, item: tuple[DecodedPlace, pa.RecordBatch] | None, *, is_seen: bool
    ) -> Batch | None:
        stored, is_over = turn.stored, item is None
        place: ConsumerPlace | None = None
        with self._lock.lock:
            if item is not None:
                at, give = item[0], self.member.giving.give
                place = give(turn, at.first_offset, at.rows, at.epoch, now_s(), is_seen=is_seen)
                is_over = place is not None and place.end_offset >= stored.end
            if is_over:
                self.member.giving.finish(turn)
        if is_over:
            self.turn()  # there is room for the next answer
        if item is None:
            return None
        if place is None:
            stored.batches = _again(item, stored.batches)
            return None
        self.place = place
        return Batch(place, item[1])

    def seen(self) -> bool:
        """See `AnyCore.seen`."""
        with self._lock.lock:
            return self.member.giving.seen()

    def take_back(self) -> None:
        """See `AnyCore.take_back`."""
        with self._lock.lock:
            self.member.giving.take_back()
        self.turn()

    # ---- what the application says -------------------------------------------------------------------------

    def locate(self, task: Task, settings: Settings) -> None:
        """Ask the application's store for positions (CHECKPOINT). An error of it ends the consumer.

        Raises:
            PositionError: the store has less than the cohort was told of.
            TruncatedError: partitions before were removed unread.
        """
        try:
            for partition in task.partitions:
                with self._lock.lock:
                    question = self.member.question(partition)
                if question is None:
                    # The report of the last rows may be lost with a process: then the children of a partition
                    # that was read to its end would wait for ever.
                    position = settings.position(partition)
                    tells = position is not None and settings.report
                else:
                    position, tells = begin_of(partition, question, settings)
                with self._lock.lock:
                    self.member.positioned(partition, position, tells=tells)
        except Exception as error:
            with self._lock.lock:
                self.member.state.fail(error, is_final=True)
            raise

    def acknowledge(
        self, place: ConsumerPlace | None, then: Callable[[Exception | None], None] | None = None
    ) -> None:
        """Rows through a place are done; None: all that was given. `then`: called when owners have it."""
        self.check()
        with self._lock.lock:
            self.member.consuming.check_acknowledge()
            if place is None:
                self._acknowledge_given(then)
                self.member.look_silent()
            elif not self.member.acknowledge(place, then) and then is not None:
                lost = self.member.holding.not_settled(place)
                then(lost_error({place.partition: lost}, LOST) if lost else None)
        if then is not None:
            self.turn()

    def _acknowledge_given(self, then: Callable[[Exception | None], None] | None) -> None:
        self.member.giving.acknowledge_given(urgent=then is not None)
        if then is None:
            return
        owing = [gate for gate in self.member.state.gates.values() if gate.owes]
        outcomes = Outcomes(then, LOST)
        outcomes.of(owing)
        outcomes.lose(self.member.state.lost_rows.take())
        for gate in owing:
            gate.wait_settled.append((gate.told.offset, outcomes))
        if not outcomes.begin():
            outcomes.end()

    def pause(self, partitions: Iterable[int], *, is_paused: bool) -> None:
        """Stop or go on giving rows of partitions."""
        self.check()
        with self._lock.lock:
            self.member.pause(partitions, is_paused=is_paused)
        self.turn()

    def interrupted(self, error: BaseException) -> None:
        """What is not acknowledged comes again."""

    # ---- what it may know. From any thread -----------------------------------------------------------------

    def assignment(self) -> list[int]:
        """The partitions that this member holds or waits for."""
        with self._lock.lock:
            return sorted(self.member.state.gates)

    @property
    def is_member(self) -> bool:
        """Whether rows may come."""
        return bool(self.assignment())

    def lag(self) -> dict[int, int]:
        """By partition that is held: rows that are not settled, as of its owner's last answer."""
        with self._lock.lock:
            return {
                one: max(0, (gate.mark if gate.end is None else gate.end) - gate.settled.offset)
                for one, gate in self.member.state.gates.items()
                if gate.hold
            }

    def fencing_token(self, partition: int) -> int | None:
        """The number of the hold; None: the partition is not held."""
        with self._lock.lock:
            gate = self.member.state.gates.get(partition)
            return gate.hold or None if gate is not None else None

    def waiting_text(self) -> str:
        """`waits_for` for a message; empty if there is none."""
        waits = self.waits_for()
        return partitions_text(waits) if waits else ""


def _again(
    item: tuple[DecodedPlace, pa.RecordBatch], batches: Iterator[tuple[DecodedPlace, pa.RecordBatch]]
) -> Iterator[tuple[DecodedPlace, pa.RecordBatch]]:
    """Batches with one put back in front."""
    return chain([item], batches)
