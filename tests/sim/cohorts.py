"""Seeds with a cohort: members that join, read, acknowledge, stand still, die and come back, at level 3.

A kind of plan of its own; other seeds stay what they are. `python -m tests.sim.cohorts --seeds 1..100`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.native import _node, messages
from ringfence.native import cohort_messages as cohort
from ringfence.native.wire import Opcode, Status
from tests.sim.checks.cohorts import CohortRecord
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.member import COHORT, Habits, MemberProcess
from tests.sim.faults.plan import Plan, Strike, with_layouts
from tests.sim.simulation import TOPIC, Result, Simulation, run
from tests.sim.world.machine import Machine
from tests.sim.world.world import SECOND_US

if TYPE_CHECKING:
    from ringfence.common.codec import Answer
    from ringfence.control.runtime.process.settings import Settings

SECONDS: Final = 30
"""Of faults: a lease lasts for 10, a hand-over for 11, and a silent member has 12."""
GRACE_S: Final = 12.0
NOT_STRUCK: Final = ("truncate", "empty_sealed", "force", "older", "force_child", "force_sealed", "row_rot")
"""Rows that are given up are not a member's loss: left out until the history names them."""
SHARES: Final = (0.1, 0.25, 0.5)
"""Of other strikes that a seed keeps: without owners members show nothing."""
ACTS: Final = ("kill", "kill", "pause", "hang_up", "leave", "seek", "takeover", "lie", "lie")


@dataclass(frozen=True, slots=True)
class CohortPlan(Plan):
    """One seed with a cohort."""

    members: int = 2
    acts: tuple[Strike, ...] = ()
    """What happens to members."""


def with_cohort(seed: int, seconds: int = SECONDS) -> CohortPlan:
    """Splits and merges, some of the usual strikes, and a cohort."""
    random = Random(f"cohort {seed}")
    plan = with_layouts(CohortPlan.drawn(seed, seconds))
    share, layouts = random.choice(SHARES), random.choice((0.0, 0.3, 1.0))
    kept = [
        each
        for each in plan.strikes
        if each.kind not in NOT_STRUCK and random.random() < (layouts if each.kind in LAYOUT_KINDS else share)
    ]
    acts, at_us = list[Strike](), 0
    mean_us = random.choice((700_000, 2_000_000, 6_000_000))
    while (at_us := at_us + int(random.expovariate(1 / mean_us))) < seconds * SECOND_US:
        acts.append(Strike(len(acts), at_us, random.choice(ACTS), random.getrandbits(32)))
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
    )


LAYOUT_KINDS: Final = frozenset({"split", "merge", "repartition", "layouts", "abort_layout", "abort_soon"})


