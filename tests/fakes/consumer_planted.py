"""Defects of a member that the walks of `consumer_walk.py` must find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringfence.consumer.beats import Beats
from ringfence.consumer.fetching import Fetching
from ringfence.consumer.gate import Gate, Phase
from ringfence.consumer.giving import Giving
from ringfence.consumer.holding import Holding
from ringfence.consumer.member import Member
from ringfence.consumer.session import Session
from ringfence.consumer.settle import Settling
from ringfence.consumer.values import Point

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from ringfence.consumer.calls import Fetch, Plan, Read, Renewed

Patch = tuple[type, str, "Callable[..., Any]"]


def nothing(*arguments: Any) -> None:
    """Leave a step out."""
    del arguments


def yes(*arguments: Any) -> bool:
    """Leave a check out."""
    del arguments
    return True


def zero(*arguments: Any) -> int:
    """Drop nothing."""
    del arguments
    return 0


def revoked_rows_are_given() -> list[Patch]:
    def may_give(self: Giving, gate: Gate, now: float) -> bool:
        return gate.phase in {Phase.HELD, Phase.LEAVING, Phase.RELEASING}

    return [(Giving, "_may_give", may_give), (Gate, "drop_fetched", zero)]


def acknowledged_when_given() -> list[Patch]:
    give = Giving.give

    def giving(self: Giving, *arguments: Any, **how: Any) -> Any:
        place = give(self, *arguments, **how)
        if place is not None:
            self.acknowledge_given()
        return place

    return [(Giving, "give", giving)]


def dropped_rows_are_skipped() -> list[Patch]:
    def drop_fetched(self: Gate) -> int:
        freed = sum(stored.bytes for stored in self.answers)
        self.answers.clear()
        self.given = self.told = Point(self.fetched.offset, self.fetched.epoch)
        return freed

    return [(Gate, "drop_fetched", drop_fetched)]


def lost_acknowledgements_are_forgotten() -> list[Patch]:
    failed = Settling.failed

    def forget(self: Settling, call: Any, *arguments: Any) -> None:
        failed(self, call, *arguments)
        for entry in call.entries:
            self._owing.discard(entry.partition)

    return [(Settling, "failed", forget)]


def settled_when_sent() -> list[Patch]:
    settle = Settling._settle

    def at_once(self: Settling, node: int, gates: list[Gate], now: float) -> None:
        settle(self, node, gates, now)
        for gate in gates:
            gate.settled = gate.told

    return [(Settling, "_settle", at_once)]


def requests_outlive_their_rows() -> list[Patch]:
    """Until 2026-11-28: rows that could not be decoded were skipped, if more were asked for by then."""

    def drop_fetched(self: Gate) -> int:
        freed = sum(stored.bytes for stored in self.answers)
        self.answers.clear()
        self.fetched = self.given
        return freed

    return [(Gate, "drop_fetched", drop_fetched)]


def leave_overtakes_join() -> list[Patch]:
    """Until 2026-11-28: a member was registered again behind its LEAVE."""

    def is_over(self: Session) -> bool:
        return self.has_left or not self._state.session

    return [(Session, "leave", Session._tell_leave), (Session, "is_over", is_over)]


def late_answers_count() -> list[Patch]:
    def gate_of(self: Fetching, call: Fetch | Read) -> Gate | None:
        gate = self._state.gates.get(call.partition)
        if hasattr(call, "hold"):
            self._pending -= 1
        if gate is None:
            return None
        if hasattr(call, "hold"):
            gate.fetch = None
        else:
            gate.read = None
        self._due.add(gate)
        return gate

    return [(Fetching, "_gate_of", gate_of)]


def sessions_are_one() -> list[Patch]:
    return [(Holding, "all_lost", nothing)]


def sealed_ends_are_ignored() -> list[Patch]:
    return [(Fetching, "_sealed", nothing)]


def holds_are_not_released() -> list[Patch]:
    def release(self: Holding, gate: Gate) -> None:
        self._state.bytes -= gate.drop_fetched()
        gate.phase = Phase.RELEASING
        gate.fetch = gate.read = None

    return [(Holding, "release", release)]


def unanswered_requests_are_not_repeated() -> list[Patch]:
    return [(Member, "unanswered", nothing)]


def lease_from_the_answer() -> list[Patch]:
    renewed = Beats.renewed

    def late_renewed(self: Beats, call: Any, reply: Renewed, made_at: float) -> None:
        renewed(self, call, reply, made_at + 5.0)

    return [(Beats, "renewed", late_renewed)]


def older_plan_wins() -> list[Patch]:
    apply = Session._apply

    def always(self: Session, plan: Plan, partitions: Any) -> None:
        self._state.generation = -1
        apply(self, plan, partitions)

    return [(Session, "_apply", always)]


def ended_holds_go_on() -> list[Patch]:
    return [(Holding, "lost", nothing)]


def a_seek_is_not_heard() -> list[Patch]:
    return [(Holding, "sought", nothing)]


def drains_are_not_told() -> list[Patch]:
    return [(Fetching, "given_to_its_end", nothing)]


IN_SCENARIOS: Final[dict[str, Callable[[], list[Patch]]]] = {
    "lease_from_the_answer": lease_from_the_answer,
    "older_plan_wins": older_plan_wins,
    "ended_holds_go_on": ended_holds_go_on,
    "drains_are_not_told": drains_are_not_told,
}
"""Like `PLANTED`, for the stories of `consumer_scenarios.py`."""
PLANTED: Final[dict[str, Callable[[], list[Patch]]]] = {
    "no_lease": lambda: [(Beats, "is_valid", yes)],
    "no_beats": lambda: [(Beats, "pump", nothing)],
    "revoked_rows_are_given": revoked_rows_are_given,
    "acknowledged_when_given": acknowledged_when_given,
    "dropped_rows_are_skipped": dropped_rows_are_skipped,
    "lost_acknowledgements_are_forgotten": lost_acknowledgements_are_forgotten,
    "settled_when_sent": settled_when_sent,
    "late_answers_count": late_answers_count,
    "requests_outlive_their_rows": requests_outlive_their_rows,
    "leave_overtakes_join": leave_overtakes_join,
    "sessions_are_one": sessions_are_one,
    "sealed_ends_are_ignored": sealed_ends_are_ignored,
    "a_seek_is_not_heard": a_seek_is_not_heard,
    "holds_are_not_released": holds_are_not_released,
    "unanswered_requests_are_not_repeated": unanswered_requests_are_not_repeated,
}
"""By name: what to replace, as (class, attribute, function)."""


def plant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, attribute, function in (PLANTED | IN_SCENARIOS)[name]():
        monkeypatch.setattr(kind, attribute, function)
