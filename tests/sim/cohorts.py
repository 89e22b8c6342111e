"""Seeds with a cohort: members that join, read, acknowledge, stand still, die and come back, at level 3.

A kind of plan of its own; other seeds stay what they are. `python -m tests.sim.cohorts --seeds 1..100`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.native import _node
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.cast import Cast, StreamCast
from tests.sim.clients.checkpoint_member import CheckpointCast
from tests.sim.clients.queue_cast import QueueCast
from tests.sim.faults.plan import Plan, Strike, with_layouts
from tests.sim.simulation import TOPIC, Result, Simulation, run
from tests.sim.world.machine import Machine
from tests.sim.world.world import SECOND_US

if TYPE_CHECKING:
    from ringfence.control.runtime.process.settings import Settings

SECONDS: Final = 30
"""Of faults: a lease lasts for 10, a hand-over for 11, and a silent member has 12."""
GRACE_S: Final = 12.0
NOT_STRUCK: Final = ("truncate", "empty_sealed", "force", "older", "force_child", "force_sealed", "row_rot")
"""Rows that are given up are not a member's loss: left out until the history names them."""
SHARES: Final = (0.1, 0.25, 0.5)
"""Of other strikes that a seed keeps: without owners members show nothing."""
MODES: Final = {"stream": 0.35, "queue": 0.45, "checkpoint": 0.2}
"""Of cohorts, with their shares of all seeds."""
TWO_COHORTS: Final = 0.1
"""Share of seeds with a second cohort, of another mode."""
CASTS: Final[dict[str, type[Cast]]] = {"stream": StreamCast, "queue": QueueCast, "checkpoint": CheckpointCast}


@dataclass(frozen=True, slots=True)
class CohortPlan(Plan):
    """One seed with a cohort."""

    members: int = 2
    """Of each cohort."""
    modes: tuple[str, ...] = ("stream",)
    """Of its cohorts."""
    acts: tuple[Strike, ...] = ()
    """What happens to members."""


def modes_of(seed: int) -> tuple[str, ...]:
    """The modes of a seed's cohorts: mostly one."""
    dice = Random(f"modes {seed}")
    first = dice.choices([*MODES], [*MODES.values()])[0]
    others = [mode for mode in MODES if mode != first]
    return (first, dice.choice(others)) if dice.random() < TWO_COHORTS else (first,)


def with_cohort(seed: int, seconds: int = SECONDS, modes: tuple[str, ...] = ()) -> CohortPlan:
    """Splits and merges, some of the usual strikes, and a cohort of one of `modes`, by default of any."""
    random = Random(f"cohort {seed}")
    plan = with_layouts(CohortPlan.drawn(seed, seconds))
    modes = modes or modes_of(seed)
    share, layouts = random.choice(SHARES), random.choice((0.0, 0.3, 1.0))
    kept = [
        each
        for each in plan.strikes
        if each.kind not in NOT_STRUCK and random.random() < (layouts if each.kind in LAYOUT_KINDS else share)
    ]
    # As NOT_STRUCK, behind the draws: seeds without it stay what they are.
    kept = [each for each in kept if each.kind != "emptied"]
    acts, at_us = list[Strike](), 0
    mean_us = random.choice((700_000, 2_000_000, 6_000_000))
    while (at_us := at_us + int(random.expovariate(1 / mean_us))) < seconds * SECOND_US:
        kind = random.choice(CASTS[modes[len(acts) % len(modes)]].acts)
        acts.append(Strike(len(acts), at_us, kind, random.getrandbits(32)))
    return replace(
        plan,
        machines=3,
        newest=COHORT_LEVEL,
        level=COHORT_LEVEL,
        keyless=False,
        cold=False,
        writers=0,
        send_us=random.choice((90_000, 200_000)),
        rows_max=32,
        partitions=random.choice((1, 2, 3)),
        limits=tuple((dict(plan.limits) | {"resolve_keep_s": 1_200}).items()),
        members=random.choice((1, 2, 2, 3)),
        strikes=tuple(kept),
        acts=tuple(acts),
        modes=modes,
    )


LAYOUT_KINDS: Final = frozenset({"split", "merge", "repartition", "layouts", "abort_layout", "abort_soon"})


class CohortSimulation(Simulation):
    """The world of a seed with members in it."""

    def __init__(self, plan: CohortPlan, native: ModuleType = _node) -> None:
        super().__init__(plan, native)
        self.cohort_plan = plan
        self.topic_name = TOPIC
        self.casts: list[Cast] = []
        for number, mode in enumerate(plan.modes):
            dice = Random(f"members {plan.seed} {mode}" if number else f"members {plan.seed}")
            self.casts.append(self._cast(mode, dice))

    def _cast(self, mode: str, dice: Random) -> Cast:
        return CASTS[mode](self, dice, self.cohort_plan.members)

    def settings(self, machine: Machine, join: tuple[str, ...] | None) -> Settings:
        return super().settings(machine, join).model_copy(update={"session_grace_s": GRACE_S})

    def topic_of(self, state: Any) -> Any:
        """The topic that rows go to; None: there is none."""
        return None if state is None else state.topic_named(f"public/default/{TOPIC}")

    def changed(self, before: Any, after: Any) -> None:
        super().changed(before, after)
        if before is not after:
            for cast in self.casts:
                cast.record.changed(after)

    # ---- members ----

    def act(self) -> None:
        for cast in self.casts:
            cast.open()
        for number, each in enumerate(self.cohort_plan.acts):
            cast = self.casts[number % len(self.casts)]
            self.agenda.after(each.at_us, partial(cast.act, each))

    # ---- peace ----

    def _heal(self) -> None:
        super()._heal()
        for cast in self.casts:
            cast.heal()

    def _at_rest(self) -> str:
        missing, state = super()._at_rest(), self.machines[0].replica.state
        return missing or next(filter(None, (cast.record.behind(state) for cast in self.casts)), "")

    def settled(self) -> None:
        super().settled()
        for cast in self.casts:
            cast.record.check()


def run_seed(plan: CohortPlan, native: ModuleType = _node, *, is_told: bool = False) -> Result:
    """Play one seed."""
    return run(plan, native, is_told=is_told, make=CohortSimulation)  # type: ignore[arg-type]


def main(
    make: Callable[[int, int], Any] = with_cohort,
    play: Callable[..., Result] = run_seed,
    program: str = "python -m tests.sim.cohorts",
) -> int:
    """Seeds of this kind, or of one that is built on it."""
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--seed", type=int, help="one seed, with its story")
    parser.add_argument("--seeds", default="1..20", help="A..B, both included")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="virtual seconds of faults")
    parser.add_argument("--lines", type=int, default=80, help="of the story of a broken promise")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("..")
    seeds = [given.seed] if given.seed is not None else range(int(first), int(last or first) + 1)
    counts, violations = Counter[str](), 0
    for seed in seeds:
        result = play(make(seed, given.seconds), is_told=True)
        counts.update(result.counts)
        is_shown = given.seed is not None or result.violation is not None
        if is_shown:
            print("\n".join(result.story[-given.lines :] if given.lines else ()))
        print(f"seed {seed}: {result.violation or 'sound'}, {result.events} events", flush=True)
        violations += result.violation is not None
    print(" ".join(f"{name}={count}" for name, count in sorted(counts.items())))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["CohortPlan", "CohortSimulation", "ViolationError", "run_seed", "with_cohort"]
