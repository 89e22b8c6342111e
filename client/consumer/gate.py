"""One partition of a member: its hold, what was fetched, given and acknowledged. Pure.

    settled <= told <= given <= fetched        offsets, under one hold

`told` is what the application acknowledged, `settled` what the owner has confirmed of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ringfence.consumer.values import Point

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ringfence.consumer.calls import Fetched


class Phase(Enum):
    # The application is told of it, or asked for its position, before anything is fetched.
    WAITING = "waiting"
    # No hold; a FETCH asks for one.
    OPENING = "opening"
    HELD = "held"
    # The plan names another member. Rows that the application has may be acknowledged until the release.
    LEAVING = "leaving"
    # The release was told, or will be with the next settlement.
    RELEASING = "releasing"
    # Sealed, and settled to its end.
    DRAINED = "drained"


WITH_HOLD = frozenset({Phase.HELD, Phase.LEAVING, Phase.RELEASING})
FETCHING = frozenset({Phase.OPENING, Phase.HELD})


@dataclass(slots=True, eq=False)
class Stored:
    """An answer that the application has not got completely. `batches`: its decoder's, once it has begun."""

    hold: int
    start: int
    end: int
    epoch: int
    bytes: int
    body: Any
    batches: Any = None


class Gate:
    """The state of one partition.

    Attributes:
        hold: number under which rows are given; 0: none.
        newest: greatest number that was ever held here, which a reopening names.
        lease_until: rows are given until then.
        position: where the application's store is (CHECKPOINT); None: where the cohort stands.
        end: of a sealed partition, the offset after its last row.
        release: the next settlement ends the hold.
        is_sought: the cohort begins again elsewhere: what was given is of before, and not lost to others.
        returns: the plan named this member again while the release was under way.
        fetch, read: numbers of the calls under way.
        skip: go on at this offset, after rows that are gone.
        question: what the owner said of a store that has nothing of the partition (CHECKPOINT).
        tells_beginning: the beginning is settled, too, so that what was missed before it is not told again.
        unseen_from: where the rows begin that steps took and the application has not got (asyncio, lists).
    """

    __slots__ = (
        "answers",
        "end",
        "fetch",
        "fetched",
        "given",
        "given_sizes",
        "hold",
        "is_drain_told",
        "is_paused",
        "is_sought",
        "lease_until",
        "mark",
        "newest",
        "partition",
        "phase",
        "position",
        "question",
        "read",
        "release",
        "retries",
        "retry_at",
        "returns",
        "settled",
        "skip",
        "tells_beginning",
        "told",
        "unseen_from",
        "wait_settled",
    )

    def __init__(self, partition: int, phase: Phase) -> None:
        self.partition, self.phase = partition, phase
        self.hold = self.newest = 0
        self.lease_until = 0.0
        self.position: Point | None = None
        self.fetched = self.given = self.told = self.settled = Point(0, 0)
        self.end: int | None = None
        self.mark = 0  # the owner's end of readable rows, as of its last answer
        self.release = self.returns = self.is_paused = self.is_sought = self.is_drain_told = False
        self.answers: deque[Stored] = deque()
        self.given_sizes: deque[tuple[int, int]] = deque()  # (end offset, bytes) of what is not acknowledged
        self.fetch: int | None = None
        self.read: int | None = None
        self.retry_at, self.retries = 0.0, 0
        self.skip: int | None = None
        self.question: Mapping[str, Any] | None = None
        self.tells_beginning = False
        self.unseen_from: Point | None = None
        # (through, what to call with None or the error)
        self.wait_settled: list[tuple[int, Callable[[Exception | None], None]]] = []

    def __repr__(self) -> str:
        return (
            f"<Gate {self.partition} {self.phase.value} hold {self.hold} settled {self.settled.offset} told "
            f"{self.told.offset} given {self.given.offset} fetched {self.fetched.offset} end {self.end}>"
        )

    # ---- holds -------------------------------------------------------------------------------------------

    def opened(self, reply: Fetched, lease_until: float) -> None:
        """The owner let this member in: rows begin at `reply.start`."""
        self.phase, self.hold, self.newest = Phase.HELD, reply.hold, max(self.newest, reply.hold)
        self.lease_until = lease_until
        before = Point(reply.start, 0 if reply.end > reply.start else reply.epoch)
        if self.position is not None and self.position.offset == reply.start:
            before = self.position  # the answer has the epoch of the last report, which may be older
        self.fetched = self.given = self.told = self.settled = before
        self.end, self.skip, self.is_drain_told = None, None, False
        self.unseen_from = None
        self.retries = 0

    def ended(self, phase: Phase) -> int:
        """The hold is over. Returns the bytes that are not in memory any more."""
        freed = self.drop_fetched() + sum(size for _, size in self.given_sizes)
        self.given_sizes.clear()
        self.phase, self.hold, self.release, self.is_sought = phase, 0, False, False
        self.fetch = self.read = None
        self.position = self.unseen_from = None
        self.end = None
        return freed

    @property
    def is_untouched(self) -> bool:
        """No row of the partition was settled or given, ever."""
        return self.phase is Phase.HELD and self.settled.offset == self.given.offset == 0

    def drop_fetched(self) -> int:
        """Forget what was fetched and not given, and requests for what follows it. Returns its bytes."""
        freed = sum(stored.bytes for stored in self.answers)
        self.answers.clear()
        self.fetched = self.given
        self.fetch = self.read = None  # their rows would be taken for those that are wanted now
        return freed

    def rewind(self) -> int:
        """The rows that were given come again. Returns the bytes that are not in memory any more."""
        self.given = self.told
        freed = self.drop_fetched() + sum(size for _, size in self.given_sizes)
        self.given_sizes.clear()
        self.unseen_from = None
        self.is_drain_told = False
        return freed

    def take_back(self) -> int:
        """Rows that the application has not got are not given any more. Returns the bytes that are freed."""
        if self.unseen_from is None:
            return 0
        self.given, self.unseen_from = self.unseen_from, None
        self.is_drain_told = False
        freed = self.drop_fetched()
        while self.given_sizes and self.given_sizes[-1][0] > self.given.offset:
            freed += self.given_sizes.pop()[1]
        return freed

    # ---- rows --------------------------------------------------------------------------------------------

    def store(self, reply: Fetched) -> None:
        """Rows arrived; those below `fetched` are cut when they are given."""
        assert reply.start <= self.fetched.offset, (
            f"rows of partition {self.partition} begin at {reply.start}, and {self.fetched.offset} is wanted"
        )
        if reply.end > self.fetched.offset:
            stored = Stored(self.hold, self.fetched.offset, reply.end, reply.epoch, reply.bytes, reply.body)
            self.answers.append(stored)
            self.fetched = Point(reply.end, reply.epoch)

    def acknowledge(self, through: Point) -> int:
        """The application is done with the rows before. Returns bytes that do not count any more."""
        if through.offset > self.told.offset:
            self.told = through
        freed = 0
        while self.given_sizes and self.given_sizes[0][0] <= self.told.offset:
            freed += self.given_sizes.popleft()[1]
        return freed

    @property
    def seen(self) -> Point:
        """The application has the rows before it."""
        return self.given if self.unseen_from is None else self.unseen_from

    @property
    def owes(self) -> bool:
        """Whether the owner must hear something."""
        return self.hold > 0 and (
            self.told.offset > self.settled.offset or self.release or self.tells_beginning
        )

    @property
    def has_unacknowledged(self) -> bool:
        return self.given.offset > self.told.offset

    @property
    def is_given_to_its_end(self) -> bool:
        return self.end is not None and self.given.offset >= self.end

    def settled_callbacks(self) -> Iterator[Callable[[Exception | None], None]]:
        """Callers that wait for no more than what is settled."""
        left = self.wait_settled
        self.wait_settled = [one for one in left if one[0] > self.settled.offset]
        yield from (call for through, call in left if through <= self.settled.offset)

    def end_waiting(self, error: Exception | None) -> None:
        """All callers that wait hear this error."""
        waiting, self.wait_settled = self.wait_settled, []
        for _, call in waiting:
            call(error)

    # ---- invariants --------------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """What must never hold; tests look after each event."""
        if not self.settled.offset <= self.told.offset <= self.given.offset <= self.fetched.offset:
            yield f"{self!r}: not in order"
        if (self.phase in WITH_HOLD) != (self.hold > 0):
            yield f"{self!r}: a phase without its hold, or a hold without its phase"
        at = self.given.offset
        for stored in self.answers:
            if stored.hold != self.hold:
                yield f"{self!r}: an answer of hold {stored.hold}"
            at = max(at, stored.start)
        if self.phase in {Phase.LEAVING, Phase.RELEASING} and self.answers:
            yield f"{self!r}: rows are kept of a partition that was taken away"
