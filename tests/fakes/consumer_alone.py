"""One member, answered by the test itself: no network, and time passes when the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ringfence.consumer.calls import HOME, Attach, Attached, Fetch, Fetched, Join, Joined, Plan, Refusal
from ringfence.consumer.member import Member
from ringfence.consumer.values import MemberOptions
from tests.fakes.consumer_world import FakeRoutes

if TYPE_CHECKING:
    from ringfence.consumer.calls import Effect, Reply
    from ringfence.consumer.values import ConsumerPlace

AnyCall = TypeVar("AnyCall", bound="Effect")
SESSION = 7
LEASE_S = 10.0


class Alone:
    """A member whose partitions are all at node 1."""

    kind: type[Member] = Member

    def __init__(self, *partitions: int, **options: Any) -> None:
        self.member = self.kind(MemberOptions("m", b"i" * 16, **options))
        self.now = 0.0
        self.effects: list[Effect] = []
        self.table(dict.fromkeys(partitions, 1))
        self.member.up(HOME)
        self.member.up(1)
        self.answer(self.call(Join), self.joined(*partitions))
        for call in self.calls(Attach):
            self.answer(call, Attached(1, LEASE_S))

    def table(self, nodes: dict[int, int], *sealed: int, version: int = 1) -> None:
        self.member.routed(FakeRoutes(version, nodes, frozenset(sealed)))
        self.turn()

    @staticmethod
    def joined(*partitions: int, generation: int = 1, incarnation: int = 1, session: int = SESSION) -> Joined:
        return Joined(Plan(session, generation, incarnation, partitions), None, LEASE_S)

    def made_attach(self, node: int = 1) -> Attach:
        """The ATTACH to a node that is under way."""
        return next(one for one in self.calls(Attach) if one.node == node)

    @staticmethod
    def attached(generation: int = 1) -> Attached:
        return Attached(generation, LEASE_S)

    def plan(self, *partitions: int, generation: int, incarnation: int = 1) -> None:
        self.member.pushed(Plan(SESSION, generation, incarnation, partitions))
        self.turn()

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

    def newest(self, kind: type[AnyCall]) -> AnyCall:
        """The one that was made last; answers to older ones do not count any more."""
        return self.calls(kind)[-1]

    def made(self, kind: type[AnyCall]) -> list[AnyCall]:
        """All effects of a kind so far."""
        self.turn()
        return [one for one in self.effects if isinstance(one, kind)]

    def answer(self, call: Any, reply: Reply | Refusal) -> None:
        if isinstance(reply, Refusal):
            self.member.refused(call.number, reply, self.now)
        else:
            self.member.answered(call.number, reply, self.now)
        self.turn()

    def open(self, partition: int, *, hold: int = 1, start: int = 0, rows: int = 10, size: int = 100) -> None:
        """The owner lets the member in, and sends rows."""
        call = next(one for one in self.calls(Fetch) if one.partition == partition)
        self.answer(call, Fetched(hold, start, start + rows, 1, bytes=size))

    def give(self, rows: int | None = None, *, is_seen: bool = True) -> ConsumerPlace | None:
        """The application takes the next rows; None: nothing can be given."""
        turn = self.member.turn(self.now)
        if turn is None:
            return None
        first = max(turn.gate.given.offset, turn.stored.start)
        count = turn.stored.end - first if rows is None else rows
        place = self.member.giving.give(turn, first, count, 1, self.now, is_seen=is_seen)
        if place is not None and place.end_offset >= turn.stored.end:
            self.member.giving.finish(turn)
        self.turn()
        return place

    def gave(self, rows: int | None = None) -> ConsumerPlace:
        """`give`, where rows must come."""
        place = self.give(rows)
        assert place is not None
        return place

    def tasks(self) -> list[str]:
        """Callbacks that are due; the application comes back from each."""
        told = []
        while (task := self.member.next_task()) is not None:
            told.append(f"{task.kind.value} {','.join(map(str, task.partitions))}")
            self.member.done(task)
        self.turn()
        return told
