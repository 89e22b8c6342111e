"""Which rows of a QUEUE a member asks for, and where. Pure.

One FETCH waits at each node with gates; it brings rows of whatever partition the node has some of. A node
is asked when the application has all rows of its answer before, or will have them very soon, so that a member
takes no more from the others than it can work on. Rows of a sealed partition are on lease at its heir's
owner, and are read at its own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ringfence.consumer.calls import HOME, Read, Why
from ringfence.consumer.fetching import BYTES_MAX, BYTES_MIN, POLL_S, RETRY_S, RETRY_S_MAX
from ringfence.consumer.queue_calls import Line, QueueFetch, Told, What
from ringfence.consumer.queue_pace import Pace
from ringfence.consumer.queue_rows import StoredRows, lines_without
from ringfence.consumer.queue_telling import Telling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringfence.consumer.calls import Fetched, Refusal
    from ringfence.consumer.queue_calls import Leased
    from ringfence.consumer.queue_rows import Range
    from ringfence.consumer.queue_telling import QueueTelling
    from ringfence.consumer.routes import Routes
    from ringfence.consumer.state import State

# Leases are extended so often before they end, so that a lost request does not end one.
EXTENSIONS_A_LEASE: Final = 3
# A FETCH waits at most for this part of a lease: a member counts a lease from its request on, not knowing
# when it began. A wait as long as the lease would bring rows that may not be given any more, again and again.
POLLS_A_LEASE: Final = 4
# An answer of so many rows, half of what a node gives, or of half the bytes asked for, is a full one.
FULL_ROWS: Final = 32_768


class Elsewhere:
    """Rows on lease of a sealed partition, while their records are read."""

    __slots__ = ("extend_at", "leased", "lines", "node", "retry_at", "tries", "until")

    def __init__(self, node: int, leased: Leased, until: float, extend_at: float) -> None:
        self.node, self.leased, self.until, self.extend_at = node, leased, until, extend_at
        self.lines = deque(leased.lines)
        self.retry_at, self.tries = 0.0, 0


class QueueFetching:
    """Asks for rows while there is room for them.

    Attributes:
        stored: answers that the application has not got completely, in the order of arrival.
    """

    def __init__(self, state: State, telling: QueueTelling) -> None:
        self._state, self._telling = state, telling
        self.stored: list[StoredRows] = []
        self._fetches: dict[int, list[int]] = {}  # by node: numbers of the calls, two at most
        self._is_full: dict[int, bool] = {}  # by node: its last answer was large, so it may have more
        self._paces: dict[int, Pace] = {}  # by node
        self._retry_at: dict[int, float] = {}  # by node
        self._tries: dict[int, int] = {}  # by node
        self._elsewhere: list[Elsewhere] = []
        self._reads: dict[int, Elsewhere] = {}  # by call

    # ---- requests ----------------------------------------------------------------------------------------

    def pump(self, now: float) -> None:
        """Make the requests that are due."""
        state = self._state
        if state.is_closing:
            return
        for node in sorted(state.attached & state.routes.owners - {HOME}):
            is_busy = self._is_busy(node, now) or len(self._fetches.get(node, ())) >= self._asked_max(node)
            if not is_busy and now >= self._retry_at.get(node, 0.0) and self._has_room():
                self._fetch(node, now)
        for one in list(self._elsewhere):
            if now >= one.until:
                self._elsewhere.remove(one)  # others get the rows
            elif one not in self._reads.values() and now >= one.retry_at:
                self._read(one, now)

    def _is_busy(self, node: int, now: float) -> bool:
        """Whether the application has enough to do with rows of this node: one answer ahead is the most."""
        answers = [one for one in self.stored if one.node == node]
        pace = self._paces.setdefault(node, Pace())
        pace.look(answers[0] if answers else None, now)
        if any(one.node == node for one in self._elsewhere) or len(answers) > 1:
            return True
        return not pace.ends_soon(now)

    def _asked_max(self, node: int) -> int:
        """Two where the application waits and its node was full: one is read while the other is on its way.

        A node that has no rows ends the first of two immediately, so a second one is asked for only here.
        """
        waits = all(one.node != node for one in self.stored)
        return 2 if waits and self._is_full.get(node, False) else 1

    def _read(self, one: Elsewhere, now: float) -> None:
        partition, first = one.leased.partition, one.lines[0].first
        read = self._state.call(lambda number: Read(number, partition, first, 0, self._bytes()), now)
        self._reads[read.number] = one

    def _bytes(self) -> int:
        share = self._state.options.bytes_max // (2 * max(1, len(self._state.routes.owners)))
        return max(BYTES_MIN, min(BYTES_MAX, share))

    def _has_room(self) -> bool:
        state, asked = self._state, sum(map(len, self._fetches.values()))
        # One at a time is always allowed, if none is ahead of the application.
        if asked == 0 and not self.stored:
            return True
        return state.bytes + (asked + 1) * self._bytes() <= state.options.bytes_max

    def _fetch(self, node: int, now: float) -> None:
        rows_max = self._state.options.rows_max
        poll_s = min(POLL_S, self._state.rows_lease_s / POLLS_A_LEASE)
        call = self._state.call(lambda number: QueueFetch(number, node, self._bytes(), rows_max, poll_s), now)
        self._fetches.setdefault(node, []).append(call.number)

    # ---- outcomes ----------------------------------------------------------------------------------------

    def _is_awaited(self, call: QueueFetch) -> bool:
        numbers = self._fetches.get(call.node, [])
        if call.number not in numbers:
            return False
        numbers.remove(call.number)
        if not numbers:
            del self._fetches[call.node]
        return True

    def fetched(self, call: QueueFetch, reply: Leased, made_at: float, now: float) -> None:
        """A node gave rows on lease, or has none."""
        self._is_awaited(call)
        state = self._state
        self._tries.pop(call.node, None)
        rows = sum(line.end - line.first for line in reply.lines)
        self._is_full[call.node] = rows >= FULL_ROWS or 2 * reply.bytes >= self._bytes()
        if not reply.lines:
            if now - made_at < RETRY_S:
                self._retry_at[call.node] = now + RETRY_S
            return
        if reply.incarnation < state.incarnation:
            return  # of before a seek: the node hears of it later, and nothing of it counts
        if reply.incarnation > state.incarnation:
            state.incarnation = reply.incarnation
            self.drop([one for one in self.stored if one.incarnation < reply.incarnation])
        if not state.routes.is_known(reply.partition):
            # Its node knows a newer layout. Nothing could be said of the rows without it.
            state.needs_table = max(state.needs_table or 0, state.routes.version + 1)
        self._telling.released_again(reply.partition, ((line.first, line.end) for line in reply.lines))
        # Who is asked has given the lease after the request was made: it ends later there than here.
        until = made_at + state.rows_lease_s
        extend_at = made_at + state.rows_lease_s / EXTENSIONS_A_LEASE
        node = state.routes.node_of(reply.partition)
        # By this member's table another node owns the rows: this one did before, and its successor gives
        # them to others; or it is a later one, and gets them back when the table is here.
        is_of_other = node not in {None, call.node}
        if state.is_closing or is_of_other:
            self._release(reply.partition, reply.incarnation, reply.lines, until)
        elif reply.is_elsewhere:
            self._elsewhere.append(Elsewhere(call.node, reply, until, extend_at))
        else:
            self._store(StoredRows(call.node, reply, reply.lines, until=until, extend_at=extend_at))

    def _store(self, stored: StoredRows) -> None:
        self.stored.append(stored)
        self._state.bytes += stored.bytes
        self._state.ring()

    def came_late(self, reply: Leased, now: float) -> None:
        """Rows on lease for a request that had no answer, as it seemed: others may have them immediately."""
        self._release(reply.partition, reply.incarnation, reply.lines, now + self._state.rows_lease_s)

    def read(self, call: Read, reply: Fetched, now: float) -> None:
        """Records of a sealed partition arrived: as far as they reach, its rows may be given."""
        one = self._reads.pop(call.number, None)
        if one is None or one not in self._elsewhere:
            return
        if reply.end <= one.lines[0].first:
            one.tries += 1
            one.retry_at = now + RETRY_S_MAX  # an owner of before does not have them
            return
        if reply.start > one.lines[0].first:
            self._gone(one, reply.start)  # an operator gave them up: no record has them
            if not one.lines:
                return
        lines: list[Line] = []
        while one.lines and one.lines[0].first < reply.end:
            line = one.lines.popleft()
            if line.end > reply.end:
                one.lines.appendleft(line._replace(first=reply.end))
                line = line._replace(end=reply.end)
            lines.append(line._replace(epoch=reply.epoch))
        part = replace(one.leased, bytes=reply.bytes, body=reply.body)
        self._store(StoredRows(one.node, part, lines, until=one.until, extend_at=one.extend_at))
        if not one.lines:
            self._elsewhere.remove(one)

    def refused(self, call: QueueFetch | Read, refusal: Refusal, now: float) -> None:
        """A node refused."""
        if isinstance(call, Read):
            self._read_refused(call, refusal, now)
        elif self._is_awaited(call):
            self._wait(call.node, refusal.retry_after_s, now)
        if refusal.why is Why.REDIRECT:
            self._state.needs_table = max(self._state.needs_table or 0, refusal.version)
        elif refusal.why is Why.FINAL and refusal.error is not None:
            self._state.fail(refusal.error)

    def _read_refused(self, call: Read, refusal: Refusal, now: float) -> None:
        one = self._reads.pop(call.number, None)
        if one is None or one not in self._elsewhere:
            return
        if refusal.why is Why.TRUNCATED and refusal.start > one.lines[0].first:
            self._gone(one, refusal.start)
        one.tries += 1
        one.retry_at = now + min(RETRY_S_MAX, RETRY_S * 2.0 ** min(one.tries, 9))

    def _gone(self, one: Elsewhere, start: int) -> None:
        """Rows of a sealed partition that no record has any more: they are done with, and counted as lost."""
        partition, incarnation = one.leased.partition, one.leased.incarnation
        while one.lines and one.lines[0].first < start:
            line = one.lines.popleft()
            if line.end > start:
                one.lines.appendleft(line._replace(first=start))
                line = line._replace(end=start)
            told = Told(line.first, line.end, 0, What.GONE, line.failures)
            self._telling.tell(Telling(partition, incarnation, told, one.until, []))
        if not one.lines:
            self._elsewhere.remove(one)

    def _wait(self, node: int, least_s: float, now: float) -> None:
        tries = self._tries[node] = self._tries.get(node, 0) + 1
        self._retry_at[node] = now + max(least_s, min(RETRY_S_MAX, RETRY_S * 2.0 ** min(tries - 1, 9)))

    def unanswered(self, call: QueueFetch | Read, now: float) -> None:
        """The request got no answer."""
        if isinstance(call, Read):
            one = self._reads.pop(call.number, None)
            if one is not None:
                one.retry_at = now + RETRY_S
        elif self._is_awaited(call):
            self._wait(call.node, 0.0, now)

    def done(self, partition: int, incarnation: int, rows: Range) -> None:
        """Rows are done, for certain. A lease of them that began right before that is not given."""
        for stored in list(self.stored):
            if (stored.partition, stored.incarnation) == (partition, incarnation):
                stored.leave_out(rows)
                if not stored.lines:
                    self.finish(stored)
        for one in list(self._elsewhere):
            if (one.leased.partition, one.leased.incarnation) == (partition, incarnation):
                one.lines = deque(lines_without(one.lines, rows))
                if not one.lines:
                    self._elsewhere.remove(one)

    # ---- the end of leases ---------------------------------------------------------------------------------

    def down(self, node: int) -> None:
        """The connection ended. Rows that were not given come again, soon if the owner hears of it."""
        for one in [one for one in self.stored if one.node == node]:
            self.release(one)
        for elsewhere in [one for one in self._elsewhere if one.node == node]:
            self._release_elsewhere(elsewhere)
        self._retry_at.pop(node, None)
        self._paces.pop(node, None)
        self._is_full.pop(node, None)

    def routed(self, before: Routes) -> None:
        """A newer table. Another owner gives the rows of the one before again; it may be the same node's."""
        routes, node_of = self._state.routes, self._state.routes.node_of
        self.drop([one for one in self.stored if node_of(one.partition) != one.node])
        self._elsewhere = [one for one in self._elsewhere if node_of(one.leased.partition) == one.node]

        def is_new(partition: int) -> bool:
            return routes.epoch_of(partition) != before.epoch_of(partition)

        # The table may be late, and the lease of the new owner.
        for stored in [one for one in self.stored if is_new(one.partition)]:
            self.release(stored)
        for elsewhere in [one for one in self._elsewhere if is_new(one.leased.partition)]:
            self._release_elsewhere(elsewhere)

    def all_lost(self) -> None:
        """The session is over."""
        self.drop(list(self.stored))
        self._elsewhere.clear()

    def release(self, stored: StoredRows) -> None:
        """Give the rows back that the application did not get."""
        self._release(stored.partition, stored.incarnation, stored.lines, stored.until)
        self.drop([stored])

    def release_all(self) -> None:
        """Give all rows back that the application did not get."""
        for stored in list(self.stored):
            self.release(stored)
        for one in list(self._elsewhere):
            self._release_elsewhere(one)

    def _release_elsewhere(self, one: Elsewhere) -> None:
        self._release(one.leased.partition, one.leased.incarnation, one.lines, one.until)
        self._elsewhere.remove(one)

    def _release(self, partition: int, incarnation: int, lines: Iterable[Line], until: float) -> None:
        for line in lines:
            told = Told(line.first, line.end, line.epoch, What.RELEASED, line.failures)
            self._telling.tell(Telling(partition, incarnation, told, until, []), urgent=True)

    def drop(self, answers: list[StoredRows]) -> None:
        """Forget the rows of answers that the application did not get."""
        for stored in answers:
            stored.lines.clear()
            self.finish(stored)

    def finish(self, stored: StoredRows) -> None:
        """All rows of an answer were given, or are not to be."""
        if stored in self.stored:
            self.stored.remove(stored)
            self.freed(stored)

    def freed(self, stored: StoredRows) -> None:
        """Its bytes do not count any more once the application has nothing of it."""
        if stored not in self.stored and not stored.open_rows:
            self._state.bytes -= stored.bytes
            stored.bytes = 0

    def faults(self) -> Iterator[str]:
        """What must never hold; tests look after each event."""
        for node, numbers in self._fetches.items():
            for number in numbers:
                if number not in self._state.calls:
                    yield f"node {node} waits for FETCH {number}, which is over"
        for stored in self.stored:
            if not stored.lines:
                yield f"{stored!r} has no rows to give"
