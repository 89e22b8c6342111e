"""A failing plan with fewer strikes that fails alike: what does not matter is left out.

Zeller's delta debugging (ddmin, 2002) over strikes, each of which has dice of its own; weather goes first.
"The same failure" means that the same invariant breaks: its text may name other nodes and times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tests.sim.faults.plan import Plan, Strike

RUNS_MAX: Final = 200
"""A run takes a third of a second: a minute of shrinking."""

Fails = Callable[[Plan], bool]


def only(plan: Plan, numbers: Sequence[int]) -> Plan:
    """The plan with these strikes alone."""
    return replace(plan, strikes=tuple(each for each in plan.strikes if each.number in set(numbers)))


def calm(plan: Plan) -> Plan:
    """The plan without weather: nothing is lost, doubled, late or slow."""
    return replace(plan, loss=0.0, double=0.0, overtake=0.0, delay_us=200, jitter_us=300, slow=0.0, stall=0.0)


def shrunk(plan: Plan, fails: Fails) -> tuple[Plan, int]:
    """The smallest plan found that still fails, and how many runs that took."""
    runs = 1
    if fails(calm(plan)):
        plan = calm(plan)
    parts = 2
    while plan.strikes and runs < RUNS_MAX:
        size = max(1, len(plan.strikes) // parts)
        pieces = [plan.strikes[at : at + size] for at in range(0, len(plan.strikes), size)]
        for piece in pieces:
            runs += 1
            fewer = _without(plan, piece)
            if fails(fewer):
                plan, parts = fewer, max(2, parts - 1)
                break
            if runs >= RUNS_MAX:
                break
        else:
            if size == 1:
                break
            parts = min(len(plan.strikes), parts * 2)
    return plan, runs


def _without(plan: Plan, piece: Sequence[Strike]) -> Plan:
    gone = {each.number for each in piece}
    return only(plan, [each.number for each in plan.strikes if each.number not in gone])
