"""Seeds with transformers: members of a STREAM that write what they read to a second topic, exactly once.

As seeds with a cohort, with the library's consumer and transaction on fibers of their own.
`python -m tests.sim.consumed --seeds 1..100`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from random import Random
from types import ModuleType
from typing import Any, Final

from msgspec import UNSET

from ringfence.native import _node
from tests.sim import cohorts
from tests.sim.checks.consumed import ConsumedLedger
from tests.sim.checks.ledger import Ledger
from tests.sim.checks.lineage_scopes import LineageScopes
from tests.sim.checks.scopes import ScopeLedger
from tests.sim.clients import waiting
from tests.sim.clients.cast import Cast
from tests.sim.clients.transformer import OUT, TransformCast
from tests.sim.cohorts import SECONDS, CohortPlan, CohortSimulation, with_cohort
from tests.sim.simulation import TOPIC, Result, run

CREATE_US: Final = 20_000


@dataclass(frozen=True, slots=True)
class ConsumedPlan(CohortPlan):
    """One seed with transformers."""

    output_partitions: int = 1


def with_transformers(seed: int, seconds: int = SECONDS) -> ConsumedPlan:
    """The strikes of a seed with a cohort, and an output."""
    plan = with_cohort(seed, seconds, modes=("stream",))
    dice = Random(f"consumed {seed}")
    fields = {name: getattr(plan, name) for name in CohortPlan.__dataclass_fields__}
    return ConsumedPlan(**fields, output_partitions=dice.choice((1, 1, 2, 3)))


def quiet(seed: int, seconds: int = 5) -> ConsumedPlan:
    """One member, one partition of each topic, and nothing that goes wrong."""
    plan = with_transformers(seed, seconds)
    return replace(
        plan, members=1, partitions=1, output_partitions=1, strikes=(), acts=(), loss=0.0, last_cut=False
    )


class ConsumedSimulation(CohortSimulation):
    """The world of a seed with transformers in it."""

    plan: ConsumedPlan

    def __init__(self, plan: ConsumedPlan, native: ModuleType = _node) -> None:
        super().__init__(plan, native)

    def books(self) -> tuple[Ledger, ScopeLedger]:
        self.book = ConsumedLedger()
        return self.book, LineageScopes(self.book)

    def _cast(self, mode: str, dice: Random) -> Cast:
        return TransformCast(self, dice, self.cohort_plan.members)

    def act(self) -> None:
        self._create_output()
        super().act()

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
        for number, scope in after.scopes.items():
            was = before.scopes.get(number)
            known = 0 if was is None else was.committed
            for commit in scope.pending:
                if commit.epoch > known and commit.consumed is not UNSET:
                    self.record.decided(int(number), commit)

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

    def end(self) -> None:
        """No thread is left."""
        for cast in self.casts:
            if isinstance(cast, TransformCast):
                cast.end()


def run_seed(plan: ConsumedPlan, native: ModuleType = _node, *, is_told: bool = False) -> Result:
    """Play one seed."""
    made: list[ConsumedSimulation] = []

    def make(*given: Any) -> ConsumedSimulation:
        made.append(ConsumedSimulation(*given))
        return made[0]

    with waiting.installed():
        try:
            return run(plan, native, is_told=is_told, make=make)
        finally:
            for world in made:
                world.end()


if __name__ == "__main__":
    sys.exit(cohorts.main(with_transformers, run_seed, "python -m tests.sim.consumed"))