class CohortSimulation(Simulation):
    """The world of a seed with members in it."""

    def __init__(self, plan: CohortPlan, native: ModuleType = _node) -> None:
        super().__init__(plan, native)
        self.cohort_plan = plan
        self.dice = Random(f"members {plan.seed}")
        self.record = CohortRecord(self)
        self.processes: dict[str, MemberProcess] = {}
        self._lives = 0

    def settings(self, machine: Machine, join: tuple[str, ...] | None) -> Settings:
        return super().settings(machine, join).model_copy(update={"session_grace_s": GRACE_S})

    def topic_of(self, state: Any) -> Any:
        """The topic that rows go to; None: there is none."""
        return None if state is None else state.topic_named(f"public/default/{TOPIC}")

    def changed(self, before: Any, after: Any) -> None:
        super().changed(before, after)
        if before is not after:
            self.record.changed(after)

    # ---- members ----

    def act(self) -> None:
        for number in range(1, self.cohort_plan.members + 1):
            self.begin(f"m{number}", takeover=False)
        for each in self.cohort_plan.acts:
            self.agenda.after(each.at_us, partial(self._act, each))

    def begin(self, name: str, *, takeover: bool) -> None:
        """A process with this member begins."""
        dice = Random(self.dice.random())
        habits = Habits(
            work_us=dice.choice((5_000, 100_000, 1_000_000)),
            is_auto=dice.random() < 0.6,
            clock=dice.choice((0.99, 1.0, 1.01)),
        )
        self._lives += 1
        process = MemberProcess(self, name, self._lives, dice, habits, takeover=takeover)
        self.processes[name] = process
        self.clients.append(process)
        self.tell(process.name, "begins", str(habits))

    def ended_member(self, process: MemberProcess, error: Exception) -> None:
        """A member gave up: another process has its name, or had it before."""
        self.count(f"member_ended_{type(error).__name__}")
        self.tell(process.name, "ends:", repr(error)[:160])
        process.kill()
        if self.processes.get(process.member_name) is process:
            again = partial(self._again_begin, process.member_name)
            self.agenda.after(500_000, again)

    def _again_begin(self, name: str) -> None:
        process = self.processes.get(name)
        if process is None or not process.is_alive:
            self.begin(name, takeover=True)

    def _act(self, each: Strike) -> None:
        if self.healed:
            return
        dice = Random(each.dice)
        name = dice.choice(sorted(self.processes))
        process = self.processes[name]
        self.count(f"member_{each.kind}")
        self.tell("*", each.kind, process.name)
        match each.kind:
            case "kill":
                process.kill()
                self.agenda.after(
                    dice.choice((10_000, 2_000_000, 15_000_000)), partial(self._again_begin, name)
                )
            case "pause":
                process.pause(dice.choice((500_000, 3_000_000, 12_000_000, 25_000_000)))
            case "hang_up":
                process.hang_up(dice.choice(self.machines).name, dice.random())
            case "leave":
                process.member.close(leave=True)
                self.agenda.after(2_000_000, process.kill)
                self.agenda.after(dice.choice((2_100_000, 8_000_000)), partial(self._again_begin, name))
            case "takeover":
                self.begin(name, takeover=True)  # the older process goes on
            case "seek":
                self._seek(process, dice)
            case _:
                self._lie(dice)

    def _seek(self, process: MemberProcess, dice: Random) -> None:
        machine = process.tried() if process.is_alive else None
        if machine is None:
            return
        body = messages.encode(cohort.CohortSeek(topic=TOPIC, cohort=COHORT, to="earliest"))
        process.ask(
            machine, Opcode.COHORT_SEEK, self._sought, body=body, patience_us=7_000_000, deadline_ms=5_000
        )

    def _sought(self, answer: Answer | None) -> None:
        is_done = answer is not None and answer.header.status == Status.OK
        self.count("sought" if is_done else "seek_failed")

    def _lie(self, dice: Random) -> None:
        """A member acknowledges rows of another's hold, or of an older one of its own."""
        alive = [
            one for _, one in sorted(self.processes.items()) if one.is_alive and one.member.state.session
        ]
        if alive:
            dice.choice(alive).lie(dice, self.record.holds)

    # ---- peace ----

    def _heal(self) -> None:
        super()._heal()
        for name, process in sorted(self.processes.items()):
            process.paused_until = 0
            if not process.is_alive:
                self.begin(name, takeover=True)

    def _at_rest(self) -> str:
        return super()._at_rest() or self.record.behind(self.machines[0].replica.state)

    def settled(self) -> None:
        super().settled()
        self.record.check()


def run_seed(plan: CohortPlan, native: ModuleType = _node, *, is_told: bool = False) -> Result:
    """Play one seed."""
    return run(plan, native, is_told=is_told, make=CohortSimulation)  # type: ignore[arg-type]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.cohorts", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with its story")
    parser.add_argument("--seeds", default="1..20", help="A..B, both included")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="virtual seconds of faults")
    parser.add_argument("--lines", type=int, default=80, help="of the story of a broken promise")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("..")
    seeds = [given.seed] if given.seed is not None else range(int(first), int(last or first) + 1)
    counts, violations = Counter[str](), 0
    for seed in seeds:
        result = run_seed(with_cohort(seed, given.seconds), is_told=True)
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
