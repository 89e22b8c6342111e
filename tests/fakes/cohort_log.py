"""A metadata log with cohorts by hand: commands in, states out, on two replicas that must agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringfence.control.model.cohort_commands import (
    Begun,
    ChangeCohort,
    CreateCohort,
    DeleteCohort,
    Drained,
    MarkBegun,
    MarkDrained,
    PublishPlan,
    RegisterMembers,
    Registration,
    Removal,
    RemovalReason,
    RemoveMembers,
    SeekCohort,
    SliceChange,
)
from ringfence.control.model.cohorts import (
    COHORT_LEVEL,
    Cohort,
    CohortId,
    CohortMode,
    CohortPosition,
    CohortSettings,
    Member,
    MemberSession,
    StartKind,
)
from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.results import Refused, Result
from ringfence.control.state_machines.cohorts.plans import next_entry
from ringfence.control.state_machines.metadata.cohort_lineage import heir, members_of
from tests.fakes.layout_log import LayoutLog

NONE = MemberSession(0)
DAY_MS = 86_400_000


def instance(text: str) -> bytes:
    """The instance of a process of this name."""
    return text.encode().ljust(16, b".")[:16]


class CohortLog(LayoutLog):
    """As LayoutLog, of level 3. `last` is the result of the newest command."""

    def __init__(self, nodes: int = 3, *, replication: int = 1, partitions: int = 4) -> None:
        self.last: Result | None = None
        super().__init__(nodes, replication=replication, partitions=partitions, level=COHORT_LEVEL)

    def do(self, command: Any) -> Result:
        self.last = super().do(command)
        return self.last

    def took(self, command: Any) -> Any:
        """The result of a command that must be applied."""
        self.must(command)
        return self.last

    # ---- short ways -----------------------------------------------------------------------------------

    def create(
        self,
        name: str = "c",
        mode: CohortMode = CohortMode.STREAM,
        start: StartKind = StartKind.EARLIEST,
        **settings: int,
    ) -> CohortId:
        """Create a cohort; its id."""
        made = CreateCohort(
            topic=self.topic, name=name, mode=mode, start=start, settings=CohortSettings(**settings)
        )
        number: CohortId = self.took(made).cohort
        return number

    def cohort(self, number: CohortId) -> Cohort:
        return self.state.cohorts[number]

    def members(self, number: CohortId) -> dict[str, Member]:
        return dict(members_of(self.state, number))

    def part(self, number: PartitionId) -> Partition:
        part = self.now.layout.find(number)
        assert part is not None, f"partition {number} is not in the layout"
        return part

    def change(self, number: CohortId, expected: int, **settings: int) -> ChangeCohort:
        return ChangeCohort(
            cohort=number,
            mode=self.cohort(number).mode,
            settings=CohortSettings(**settings),
            expected=expected,  # type: ignore[arg-type]
        )

    def delete(self, number: CohortId) -> DeleteCohort:
        return DeleteCohort(topic=self.topic, name=self.cohort(number).name, cohort=number)

    def item(
        self, number: CohortId, name: str, process: str = "", after: MemberSession = NONE
    ) -> Registration:
        return Registration(number, name, instance(process or name), after, NodeId(self.nodes[0]))

    def join(self, number: CohortId, *names: str) -> list[MemberSession]:
        """Register members by one entry; their sessions."""
        self.must(RegisterMembers(members=tuple(self.item(number, name) for name in names)))
        return [self.members(number)[name].session for name in names]

    def leave(self, number: CohortId, *names: str) -> RemoveMembers:
        members = self.members(number)
        return RemoveMembers(
            members=tuple(Removal(number, name, members[name].session, RemovalReason.LEFT) for name in names)
        )

    def publish(self, number: CohortId, **changes: tuple[Sequence[int], Sequence[int]]) -> PublishPlan:
        """Slices of members by name: what each gets, and what it loses."""
        return PublishPlan(
            cohort=number,
            generation=self.cohort(number).generation,
            changes=tuple(
                SliceChange(
                    name, tuple(map(PartitionId, sorted(add))), tuple(map(PartitionId, sorted(remove)))
                )
                for name, (add, remove) in sorted(changes.items())
            ),
        )

    def plan(self, number: CohortId) -> int:
        """Publish the plan of a cohort, whose members are all connected; the number of its entries."""
        count = 0
        while (made := next_entry(self.state, self.cohort(number))) is not None:
            self.must(made.command)
            count += 1
        return count

    def slices(self, number: CohortId) -> dict[str, tuple[int, ...]]:
        return {name: tuple(member.slice) for name, member in sorted(self.members(number).items())}

    def drained(
        self, number: CohortId, *partitions: int, read: bool = True, incarnation: int | None = None
    ) -> MarkDrained:
        now = self.cohort(number).incarnation if incarnation is None else incarnation
        return MarkDrained(
            marks=tuple(
                Drained(number, now, PartitionId(part), read)  # type: ignore[arg-type]
                for part in partitions
            )
        )

    def begun(self, number: CohortId, *partitions: int, late: int = 0) -> MarkBegun:
        """Beginnings under the present owner epochs; `late` epochs older."""
        parts = self.now.layout.by_id()
        return MarkBegun(
            marks=tuple(
                Begun(
                    number,
                    self.cohort(number).incarnation,
                    PartitionId(part),
                    Epoch(self.epoch(heir(parts, PartitionId(part))) - late),
                )
                for part in partitions
            )
        )

    def seek(
        self,
        number: CohortId,
        to: StartKind = StartKind.EARLIEST,
        positions: Mapping[PartitionId, int] | None = None,
        rest: StartKind | None = None,
    ) -> SeekCohort:
        return SeekCohort(
            cohort=number,
            incarnation=self.cohort(number).incarnation,
            to=to,
            positions=tuple(
                CohortPosition(part, offset, Epoch(0)) for part, offset in sorted((positions or {}).items())
            ),
            rest=rest,
        )

    def split_done(self, part: Partition) -> tuple[Partition, Partition]:
        """Split a partition; its children, the heir first."""
        self.done(self.split(part), upto="opened")
        one, other = self.part(part.partition).children
        return self.part(one), self.part(other)

    def merge_done(self, one: Partition, other: Partition) -> Partition:
        """Merge two partitions; the child."""
        self.done(self.merge(one, other), upto="opened")
        return self.part(self.part(one.partition).children[0])

    def prune_overdue(self, *partitions: PartitionId) -> Result:
        """Let the hold times of partitions pass, finalize what is open, and prune them."""
        self.time_ms += DAY_MS
        for number in [*self.state.transitions]:
            self.must(self.finalize(number))
        result = self.do(self.prune(*partitions))
        assert not isinstance(result, Refused), result
        return result
