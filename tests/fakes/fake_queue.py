"""The owner of a QUEUE's rows in one partition, row by row: leases, counts, halves, parkings. For fakes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.consumer.queue_calls import Line, NotTakenBecause, RowsNotTaken, Told, What

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONNECTION_WAIT_S = 2.0


@dataclass
class RowLease:
    session: int
    until: float
    failures: int
    is_again: bool
    granted_at: float
    is_begun: bool = False
    is_delivered: bool = False


@dataclass
class FakeQueue:
    """Rows are offsets. `on_expired(row, lease)`: a lease ended by time."""

    lease_s: float = 30.0
    limit: int = 5
    incarnation: int = 1
    epochs: list[int] = field(default_factory=list)  # by row
    done: set[int] = field(default_factory=set)
    parked: dict[int, bytes] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    leases: dict[int, RowLease] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)
    delayed: dict[int, float] = field(default_factory=dict)
    halves: dict[int, int] = field(default_factory=dict)  # row -> number of its half
    on_expired: Callable[[int, RowLease], None] | None = None
    _halves: int = 0

    def publish(self, rows: int, epoch: int = 1) -> None:
        self.epochs += [epoch] * rows

    @property
    def is_settled(self) -> bool:
        return all(row in self.done or row in self.parked for row in range(len(self.epochs)))

    # ---- leases ------------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        for row, lease in list(self.leases.items()):
            if now >= lease.until:
                if self.on_expired is not None:
                    self.on_expired(row, lease)
                self._end(row, lease, is_again=False)

    def end_session(self, session: int) -> None:
        """Its connection ended and did not come back, or it is over."""
        for row, lease in list(self.leases.items()):
            if lease.session == session:
                self._end(row, lease, is_again=True)

    def new_owner(self) -> None:
        self.leases.clear()
        self.again.clear()
        self.delayed.clear()

    def seek(self, incarnation: int) -> None:
        """Begin again at row 0."""
        self.incarnation = incarnation
        for state in (
            self.done,
            self.parked,
            self.failures,
            self.leases,
            self.again,
            self.delayed,
            self.halves,
        ):
            state.clear()

    def _end(self, row: int, lease: RowLease, *, is_again: bool) -> None:
        del self.leases[row]
        if lease.is_begun:
            self.failures[row] = lease.failures + 1
        if is_again:
            self.again.add(row)

    def lease(self, session: int, now: float, rows_max: int) -> list[Line]:
        """Lease the first rows that are free, at most so many."""
        self.expire(now)
        lines: list[Line] = []
        first: int | None = None
        halves: list[int] = []
        for row in range(len(self.epochs)):
            if first is not None and row >= first + rows_max:
                break
            if row in self.done or row in self.parked or row in self.leases or self.delayed.get(row, 0) > now:
                continue
            first = row if first is None else first
            failures, is_again = self.failures.get(row, 0), row in self.again
            half, epoch = self.halves.get(row, 0), self.epochs[row]
            self.leases[row] = RowLease(session, now + self.lease_s, failures, is_again, now)
            self.again.discard(row)
            line = Line(row, row + 1, epoch, failures, is_again)
            last = lines[-1] if lines else None
            if last is not None and last == line._replace(first=last.first, end=row) and halves[-1] == half:
                lines[-1] = last._replace(end=row + 1)
            else:
                lines.append(line)
                halves.append(half)
        return lines

    # ---- acknowledgements --------------------------------------------------------------------------------

    def tell(self, session: int, lines: tuple[Told, ...], now: float) -> tuple[RowsNotTaken, ...]:
        """What was not taken."""
        self.expire(now)
        ends = [line.end for line in lines]
        assert all(end <= line.first for end, line in zip(ends, lines[1:], strict=False)), lines
        return tuple(one for line in lines for one in self._tell(session, line, now))

    def _tell(self, session: int, told: Told, now: float) -> Iterator[RowsNotTaken]:
        if told.end > len(self.epochs) or self.epochs[told.end - 1] != told.epoch:
            yield RowsNotTaken(told.first, told.end, NotTakenBecause.OTHER_ROWS)
            return
        if told.what is What.FAILED and told.end - told.first > 1:
            self._halves += 2
        for row in range(told.first, told.end):
            why = self._row(session, row, told, now)
            if why is not None:
                yield RowsNotTaken(row, row + 1, why)

    def _row(self, session: int, row: int, told: Told, now: float) -> NotTakenBecause | None:
        lease = self.leases.get(row)
        if told.what is What.DONE:
            if row in self.parked or (lease is not None and lease.session != session):
                return NotTakenBecause.ON_LEASE
            self.leases.pop(row, None)
            self.done.add(row)
            return None
        if told.what is What.EXTENDED and lease is None:
            if row in self.done or row in self.parked or self.failures.get(row, 0) != told.failures:
                return NotTakenBecause.OTHER_COUNT
            self.leases[row] = RowLease(
                session, 0, told.failures, False, now, is_begun=True, is_delivered=True
            )
            self.again.discard(row)
            lease = self.leases[row]
        if lease is None or lease.failures != told.failures:
            return NotTakenBecause.OTHER_COUNT
        if lease.session != session:
            return NotTakenBecause.ON_LEASE
        return self._own(row, lease, told, now)

    def _own(self, row: int, lease: RowLease, told: Told, now: float) -> NotTakenBecause | None:
        match told.what:
            case What.EXTENDED:
                lease.until = now + self.lease_s
            case What.BEGUN:
                lease.is_begun = True
            case What.RELEASED:
                del self.leases[row]
            case What.PARKED:
                del self.leases[row]
                self.parked[row] = told.reason
                return NotTakenBecause.PARKED
            case What.FAILED:
                del self.leases[row]
                self.failures[row] = lease.failures + 1
                self.delayed[row] = now + told.delay_ms / 1000
                middle = (told.first + told.end + 1) // 2
                self.halves[row] = self._halves + (row >= middle)
                if told.end - told.first == 1 and 0 < self.limit <= self.failures[row]:
                    self.parked[row] = told.reason
                    return NotTakenBecause.PARKED
            case _:
                self.leases.pop(row)
                self.done.add(row)
        return None
