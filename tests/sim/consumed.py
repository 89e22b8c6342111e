"""Seeds with transformers: members of a STREAM that write what they read to a second topic, exactly once.

As seeds with a cohort, with the library's consumer and transaction on fibers of their own.
`python -m tests.sim.consumed --seeds 1..100`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import ModuleType
from typing import Any, Final

from msgspec import UNSET

from ringfence.control.model.scopes import CommitScope
from ringfence.native import _node
from tests.sim import cohorts
from tests.sim.checks.consumed import ConsumedLedger
from tests.sim.checks.ledger import Ledger
from tests.sim.checks.lineage_scopes import LineageScopes
from tests.sim.checks.scopes import ScopeLedger
from tests.sim.checks.violation import ViolationError
from tests.sim.clients import waiting
from tests.sim.clients.cast import Cast
from tests.sim.clients.layouter import Layouter
from tests.sim.clients.transformer import OUT, TransformCast
from tests.sim.cohorts import SECONDS, CohortPlan, CohortSimulation, with_cohort
from tests.sim.faults import moments
from tests.sim.faults.plan import Strike
from tests.sim.simulation import TOPIC, Result, run
from tests.sim.world.machine import Machine
from tests.sim.world.world import SECOND_US

CREATE_US: Final = 20_000
BUSY_S: Final = 20
BUSY_US: Final = 1_200_000
OUTPUT_LAYOUT_US: Final = 4_000_000
QUIET_OUTPUT: Final = 0.4
"""Share of seeds in which only moments change the layout of the output."""


@dataclass(frozen=True, slots=True)
class ConsumedPlan(CohortPlan):
    """One seed with transformers."""

    output_partitions: int = 1
    output_layouts: tuple[Strike, ...] = ()
    """Splits and merges of the output."""
    moments: tuple[Strike, ...] = ()
    """What comes right after a claim, or after a decision."""


def with_transformers(seed: int, seconds: int = SECONDS) -> ConsumedPlan:
    """The strikes of a seed with a cohort, and an output."""
    plan = with_cohort(seed, seconds, modes=("stream",))
    dice = Random(f"consumed {seed}")
    fields = {name: getattr(plan, name) for name in CohortPlan.__dataclass_fields__}
    return ConsumedPlan(
        **fields,
        output_partitions=dice.choice((1, 1, 2, 3)),
        output_layouts=_output_layouts(dice, seconds),
        moments=moments.drawn(seed, seconds),
    )


def _output_layouts(dice: Random, seconds: int) -> tuple[Strike, ...]:
    if dice.random() < QUIET_OUTPUT:
        return ()
    at_us, found = 0, list[Strike]()
    while (at_us := at_us + int(dice.expovariate(1 / OUTPUT_LAYOUT_US))) < seconds * SECOND_US:
        found.append(Strike(len(found), at_us, "output layout", dice.getrandbits(32)))
    return tuple(found)


def quiet(seed: int, seconds: int = 5) -> ConsumedPlan:
    """One member, one partition of each topic, and nothing that goes wrong."""
    plan = with_transformers(seed, seconds)
    return replace(
        plan,
        members=1,
        partitions=1,
        output_partitions=1,
        output_layouts=(),
        moments=(),
        strikes=(),
        acts=(),
        loss=0.0,
        last_cut=False,
    )


def busy(seed: int, kinds: Sequence[str], members: int = 3, seconds: int = BUSY_S) -> ConsumedPlan:
    """Many moments of these kinds, and nothing else that goes wrong."""
    plan = with_transformers(seed, seconds)
    return replace(
        plan,
        members=members,
        partitions=2,
        send_us=150_000,
        rows_max=24,
        strikes=(),
        acts=(),
        output_layouts=(),
        last_cut=False,
        moments=moments.of_kinds(seed, kinds, BUSY_US, seconds),
    )


class ConsumedSimulation(CohortSimulation):
    """The world of a seed with transformers in it."""

    plan: ConsumedPlan

    def __init__(self, plan: ConsumedPlan, native: ModuleType = _node) -> None:
        super().__init__(plan, native)
        self.output_layouter = Layouter(self, Random(f"output layouts {plan.seed}"), OUT)
        self.clients.append(self.output_layouter)
        self.moments = moments.Moments(self)

    def books(self) -> tuple[Ledger, ScopeLedger]:
        self.book = ConsumedLedger()
        return self.book, LineageScopes(self.book)

    def _cast(self, mode: str, dice: Random) -> Cast:
        return TransformCast(self, dice, self.cohort_plan.members)

    def act(self) -> None:
        self._create_output()
        super().act()
        for each in self.plan.output_layouts:
            self.agenda.after(each.at_us, partial(self._change_output, each))
        for each in self.plan.moments:
            self.agenda.after(each.at_us, partial(self.moments.arm, each))

    def _change_output(self, each: Strike) -> None:
        if not self.healed:
            self.output_layouter.chosen(Random(each.dice))

    def _create_output(self) -> None:
        """Once the administrator has heard that there is an input."""
        if self.admin.idle:
            self.admin.wants(OUT, self.plan.output_partitions)
        else:
            self.agenda.after(CREATE_US, self._create_output)

    # ---- the metadata ----

    def changed(self, before: Any, after: Any) -> None:
        super().changed(before, after)
        if before.scopes is after.scopes:
            return
        try:
            self.record.rows_first(before, after)
        except ViolationError as broken:
            self.violate(broken)
        for number, scope in after.scopes.items():
            was = before.scopes.get(number)
            known = 0 if was is None else was.committed
            for commit in scope.pending:
                if commit.epoch > known and commit.consumed is not UNSET:
                    self.record.decided(int(number), commit)
                    consumed = commit.consumed
                    self.moments.came("decided", int(consumed.session), int(consumed.ranges[0].partition))

    def proposes(self, machine: Machine, command: Any) -> None:
        super().proposes(machine, command)
        if isinstance(command, CommitScope) and command.consumed is not UNSET:
            consumed = command.consumed
            partition = int(consumed.ranges[0].partition)
            self.moments.came("seen", int(consumed.session), partition, machine)

    @property
    def record(self) -> Any:
        """Of the only cohort."""
        return self.casts[0].record

    # ---- peace ----

    def _at_rest(self) -> str:
        missing = super()._at_rest()
        if missing:
            return missing
        for number, scope in sorted(self.machines[0].replica.state.scopes.items()):
            if scope.pending:
                return f"scope {number} has commits that are not over: {scope.pending}"
        return ""

    def _reckon(self) -> None:
        state = self.machines[0].replica.state
        output = state.topic_named(f"public/default/{OUT}")
        self.book.output = output.layout
        super()._reckon()
        state = self.machines[0].replica.state
        source, output = (state.topic_named(f"public/default/{name}") for name in (TOPIC, OUT))
        self.record.check_copy(self.book, source.layout, output.layout)

    def play(self) -> None:
        try:
            super().play()
        finally:
            for cast in self.casts:
                if isinstance(cast, TransformCast):
                    cast.end()  # no thread is left


def run_seed(plan: ConsumedPlan, native: ModuleType = _node, *, is_told: bool = False) -> Result:
    """Play one seed."""
    with waiting.installed():
        return run(plan, native, is_told=is_told, make=ConsumedSimulation)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(cohorts.main(with_transformers, run_seed, "python -m tests.sim.consumed"))
