"""Short stories of a member that random lives seldom meet. Each returns what is wrong in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.consumer.calls import Beat, Fetch, Fetched, Join, Refusal, Renewed, Settle, Settled, Why
from ringfence.consumer.values import TaskKind
from tests.fakes.consumer_alone import LEASE_S, Alone

if TYPE_CHECKING:
    from collections.abc import Callable


def overtaken_answer() -> list[str]:
    """The answer to JOIN comes after a push of a newer plan."""
    alone = Alone(1, 2)
    alone.member.state.heard(2)
    late = alone.call(Join)
    alone.plan(1, generation=3)
    alone.answer(late, alone.joined(1, 2, generation=2))
    return [] if sorted(alone.member.state.gates) == [1] else ["an older plan came back"]


def late_renewal() -> list[str]:
    """Answers take most of a lease, and the owner counted from before."""
    alone = Alone(1)
    fetch = alone.call(Fetch)
    alone.turn(6.0)
    alone.answer(fetch, Fetched(1, 0, 100, 1, bytes=100))
    faults = [] if alone.member.state.gates[1].lease_until == LEASE_S else ["an answer moved the lease"]
    for beat in alone.calls(Beat):
        alone.answer(beat, Renewed(1, LEASE_S, frozenset()))
    alone.turn(3.4)
    made_at, beats = alone.now, [one for one in alone.calls(Beat) if one.holds]
    alone.turn(5.0)
    for beat in beats:
        alone.answer(beat, Renewed(1, LEASE_S, frozenset()))
    is_sound = alone.member.state.gates[1].lease_until <= made_at + LEASE_S
    return faults if is_sound else [*faults, "an answer to a beat moved the lease"]


def hold_that_ended() -> list[str]:
    """A newer hold of the partition gave rows; the plan names this member again."""
    alone = Alone(1)
    alone.open(1)
    alone.gave(4)
    alone.answer(alone.call(Fetch), Refusal(Why.NOT_ASSIGNED, hold=9))
    return [] if alone.give() is None else ["rows are given under a hold that is over"]


def gathering_over_a_split() -> list[str]:
    """The application waits for 1,000 rows, and the partition was split after 10."""
    alone = Alone(1, tells=frozenset({TaskKind.DRAIN}), is_auto=False)
    alone.open(1, rows=10)
    alone.gave()
    alone.answer(alone.call(Fetch), Fetched(1, 10, 10, 1, sealed_end=10))
    if alone.member.giving.waits_for() != [1]:
        return ["nobody is told that children wait"]
    if alone.tasks() != ["drain 1"]:
        return ["the application is not told that children wait for it"]
    alone.member.giving.acknowledge_given()
    alone.answer(alone.call(Settle), Settled())
    return [f"{one} is still waited for" for one in alone.member.giving.waits_for()]


SCENARIOS: Final[dict[str, Callable[[], list[str]]]] = {
    scenario.__name__: scenario
    for scenario in (overtaken_answer, late_renewal, hold_that_ended, gathering_over_a_split)
}
