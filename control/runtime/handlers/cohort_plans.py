"""Plan changes of cohorts. The data address and HTTP submit the plans, `metadata.cohorts` judges them."""

from __future__ import annotations

from typing import NamedTuple

from ringfence.control.model.cohort_commands import ChangeCohort, CreateCohort, DeleteCohort, SeekCohort
from ringfence.control.model.cohorts import (
    Cohort,
    CohortMode,
    CohortPosition,
    CohortSettings,
    Incarnation,
    StartKind,
)
from ringfence.control.model.ids import Epoch, Index, PartitionId
from ringfence.control.model.results import Done
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.handlers.cohort_values import check_name, cohort_named, find_cohort
from ringfence.control.runtime.handlers.commands import Build, Outcome, Plan
from ringfence.control.runtime.handlers.topic_plans import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.cohort_checks import level_fault
from ringfence.native.wire import Code


class SeekTarget(NamedTuple):
    """Where a cohort begins again. `rest`: where partitions begin that no position says anything of."""

    to: StartKind
    positions: tuple[CohortPosition, ...] = ()
    rest: StartKind | None = None


class CohortPlans:
    """Plans of one node. A plan raises RequestRefused if the request cannot be carried out."""

    def __init__(self, proposer: RaftProposer) -> None:
        self._proposer = proposer

    def check_level(self) -> None:
        """RequestRefused while the cluster's level is below that of cohorts."""
        fault = level_fault(self._proposer.state)
        if fault is not None:
            raise RequestRefused(fault.code, fault.message)

    async def cohort(self, topic: str, name: str) -> Cohort:
        """The cohort of this name. RequestRefused if there is none."""
        self.check_level()
        return await cohort_named(self._proposer, topic, name)

    def find(self, state: MetadataState, topic: str, name: str) -> Cohort | None:
        """The cohort of this name in this state."""
        known = state.topic_named(topic)
        return None if known is None else find_cohort(state, known.topic, name)

    def creation(
        self, topic: str, name: str, mode: CohortMode, start: StartKind, settings: CohortSettings
    ) -> Build:
        """Create a cohort, or find it with this mode and these settings."""

        async def build() -> Plan:
            self.check_level()
            check_name(self._proposer, name)
            number = (await topic_named(self._proposer, topic)).topic
            known = find_cohort(self._proposer.state, number, name)
            if known is not None and (known.mode, known.settings) == (mode, settings):
                return Plan(done=Outcome(0, Done()))
            command = CreateCohort(topic=number, name=name, mode=mode, start=start, settings=settings)
            return Plan((command,))

        return build

    def change(
        self, topic: str, name: str, mode: CohortMode, settings: CohortSettings, version: int
    ) -> Build:
        """Declare all settings of a cohort that has those of `version`."""

        async def build() -> Plan:
            cohort = await self.cohort(topic, name)
            if (cohort.mode, cohort.settings) == (mode, settings):
                return Plan(done=Outcome(0, Done()))
            return Plan(
                (ChangeCohort(cohort=cohort.cohort, mode=mode, settings=settings, expected=Index(version)),)
            )

        return build

    def deletion(self, topic: str, name: str, version: int = 0, *, missing_ok: bool = False) -> Build:
        """Delete a cohort with its members. `version` 0: whatever its settings are."""

        async def build() -> Plan:
            try:
                cohort = await self.cohort(topic, name)
            except RequestRefused as refusal:
                if missing_ok and refusal.code is Code.UNKNOWN_COHORT:
                    return Plan(done=Outcome(0, Done()))
                raise
            if version and cohort.changed != version:
                message = (
                    f"the settings of cohort {name!r} are of version {cohort.changed}, the deletion is for "
                    f"{version}; read them again"
                )
                raise RequestRefused(Code.TOO_OLD, message)
            return Plan((DeleteCohort(topic=cohort.topic, name=cohort.name, cohort=cohort.cohort),))

        return build

    def seek(self, topic: str, name: str, target: SeekTarget, incarnation: int = 0) -> Build:
        """Begin again at the target. `incarnation` 0: whichever there is."""

        async def build() -> Plan:
            cohort = await self.cohort(topic, name)
            now = Incarnation(incarnation) if incarnation else cohort.incarnation

            async def is_overtaken(refusal: RequestRefused) -> bool:
                # Another seek came between the look and the entry: this one comes after it.
                return not incarnation and refusal.code is Code.TOO_OLD

            command = SeekCohort(
                cohort=cohort.cohort,
                incarnation=now,
                to=target.to,
                positions=target.positions,
                rest=target.rest,
            )
            return Plan((command,), is_overtaken=is_overtaken)

        return build


def positions_of(items: list[tuple[int, int, int]]) -> tuple[CohortPosition, ...]:
    """Positions of a request: (partition, offset, epoch), in any order. RequestRefused for negative ones."""
    for partition, offset, epoch in items:
        if min(partition, offset, epoch) < 0 or max(partition, offset, epoch) >= 1 << 63:
            message = f"position ({partition}, {offset}, {epoch}): numbers from 0 to 2^63 - 1"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
    return tuple(
        CohortPosition(PartitionId(partition), offset, Epoch(epoch))
        for partition, offset, epoch in sorted(items)
    )
