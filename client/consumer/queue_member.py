"""START HERE for QUEUE: its member as a state machine. Events in, calls out; no clock, no socket.

Members of a QUEUE have no partitions of their own. Each asks every node with gates for rows of whatever
partition it has; the rows come on lease, and the member says what became of them. `member.py` is the one of
STREAM and CHECKPOINT; sessions, beats and absence are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.consumer.absence import Absence
from ringfence.consumer.any_member import AnyMember
from ringfence.consumer.beats import Beats
from ringfence.consumer.calls import HOME, Fetched, Read
from ringfence.consumer.queue_calls import Leased, QueueFetch, QueueSettle, QueueSettled, Told, What
from ringfence.consumer.queue_fetching import QueueFetching
from ringfence.consumer.queue_hands import QueueHands
from ringfence.consumer.queue_telling import QueueTelling
from ringfence.consumer.session import Session
from ringfence.consumer.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringfence.consumer.calls import Call, Plan, Refusal, Reply
    from ringfence.consumer.queue_rows import Range, StoredRows
    from ringfence.consumer.routes import Routes
    from ringfence.consumer.values import MemberOptions, Task


class QueueSession(Session):
    """The session of a member that needs every node with gates."""

    @property
    def nodes(self) -> set[int]:
        """The nodes that the member needs connections to."""
        return {HOME} | self._state.routes.owners


class QueueMember(AnyMember):
    """One member of a QUEUE. Its parts share `state`."""

    def __init__(self, options: MemberOptions) -> None:
        self.state = state = State(options)
        self.telling = QueueTelling(
            state,
            on_lost=lambda *rows: self.hands.done_too_late(*rows),  # noqa: PLW0108  # it is made below
            on_done=self._rows_done,
        )
        self.fetching = QueueFetching(state, self.telling)
        self.hands = QueueHands(state, self.fetching, self.telling)
        self.beats = Beats(state)
        self.session = QueueSession(state, self)
        self.absence = Absence(state, self, self.session, has_partitions=False)
        self._leaves = False
        state.on_silent = self.end_waiting

    def tick(self, now: float) -> None:
        """Time has passed, or an event was handled: make the calls that are due."""
        self.absence.pump(now)
        self.session.pump(now)
        if self.state.session:
            self.telling.pump(now)
            self.hands.pump(now)
            self.fetching.pump(now)
            self.beats.pump(now)
        if self._leaves and self.telling.is_idle:
            self.session.leave(now)

    # ---- what the session says: `session.Held` -------------------------------------------------------------

    def assign(self, partitions: Iterable[int]) -> None:
        """A QUEUE has no plan."""

    def sought(self) -> None:
        """A seek is seen by the numbers of answers."""

    def all_lost(self) -> None:
        """The session is over: no lease goes on."""
        self.fetching.all_lost()
        self.hands.all_lost()
        self.telling.session_over()

    def end_waiting(self, error: Exception) -> None:
        """No owner will answer: acknowledgements have no other outcome than this error."""
        self.telling.end_waiting(error)

    # ---- events of nodes ---------------------------------------------------------------------------------

    def down(self, node: int, now: float) -> None:
        """The connection to a node ended: what is under way there has no answer."""
        self.session.down(node)
        self.beats.down(node)
        self.lose_calls(node, now)
        self.telling.down(node)
        self.fetching.down(node)

    def routed(self, routes: Routes) -> None:
        """A newer routing table."""
        before, self.state.routes = self.state.routes, routes
        self.fetching.routed(before)
        epochs = ((one, before.epoch_of(one), routes.epoch_of(one)) for one in self.hands.partitions)
        self.hands.routed(one for one, old, new in epochs if old != new)

    def pushed(self, plan: Plan) -> None:
        """A QUEUE has no plan."""

    def _attached(self, node: int) -> None:
        """The next pump asks it for rows."""

    def _came_late(self, reply: Reply, now: float) -> None:
        if isinstance(reply, Leased):
            self.fetching.came_late(reply, now)

    def _rows_done(self, partition: int, incarnation: int, rows: Range) -> None:
        self.fetching.done(partition, incarnation, rows)
        self.hands.done.add(partition, incarnation, rows)

    def _answered(self, call: Call, reply: Reply, made_at: float, now: float) -> None:
        match call, reply:
            case (QueueFetch(), Leased()):
                self.fetching.fetched(call, reply, made_at, now)
            case (Read(), Fetched()):
                self.fetching.read(call, reply, now)
            case (QueueSettle(), QueueSettled()) if call.is_of_leases:
                self.hands.answered(call, reply, made_at)
            case (QueueSettle(), QueueSettled()):
                self.telling.settled(call, reply, now)
            case _:
                raise AssertionError((call, reply))

    def _refused(self, call: Call, refusal: Refusal, made_at: float, now: float) -> None:
        del made_at
        match call:
            case QueueFetch() | Read():
                self.fetching.refused(call, refusal, now)
            case QueueSettle():
                self._settle_failed(call, refusal, now)
            case _:
                raise AssertionError(call)

    def _unanswered(self, call: Call, now: float) -> None:
        match call:
            case QueueFetch() | Read():
                self.fetching.unanswered(call, now)
            case QueueSettle():
                self._settle_failed(call, None, now)
            case _:
                raise AssertionError(call)

    def _settle_failed(self, call: QueueSettle, refusal: Refusal | None, now: float) -> None:
        if call.is_of_leases:
            self.hands.failed(call, refusal, now)
        else:
            self.telling.failed(call, refusal, now)

    # ---- the application ---------------------------------------------------------------------------------

    def done(self, task: Task) -> None:
        """It came back from a callback: nothing waits for that."""

    def turn(self, now: float) -> StoredRows | None:
        """The answer whose rows are next; None: nothing can be given."""
        self.absence.came(now)
        return self.hands.turn(now)

    def acknowledge_given(self) -> None:
        """All rows that were given are done."""
        self.hands.settle_all(Told(0, 0, 0, What.DONE))

    def waits_for(self) -> list[int]:
        """Nothing waits for acknowledgements: a QUEUE has no order."""
        return []

    def close(self, *, leave: bool) -> None:
        """Give no more rows; what was given and not settled comes again, without a count."""
        if self.state.is_closing:
            return
        self.state.is_closing, self._leaves = True, leave
        self.hands.settle_all(Told(0, 0, 0, What.RELEASED))
        self.fetching.release_all()

    @property
    def is_closed(self) -> bool:
        """Whether nothing is to be told any more."""
        if not self.state.is_closing or self.state.final_error is not None:
            return self.state.is_closing
        has_left = not self._leaves or self.session.is_over()
        return has_left and (self.telling.is_idle or not self.state.session)

    # ---- invariants --------------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """What must never hold; tests look after each event."""
        yield from self.telling.faults()
        yield from self.fetching.faults()
        yield from self.hands.faults()
        kept = {id(one): one for one in self.fetching.stored}
        kept |= {id(one.stored): one.stored for one in self.hands.all()}
        in_memory = sum(one.bytes for one in kept.values())
        if in_memory != self.state.bytes:
            yield f"{self.state.bytes} bytes are counted, {in_memory} are in memory"
