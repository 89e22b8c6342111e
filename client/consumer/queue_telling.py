"""What the owners of a QUEUE's rows must hear of them: merged, one request under way at each node. Pure.

That rows are done may be said at any time, also to another owner, and is repeated until it is answered. All
else is about one lease: it is repeated only if it was not carried out for sure, and only within the lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.consumer.calls import Note, Why
from ringfence.consumer.lost_rows import lost_error
from ringfence.consumer.queue_calls import NotTakenBecause, QueueSettle, RowsParked, Told, What
from ringfence.consumer.queue_rows import common, overlaps, without
from ringfence.native.wire import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ringfence.consumer.calls import Refusal
    from ringfence.consumer.queue_calls import QueueSettled, RowsNotTaken
    from ringfence.consumer.queue_rows import Range
    from ringfence.consumer.state import State

LINES_MAX: Final = 4096  # acknowledge_entries_max
RETRY_S: Final = 0.2
ROWS_DUE: Final = 32_768
"""Rows of a partition that are done are told without waiting for the interval. Half of the rows of an answer:
a node gives a member 2**20 on lease, so one that reads as fast as it can never waits for them."""
LOST: Final = (
    "their lease was over before: another member has them, they are parked, or an owner was lost with them"
)
# Refusals after which nothing of the request was carried out.
NOT_CARRIED_OUT: Final = frozenset({Code.OVERLOADED, Code.HELD})


class Telling:
    """Something to be told, until it is answered.

    `until`: the end of the lease that it is about. `batch`: the first row of the batch that it is of.
    """

    __slots__ = ("batch", "incarnation", "not_before", "partition", "then", "told", "until")

    def __init__(
        self,
        partition: int,
        incarnation: int,
        told: Told,
        until: float,
        then: list[Callable[..., None]],
        *,
        batch: int | None = None,
    ) -> None:
        self.partition, self.incarnation, self.told = partition, incarnation, told
        self.until, self.then, self.batch = until, then, batch
        self.not_before = 0.0

    @property
    def is_done(self) -> bool:
        return self.told.what is What.DONE

    def goes_on_with(self, next_one: Telling) -> bool:
        """Rows that are done and follow become part of this one, so that single rows cost no line each."""
        told, other = self.told, next_one.told
        is_one_batch = self.batch is not None and self.batch == next_one.batch
        if not is_one_batch or self.incarnation != next_one.incarnation or self.then or next_one.then:
            return False
        if not told.is_followed_by(other):
            return False
        self.told = told._replace(end=other.end)
        return True

    def end(self, error: Exception | None = None) -> None:
        """It has its outcome."""
        for call in self.then:
            call(error)
        self.then.clear()


class QueueTelling:
    """`on_lost(partition, incarnation, rows)`: rows that are done went to another member before.

    `on_done(partition, incarnation, rows)`: an owner knows that they are done.
    """

    def __init__(
        self,
        state: State,
        *,
        on_lost: Callable[[int, int, list[Range]], None],
        on_done: Callable[[int, int, Range], None],
    ) -> None:
        self._state, self._on_lost, self._on_done = state, on_lost, on_done
        self._pending: dict[int, list[Telling]] = {}  # by partition, who waits longest first
        self._under_way: dict[int, tuple[int, list[Telling]]] = {}  # by node, with the number of the call
        self._not_before: dict[int, float] = {}  # by node
        self._urgent: set[int] = set()  # partitions that do not wait for the interval
        self._done_rows: dict[int, int] = {}  # by partition: that wait to be told
        self._wakes = False

    def tell(self, telling: Telling, *, urgent: bool = False) -> None:
        """An owner is to hear it."""
        partition, told = telling.partition, telling.told
        pending = self._pending.get(partition)
        if pending is None:
            self._pending[partition] = [telling]
            self._wakes = True
        elif not pending[-1].goes_on_with(telling):
            pending.append(telling)
        if telling.is_done:
            self._done_rows[partition] = self._done_rows.get(partition, 0) + told.end - told.first
        if urgent or self._done_rows.get(partition, 0) >= ROWS_DUE:
            self._urgent.add(partition)
            self._wakes = True

    def wakes(self) -> bool:
        """Whether the I/O thread must look now. It looks by itself when an interval ends."""
        wakes, self._wakes = self._wakes, False
        return wakes

    def wait(
        self, partition: int, ranges: Iterable[Range], then: Callable[[Exception | None], None]
    ) -> list[Telling]:
        """Call `then` with the outcome of all under way of rows of these that are done. Returns these."""
        wanted = list(ranges)
        waiting = [one for one in self.waiting() if one.partition == partition]
        return self._wait([one for one in waiting if overlaps(one.told.first, one.told.end, wanted)], then)

    def wait_all(self, then: Callable[[Exception | None], None]) -> list[Telling]:
        """The same for all rows that are done."""
        return self._wait(self.waiting(), then)

    def _wait(self, tellings: list[Telling], then: Callable[[Exception | None], None]) -> list[Telling]:
        done = [one for one in tellings if one.is_done]
        for one in done:
            one.then.append(then)
            if one in self._pending.get(one.partition, ()):
                self._urgent.add(one.partition)
        return done

    def released_again(self, partition: int, ranges: Iterable[Range]) -> None:
        """Rows are on lease again: what waits to be said of the lease before would end this one."""
        wanted = list(ranges)
        waiting = self._pending.get(partition, [])
        over = [one for one in waiting if not one.is_done and overlaps(one.told.first, one.told.end, wanted)]
        self._keep(partition, [one for one in waiting if one not in over])

    def session_over(self) -> None:
        """Leases are over. What is done may still be told."""
        for partition in list(self._pending):
            self._keep(partition, [one for one in self._pending[partition] if one.is_done])

    def end_waiting(self, error: Exception) -> None:
        """Who waits for an outcome hears this error."""
        for one in self.waiting():
            one.end(error)

    def _keep(self, partition: int, tellings: list[Telling]) -> None:
        if tellings:
            self._pending[partition] = tellings
        else:
            self._pending.pop(partition, None)
            self._urgent.discard(partition)

    def waiting(self) -> list[Telling]:
        """All that has no answer yet."""
        under_way = [one for _, tellings in self._under_way.values() for one in tellings]
        return under_way + [one for tellings in self._pending.values() for one in tellings]

    @property
    def is_idle(self) -> bool:
        """Whether no owner must hear anything."""
        return not self._pending and not self._under_way

    # ---- requests ----------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Make the requests that are due."""
        for partition in list(self._pending):
            node = self._state.routes.node_of(partition)
            if node is None or node not in self._state.attached or node in self._under_way:
                continue
            if now >= self._not_before.get(node, 0.0) or partition in self._urgent:
                self._tell(node, partition, now)

    def _tell(self, node: int, partition: int, now: float) -> None:
        waiting = self._pending.pop(partition)
        self._done_rows.pop(partition, None)
        waiting = [one for one in waiting if one.is_done or now < one.until]
        due = [one for one in waiting if one.not_before <= now]
        chosen = _chosen(due)
        taken = set(map(id, chosen))
        self._keep(partition, [one for one in waiting if id(one) not in taken])
        if not chosen:
            return
        self._urgent.discard(partition)
        lines = _merged(one.told for one in chosen)
        incarnation = chosen[0].incarnation
        call = self._state.call(lambda number: QueueSettle(number, node, partition, incarnation, lines), now)
        self._under_way[node] = call.number, chosen
        self._not_before[node] = now + self._state.options.interval_s

    # ---- outcomes ----------------------------------------------------------------------------------------

    def settled(self, call: QueueSettle, reply: QueueSettled, now: float) -> None:
        """An owner has it, but for some rows."""
        for telling in self._ended(call):
            told = telling.told
            refused = [one for one in reply.not_taken if one.first < told.end and told.first < one.end]
            self._outcome(telling, refused, now)

    def _outcome(self, telling: Telling, refused: list[RowsNotTaken], now: float) -> None:
        whys = {one.why for one in refused}
        told = telling.told
        if NotTakenBecause.PARKED in whys:
            reason = told.reason.decode(errors="replace")
            text = (
                f"rows {told.first} to {told.end - 1} of partition {telling.partition} are parked: {reason}"
            )
            self._state.effects += [Note(text), RowsParked(telling.partition, told.first, told.end)]
        if NotTakenBecause.NO_ROOM in whys and now < telling.until:
            telling.not_before = now + RETRY_S
            self.tell(telling)
            return
        if not telling.is_done:
            telling.end()
            return
        all_rows, of_others = [(told.first, told.end)], [(one.first, one.end) for one in refused]
        for rows in without(all_rows, of_others):
            self._on_done(telling.partition, telling.incarnation, rows)
        lost = list(common(all_rows, of_others))
        if lost:
            self._on_lost(telling.partition, telling.incarnation, lost)
        telling.end(lost_error({telling.partition: lost}, LOST) if lost else None)

    def failed(self, call: QueueSettle, refusal: Refusal | None, now: float) -> None:
        """It was refused as a whole, or got no answer."""
        for telling in self._ended(call):
            if refusal is not None and refusal.why in {Why.NOT_ASSIGNED, Why.FINAL}:
                # Of before a seek, or a topic that is gone: nothing of it counts any more.
                rows = telling.told.first, telling.told.end
                telling.end(refusal.error or lost_error({telling.partition: [rows]}, LOST))
                continue
            if telling.is_done or _was_not_carried_out(refusal):
                self.tell(telling)
        wait_s = max(RETRY_S, 0.0 if refusal is None else refusal.retry_after_s)
        self._not_before[call.node] = now + wait_s
        self._urgent.discard(call.partition)
        if refusal is not None and refusal.why is Why.REDIRECT:
            self._state.needs_table = max(self._state.needs_table or 0, refusal.version)

    def _ended(self, call: QueueSettle) -> list[Telling]:
        number, tellings = self._under_way.get(call.node, (0, []))
        if number != call.number:
            return []
        del self._under_way[call.node]
        return tellings

    def down(self, node: int) -> None:
        """The connection ended; calls that were under way there end without an answer."""
        self._not_before.pop(node, None)

    def faults(self) -> Iterable[str]:
        """What must never hold; tests look after each event."""
        for node, (number, _) in self._under_way.items():
            if number not in self._state.calls:
                yield f"node {node} waits for call {number}, which is over"
        for partition, tellings in self._pending.items():
            if not tellings:
                yield f"nothing waits of partition {partition}"


def _was_not_carried_out(refusal: Refusal | None) -> bool:
    if refusal is None:
        return False
    code = getattr(refusal.error, "code", None)
    return refusal.why is Why.REDIRECT or code in NOT_CARRIED_OUT


def _chosen(tellings: list[Telling]) -> list[Telling]:
    """Those that fit into one request: of one incarnation, ascending, none with rows of another."""
    chosen: list[Telling] = []
    for one in sorted(tellings, key=lambda one: (one.incarnation, one.told.first)):
        if len(chosen) == LINES_MAX or (chosen and one.incarnation != chosen[0].incarnation):
            break
        if not chosen or one.told.first >= chosen[-1].told.end:
            chosen.append(one)
    return chosen


def _merged(lines: Iterable[Told]) -> tuple[Told, ...]:
    """Neighbours that are done become one line."""
    merged: list[Told] = []
    for line in lines:
        last = merged[-1] if merged else None
        if last is not None and last.is_followed_by(line):
            merged[-1] = last._replace(end=line.end)
        else:
            merged.append(line)
    return tuple(merged)
