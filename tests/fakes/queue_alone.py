"""One member of a QUEUE, answered by the test itself: no network, and time passes when the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ringfence.consumer.calls import HOME, Attach, Attached, Join, Joined, Plan, Refusal
from ringfence.consumer.queue_calls import Leased, Line, QueueFetch, QueueSettle, QueueSettled, Told, What
from ringfence.consumer.queue_member import QueueMember
from ringfence.consumer.values import MemberOptions
from tests.fakes.queue_world import QueueRoutes

if TYPE_CHECKING:
    from ringfence.consumer.calls import Effect, Reply
    from ringfence.consumer.values import ConsumerPlace

AnyCall = TypeVar("AnyCall", bound="Effect")
SESSION = 7
LEASE_S = 30.0


class QueueAlone:
    """A member; partition 1 is at node 1."""

    def __init__(self, **options: Any) -> None:
        self.member = QueueMember(MemberOptions("m", b"i" * 16, **options))
        self.now = 0.0
        self.effects: list[Effect] = []
        self.table({1: 1})
        self.member.up(HOME)
        self.member.up(1)
        self.answer(self.call(Join), Joined(Plan(SESSION, 0, 1, ()), None, 10.0, LEASE_S))
        self.attach()

    def table(self, nodes: dict[int, int], version: int = 1, epoch: int = 1) -> None:
        self.member.routed(QueueRoutes(version, nodes, dict.fromkeys(nodes, epoch)))
        self.turn()

    def attach(self) -> None:
        for call in self.calls(Attach):
            self.answer(call, Attached(0, 10.0))

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        self.member.tick(self.now)
        self.effects += self.member.take()
        assert list(self.member.faults()) == []

    def calls(self, kind: type[AnyCall]) -> list[AnyCall]:
        """Calls of a kind that are under way."""
        self.turn()
        open_calls = self.member.state.calls
        return [
            one for one in self.effects if isinstance(one, kind) and getattr(one, "number", 0) in open_calls
        ]

    def call(self, kind: type[AnyCall]) -> AnyCall:
        """The only one."""
        (only,) = self.calls(kind)
        return only

    def told(self, what: What) -> list[tuple[int, int]]:
        """Ranges of which that is said in calls under way."""
        return [
            (one.first, one.end) for call in self.calls(QueueSettle) for one in call.lines if one.what is what
        ]

    def settle(self, what: What, reply: Reply | Refusal | None = None) -> None:
        """Answer the call that says it; by default all is taken."""
        (call,) = [one for one in self.calls(QueueSettle) if one.lines[0].what is what]
        self.answer(call, QueueSettled() if reply is None else reply)

    def answer(self, call: Any, reply: Reply | Refusal) -> None:
        if isinstance(reply, Refusal):
            self.member.refused(call.number, reply, self.now)
        else:
            self.member.answered(call.number, reply, self.now)
        self.turn()

    def lease(
        self, first: int, end: int, *, failures: int = 0, is_again: bool = False, incarnation: int = 1
    ) -> QueueFetch:
        """The owner gives rows."""
        call = self.call(QueueFetch)
        line = Line(first, end, 1, failures, is_again)
        self.answer(call, Leased(1, incarnation, first, end, (line,), bytes=100, body=b""))
        return call

    def give(self, rows: int | None = None, *, is_seen: bool = True) -> ConsumerPlace | None:
        """The application takes the next rows; None: nothing can be given."""
        stored = self.member.turn(self.now)
        if stored is None:
            self.turn()
            return None
        line = stored.lines[0]
        count = line.end - line.first if rows is None else rows
        place, _ = self.member.hands.give(stored, line.first, count, 1, is_seen=is_seen)
        self.turn()
        return place

    def gave(self, rows: int | None = None) -> ConsumerPlace:
        """`give`, where rows must come."""
        place = self.give(rows)
        assert place is not None
        return place

    def say(
        self, place: ConsumerPlace, what: What, *ranges: tuple[int, int], outcomes: list[Any] | None = None
    ) -> bool:
        """What became of rows; of all of the place by default."""
        spans = list(ranges) or [(place.first_offset, place.end_offset)]
        then = None if outcomes is None else outcomes.append
        others = self.member.hands.settle(place, spans, Told(0, 0, 0, what), then)
        self.turn()
        return not others
