"""Rows of a QUEUE in the hands of the application: given, extended, and what it says of them. Pure.

stored --give--> in hand --settle--> told          "begun" is said when rows are given,
                    |                              "extended" while they are in hand
                    +-- lost: their lease went on without this member
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from ringfence.consumer.calls import Why
from ringfence.consumer.lost_rows import LostRows, Outcomes
from ringfence.consumer.queue_calls import NotTakenBecause, QueueSettle, Told, What
from ringfence.consumer.queue_fetching import EXTENSIONS_A_LEASE
from ringfence.consumer.queue_rows import LOST_RANGES_MAX, KnownRows, RowsInHand, common, overlaps, without
from ringfence.consumer.queue_telling import LINES_MAX, LOST, Telling
from ringfence.consumer.values import ConsumerPlace, TaskKind
from ringfence.native.wire import REASON_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ringfence.consumer.calls import Refusal
    from ringfence.consumer.queue_calls import QueueSettled
    from ringfence.consumer.queue_fetching import QueueFetching
    from ringfence.consumer.queue_rows import Range, StoredRows
    from ringfence.consumer.queue_telling import QueueTelling
    from ringfence.consumer.state import State

# Rows are not given in the last tenth of their lease, of which this is the most, in seconds: it covers clocks
# that run at different rates.
MARGIN_S_MAX: Final = 0.5
MARGINS_A_LEASE: Final = 10
# Refusals of an extension after which the lease is over.
ENDED: Final = frozenset({NotTakenBecause.ON_LEASE, NotTakenBecause.OTHER_COUNT, NotTakenBecause.OTHER_ROWS})


class Verdict(Enum):
    """Whether decoded rows may be given."""

    GIVE = "give"
    # The owner must hear first that they are begun.
    LATER = "later"
    # They are not on lease to this member: skip them.
    SKIP = "skip"
    # The lease of the whole answer is over.
    OVER = "over"


class QueueHands:
    """What the application has."""

    def __init__(self, state: State, fetching: QueueFetching, telling: QueueTelling) -> None:
        self._state, self._fetching, self._telling = state, fetching, telling
        self._rows: dict[int, dict[int, RowsInHand]] = {}  # by partition and first row
        self._begun: dict[int, list[Told]] = {}  # by partition: to be said, nothing waits for it
        self._asked: dict[int, StoredRows] = {}  # by call: "begun", before the rows are given
        self._extending: dict[int, int] = {}  # by partition: number of the call
        self._last: RowsInHand | None = None  # that the application has got
        self._unseen: list[RowsInHand] = []  # given, and the application has not got them
        self.done = KnownRows()
        self._known_lost = KnownRows(LOST_RANGES_MAX)  # an error of who acknowledges their batch
        self._unheard = LostRows()  # an error of who acknowledges all that was given

    # ---- give --------------------------------------------------------------------------------------------

    @property
    def _margin_s(self) -> float:
        return min(MARGIN_S_MAX, self._state.rows_lease_s / MARGINS_A_LEASE)

    def turn(self, now: float) -> StoredRows | None:
        """The answer whose rows are next; None: nothing can be given."""
        for stored in list(self._fetching.stored):
            if now >= stored.until - self._margin_s:
                self._fetching.drop([stored])  # others get the rows
            elif stored.may_begin:
                return stored
            elif not stored.is_asked:
                self._ask(stored, now)
        return None

    def _ask(self, stored: StoredRows, now: float) -> None:
        """Say that the first line is begun, and wait for the answer."""
        if stored.node not in self._state.attached:
            return
        line = stored.lines[0]
        told = (Told(line.first, line.end, line.epoch, What.BEGUN, line.failures),)
        call = self._state.call(
            lambda number: QueueSettle(number, stored.node, stored.partition, stored.incarnation, told), now
        )
        stored.is_asked = True
        self._asked[call.number] = stored

    def verdict(self, stored: StoredRows, first: int, now: float) -> Verdict:
        """Whether rows from `first` on may be given."""
        if stored not in self._fetching.stored or now >= stored.until - self._margin_s:
            return Verdict.OVER
        line = stored.line_at(first)
        if line is None:
            self._fetching.finish(stored)
            return Verdict.OVER
        if line.first > first:
            return Verdict.SKIP
        return Verdict.GIVE if stored.may_begin else Verdict.LATER

    def give(
        self, stored: StoredRows, first: int, rows: int, epoch: int, *, is_seen: bool = True
    ) -> tuple[ConsumerPlace, int]:
        """The application gets these rows of the first line. Returns where they are, and their count.

        `is_seen`: it has them when this returns, and not after a call of `seen`.
        """
        line = stored.lines[0]
        end = first + rows
        in_hand = RowsInHand(stored, first, end, epoch, line.failures)
        earlier = self._rows.setdefault(stored.partition, {}).pop(first, None)
        if earlier is not None:
            # Its lease was over: the same rows came again, and others of it may not.
            self._lose(earlier, without(earlier.open, [(first, end)]))
            self._forget(earlier)
        self._rows[stored.partition][first] = in_hand
        if is_seen:
            self._last = in_hand
        else:
            self._unseen.append(in_hand)
        for known in (self.done, self._known_lost):
            known.given(stored.partition, stored.incarnation, (first, end))
        self._unheard.given(stored.partition, (first, end))
        told = Told(first, end, epoch, What.BEGUN, line.failures)
        if not line.is_again:
            self._begun.setdefault(stored.partition, []).append(told)
        if end >= line.end:
            stored.next_line()
        else:
            stored.lines[0] = line._replace(first=end)
        if not stored.lines:
            self._fetching.finish(stored)
        return ConsumerPlace(stored.partition, first, end, epoch, stored.incarnation), line.failures

    def seen(self) -> bool:
        """The application gets the rows that it has not got. False: their leases are over."""
        unseen, self._unseen = self._unseen, []
        got = [in_hand for in_hand in unseen if in_hand.open]
        self._last = got[-1] if got else self._last
        return bool(got)

    def take_back(self) -> None:
        """The application will not get the rows that it has not got: they go back."""
        unseen, self._unseen = self._unseen, []
        for in_hand in unseen:
            for first, end in in_hand.take([(in_hand.first, in_hand.end)]):
                told = Told(first, end, in_hand.epoch, What.RELEASED, in_hand.failures)
                self._tell(in_hand.stored, told, in_hand=in_hand)
            self._forget(in_hand)

    def undecodable(self, stored: StoredRows, rows: Range | None, reason: str) -> None:
        """Records of an answer cannot be decoded: their rows fail, the others of the answer come again."""
        ranges = [] if rows is None else [rows]
        text = text_of(reason)
        for line in stored.lines:
            for first, end in common([(line.first, line.end)], ranges):
                self._tell(stored, Told(first, end, line.epoch, What.FAILED, line.failures, 0, text))
        if rows is not None:
            stored.leave_out(rows)
        self._fetching.release(stored)

    # ---- what the application says -------------------------------------------------------------------------

    def settle(
        self,
        place: ConsumerPlace,
        ranges: Iterable[Range],
        told: Told,
        then: Callable[[Exception | None], None] | None = None,
    ) -> list[Range]:
        """What became of rows of a place: `told`, but for its rows.

        Returns rows of which it does not count, if it counts of none: their lease is over. Otherwise `then`
        is called when an owner has it, or refused some of it; of rows that are done only. If an owner knows
        already that they are done, it is called immediately.
        """
        wanted = list(ranges)
        in_hand = self._rows.get(place.partition, {}).get(place.first_offset)
        is_known = in_hand is not None and in_hand.incarnation == place.fencing_token
        taken = in_hand.take(wanted) if in_hand is not None and is_known else []
        count = Outcomes(then, LOST)
        if then is not None:
            count.of(self._telling.wait(place.partition, wanted, count))
        for first, end in taken:
            assert in_hand is not None
            line = told._replace(first=first, end=end, epoch=in_hand.epoch, failures=in_hand.failures)
            self._tell(in_hand.stored, line, count if then is not None else None, in_hand)
            count.left += 1
        if in_hand is not None and taken and not in_hand.open:
            self._forget(in_hand)
        key = place.partition, place.fencing_token
        if count.begin() or taken:
            count.lose({place.partition: self._known_lost.known(*key, wanted)})
            return []
        others = self.done.others(*key, wanted) if told.what is What.DONE else wanted
        if not others and then is not None:
            then(None)
        return others

    def settle_all(self, told: Told, then: Callable[[Exception | None], None] | None = None) -> None:
        """What became of everything that the application has. What it has not got is not done."""
        count = Outcomes(then, LOST)
        if then is not None:
            count.of(self._telling.wait_all(count))
        for in_hand in self.all():
            if in_hand in self._unseen and told.what is What.DONE:
                continue
            for first, end in in_hand.take([(in_hand.first, in_hand.end)]):
                line = told._replace(first=first, end=end, epoch=in_hand.epoch, failures=in_hand.failures)
                self._tell(in_hand.stored, line, count if then is not None else None, in_hand)
                count.left += 1
            self._forget(in_hand)
        if then is not None:
            count.lose(self._unheard.take())
        if not count.begin():
            count.end()

    def _tell(
        self,
        stored: StoredRows,
        told: Told,
        then: Callable[[Exception | None], None] | None = None,
        in_hand: RowsInHand | None = None,
    ) -> None:
        telling = Telling(
            stored.partition,
            stored.incarnation,
            told,
            stored.until if in_hand is None else in_hand.until,
            [] if then is None else [then],
            batch=None if in_hand is None else in_hand.first,
        )
        self._telling.tell(telling, urgent=then is not None or told.what is not What.DONE)

    def interrupted(self, reason: str) -> None:
        """An exception ended the loop: the rows that were given last have failed."""
        last = self._last
        if last is not None and last.open:
            place = ConsumerPlace(last.stored.partition, last.first, last.end, last.epoch, last.incarnation)
            told = Told(0, 0, 0, What.FAILED, reason=text_of(reason))
            self.settle(place, [(last.first, last.end)], told)

    def all(self) -> list[RowsInHand]:
        """By partition and row."""
        return [rows for _, by_first in sorted(self._rows.items()) for _, rows in sorted(by_first.items())]

    @property
    def partitions(self) -> list[int]:
        """Those of which the application has rows."""
        return sorted(self._rows)

    def _forget(self, in_hand: RowsInHand) -> None:
        in_hand.take([(in_hand.first, in_hand.end)])
        partition = in_hand.stored.partition
        of_partition = self._rows.get(partition, {})
        if of_partition.get(in_hand.first) is in_hand:
            del of_partition[in_hand.first]
            if not of_partition:
                del self._rows[partition]
        self._fetching.freed(in_hand.stored)

    # ---- leases ------------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Say what is begun, and extend leases."""
        for partition in list(self._begun):
            self._say_begun(partition, self._begun.pop(partition), now)
        for partition, by_first in self._rows.items():
            if partition in self._extending:
                continue
            due = [one for one in by_first.values() if now >= one.extend_at]
            if due:
                self._extend(partition, due, now)

    def _node_of(self, partition: int) -> int | None:
        node = self._state.routes.node_of(partition)
        return node if node in self._state.attached else None

    def _say_begun(self, partition: int, lines: list[Told], now: float) -> None:
        node = self._node_of(partition)
        if node is None:
            return  # the connection ended, and with it the leases, or they go on and are not counted
        lines = sorted(lines)[:LINES_MAX]
        kept = tuple(one for at, one in enumerate(lines) if at == 0 or one.first >= lines[at - 1].end)
        self._state.call(
            lambda number: QueueSettle(number, node, partition, self._state.incarnation, kept), now
        )

    def _extend(self, partition: int, due: list[RowsInHand], now: float) -> None:
        node = self._node_of(partition)
        if node is None:
            return
        due.sort(key=lambda one: one.first)
        incarnation = due[0].incarnation
        lines: list[Told] = []
        for one in due:
            one.extend_at = now + self._state.rows_lease_s / EXTENSIONS_A_LEASE
            for first, end in one.open:
                if one.incarnation == incarnation and (not lines or first >= lines[-1].end):
                    lines.append(Told(first, end, one.epoch, What.EXTENDED, one.failures))
        call = self._state.call(
            lambda number: QueueSettle(number, node, partition, incarnation, tuple(lines[:LINES_MAX])), now
        )
        self._extending[partition] = call.number

    def answered(self, call: QueueSettle, reply: QueueSettled, made_at: float) -> None:
        """An owner heard that rows are begun, or extended their lease."""
        refused = [(one.first, one.end) for one in reply.not_taken if one.why in ENDED]
        stored = self._asked.pop(call.number, None)
        if stored is not None:
            self._begin(stored, call.lines[0], refused)
        if self._extending.get(call.partition) != call.number:
            return
        del self._extending[call.partition]
        until = made_at + self._state.rows_lease_s
        for in_hand in list(self._rows.get(call.partition, {}).values()):
            if any(line.first < in_hand.end and in_hand.first < line.end for line in call.lines):
                in_hand.until = max(in_hand.until, until)
        self._lost(call.partition, refused)

    def _begin(self, stored: StoredRows, told: Told, refused: list[Range]) -> None:
        if stored not in self._fetching.stored or stored.lines[0].first > told.first:
            return
        if not overlaps(told.first, told.end, refused):
            stored.is_confirmed = True
        else:
            stored.next_line()
            if not stored.lines:
                self._fetching.finish(stored)
        self._state.ring()

    def _lost(self, partition: int, ranges: list[Range]) -> None:
        """The lease of rows is over, though the application has them."""
        is_any = False
        for in_hand in list(self._rows.get(partition, {}).values()):
            is_any |= self._lose(in_hand, common([(in_hand.first, in_hand.end)], ranges))
            if not in_hand.open:
                self._forget(in_hand)
        if is_any:
            self.tell_lost([partition])

    def _lose(self, in_hand: RowsInHand, ranges: Iterable[Range]) -> bool:
        """Rows that the application has said nothing of go to others. False: there are none."""
        lost = in_hand.take(ranges)
        if lost and in_hand not in self._unseen:
            self._is_lost(in_hand.stored.partition, in_hand.incarnation, lost)
        return bool(lost)

    def _is_lost(self, partition: int, incarnation: int, ranges: Iterable[Range]) -> None:
        lost = list(ranges)
        self._known_lost.add(partition, incarnation, *lost)
        self._unheard.add(partition, lost)

    def done_too_late(self, partition: int, incarnation: int, ranges: list[Range]) -> None:
        """An owner does not take rows as done."""
        self._is_lost(partition, incarnation, ranges)
        self.tell_lost([partition])

    def tell_lost(self, partitions: Iterable[int]) -> None:
        """The application hears that rows went to others."""
        if TaskKind.LOST in self._state.options.tells:
            self._state.tell(TaskKind.LOST, partitions)

    def failed(self, call: QueueSettle, refusal: Refusal | None, now: float) -> None:
        """It was refused as a whole, or got no answer: it is said again, if it still matters."""
        stored = self._asked.pop(call.number, None)
        if stored is not None:
            stored.is_asked = False
            self._state.ring()
        if self._extending.get(call.partition) != call.number:
            return
        del self._extending[call.partition]
        if refusal is not None and refusal.why is Why.NOT_ASSIGNED:
            self._lost(call.partition, [(line.first, line.end) for line in call.lines])
            return
        for in_hand in self._rows.get(call.partition, {}).values():
            in_hand.extend_at = min(in_hand.extend_at, now + self._state.rows_lease_s / 10)

    def routed(self, moved: Iterable[int]) -> None:
        """Other nodes have the gates of these partitions: leases are taken up again there, now."""
        for partition in moved:
            self._extending.pop(partition, None)
            for in_hand in self._rows.get(partition, {}).values():
                in_hand.extend_at = 0.0

    def all_lost(self) -> None:
        """The session is over: no lease goes on."""
        partitions = self.partitions
        for in_hand in self.all():
            self._lose(in_hand, [(in_hand.first, in_hand.end)])
            self._forget(in_hand)
        self._begun.clear()
        self._last, self._unseen = None, []
        self.tell_lost(partitions)

    def faults(self) -> Iterator[str]:
        """What must never hold; tests look after each event."""
        for in_hand in self.all():
            if not in_hand.open:
                yield f"rows {in_hand.first} to {in_hand.end} are in hand, and all is said of them"
        for partition, number in self._extending.items():
            if number not in self._state.calls:
                yield f"extension {number} of partition {partition} is over"


def text_of(reason: str) -> bytes:
    """A reason as an owner keeps it: at most 240 bytes of UTF-8."""
    return reason.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore").encode()
