"""A metadata log with a cohort and scopes by hand: commits with what was consumed, and random walks of them.

The walk keeps its own account: which commits must be taken, and what of them is not confirmed.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.cohorts import MemberSession
from ringfence.control.model.ids import Epoch, Index, PartitionId, ScopeId
from ringfence.control.model.results import Refused, ScopeDecided
from ringfence.control.model.scopes import (
    BeginScope,
    CommitScope,
    ConfirmPublished,
    Consumed,
    ConsumedRange,
    ExpireScope,
    StagedPart,
)
from ringfence.control.state_machines.metadata import consumed_ranges
from ringfence.control.state_machines.metadata.cohort_lineage import heir
from ringfence.native.wire import Code
from tests.fakes.cohort_log import CohortLog

TOKEN = b"c" * 16
HOLD = 7 << 20


class ConsumedLog(CohortLog):
    """A STREAM cohort `clean` with members `a` and `b`, and a scope for each of them."""

    def __init__(self, nodes: int = 3, *, partitions: int = 4) -> None:
        super().__init__(nodes, partitions=partitions)
        self.clean = self.create("clean")
        self.join(self.clean, "a", "b")
        self.plan(self.clean)
        self.drivers = {name: self.begin(name) for name in ("a", "b")}

    def begin(self, member: str) -> tuple[ScopeId, Index]:
        begun = self.took(BeginScope(name=f"consume/{self.clean}/{member}", one_off=True))
        return begun.scope, begun.driver

    def session(self, member: str) -> MemberSession:
        return self.members(self.clean)[member].session

    def range_of(self, partition: PartitionId, first: int = 0, through: int = 5) -> ConsumedRange:
        parts = self.now.layout.by_id()
        return ConsumedRange(partition, HOLD, first, through, Epoch(self.epoch(heir(parts, partition))))

    def consumed(self, member: str, *ranges: ConsumedRange) -> Consumed:
        cohort = self.cohort(self.clean)
        return Consumed(
            self.topic, self.clean, cohort.incarnation, self.session(member), TOKEN, tuple(sorted(ranges))
        )

    def commit_consumed(self, member: str, epoch: int, *ranges: ConsumedRange, rows: int = 0) -> CommitScope:
        """The commit of a member; `rows` of the output are in the first ACTIVE partition."""
        scope, driver = self.drivers[member]
        parts = (StagedPart(self.topic, self.active[0].partition, rows),) if rows else ()
        return CommitScope(
            scope=scope,
            driver=driver,
            epoch=epoch,
            tokens=(TOKEN,),
            parts=parts,
            keep=True,
            consumed=self.consumed(member, *ranges),
        )

    def confirm(self, member: str, epoch: int, *partitions: int, rows: bool = False) -> ConfirmPublished:
        parts = ((self.topic, self.active[0].partition),) if rows else ()
        settled = tuple(map(PartitionId, partitions))
        return ConfirmPublished(
            scope=self.drivers[member][0], epoch=epoch, parts=parts, consumed=settled or UNSET
        )

    def due(self) -> list[tuple[int, int, bool]]:
        """Positions that are due: epoch, partition, whether it is gone."""
        return [
            (due.epoch, due.range.partition, due.is_gone) for due in consumed_ranges.due_positions(self.state)
        ]


class ConsumedWalk:
    """Random commits, confirmations, seeks, restarts, splits and members that come and go."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log = ConsumedLog(partitions=2)
        self.seen: Counter[str] = Counter()
        # Commits that are not confirmed: (member's scope, epoch) -> (partitions with rows, positions).
        self.waiting: dict[tuple[ScopeId, int], tuple[set[int], set[int]]] = {}
        self.incarnations: dict[tuple[ScopeId, int], int] = {}
        self.next_epoch: dict[ScopeId, int] = {}
        self.settled: dict[int, int] = {}
        self.late: list[CommitScope] = []
        self.nightly = self.log.took(BeginScope(name="nightly"))

    def run(self, steps: int) -> Counter[str]:
        steps_of = (
            self.commit,
            self.commit,
            self.confirm,
            self.confirm,
            self.late_commit,
            self.others,
            self.others,
        )
        for _ in range(steps):
            if self.log.clean not in self.log.state.cohorts:
                break
            self.random.choice(steps_of)()
            self.check()
        self.log.agree()
        return self.seen

    # ---- steps ----------------------------------------------------------------------------------------

    def commit(self) -> None:
        log, name = self.log, self.random.choice(("a", "b"))
        if name not in log.members(log.clean):
            log.join(log.clean, name)
        scope, _ = log.drivers[name]
        parts = sorted(part.partition for part in log.now.layout.partitions)
        chosen = self.random.sample(parts, self.random.randint(1, min(2, len(parts))))
        ranges = []
        for partition in chosen:
            first = self.settled.get(partition, 0)
            through = first + self.random.randint(1, 3)
            ranges.append(log.range_of(PartitionId(partition), first, through))
        epoch = self.next_epoch.get(scope, 1)
        command = log.commit_consumed(name, epoch, *ranges, rows=self.random.choice((0, 4)))
        if self.random.random() < 0.1:
            foreign = replace(command, scope=self.nightly.scope, driver=self.nightly.driver)
            assert isinstance(log.do(foreign), Refused), "CT10: the scope of no cohort settled its positions"
            self.seen["foreign"] += 1
        if self.random.random() < 0.4:
            later = self.random.randint(0, 2)  # others of this scope may be decided before it
            self.late = [*self.late[-3:], replace(command, epoch=epoch + later)]
            return
        self.take(command, must=True)

    def take(self, command: CommitScope, *, must: bool) -> None:
        log, key = self.log, (command.scope, command.epoch)
        held = any(part.partition in log.state.changes for part in command.parts)
        before = log.state.scopes[command.scope]
        result = log.do(command)
        if isinstance(result, Refused):
            self.seen[f"refused {Code(result.code).name}"] += 1
            full = result.code in (Code.OVERLOADED, Code.HELD, Code.MOVED)
            assert not must or full or held, f"an honest commit was refused: {result.message}"
            return
        assert isinstance(result, ScopeDecided)
        self.seen["already" if result.already else "decided"] += 1
        if result.already:
            return
        assert command.consumed is not UNSET
        assert command.driver == before.driver, "CT9: an older driver of the scope committed"
        assert command.epoch > before.expired, "an epoch that expired was committed"
        self.next_epoch[command.scope] = command.epoch + 1
        positions: set[int] = {one.partition for one in command.consumed.ranges}
        self.waiting[key] = ({part.partition for part in command.parts}, positions)
        self.incarnations[key] = command.consumed.incarnation
        self.settled |= {one.partition: one.through for one in command.consumed.ranges}

    def late_commit(self) -> None:
        """A COMMIT that was checked and comes much later, perhaps twice."""
        if self.late:
            command = self.random.choice(self.late)
            if self.random.random() < 0.7:
                self.late.remove(command)
            self.take(command, must=False)

    def confirm(self) -> None:
        """Rows of any commit, or positions that are due."""
        if not self.waiting:
            return
        key = self.random.choice([*self.waiting])
        rows, positions = self.waiting[key]
        due = {
            one.range.partition
            for one in consumed_ranges.due_positions(self.log.state)
            if (one.scope, one.epoch) == key
        }
        if rows and self.random.random() < 0.6:
            done, settled = {self.random.choice(sorted(rows))}, set[int]()
        elif due:
            done, settled = set(), {self.random.choice(sorted(due))}
        else:
            return
        parts = tuple((self.log.topic, PartitionId(part)) for part in sorted(done))
        command = ConfirmPublished(scope=key[0], epoch=key[1], parts=parts)
        if settled:
            command = replace(command, consumed=tuple(map(PartitionId, sorted(settled))))
        for _ in range(self.random.randint(1, 2)):
            self.log.must(command)
        self.seen["rows confirmed" if done else "positions confirmed"] += 1
        rows -= done
        positions -= settled
        if not rows and not positions:
            del self.waiting[key]

    def others(self) -> None:
        log, kind = self.log, self.random.random()
        if kind < 0.2:
            log.must(log.seek(log.clean))
            self.settled = {}
            self.seen["seek"] += 1
        elif kind < 0.5:
            log.must(log.restart(self.random.choice(log.nodes)))
            self.seen["restart"] += 1
        elif kind < 0.7:
            name = self.random.choice(("a", "b"))
            if name in log.members(log.clean):
                log.must(log.leave(log.clean, name))
                self.seen["leave"] += 1
        elif kind < 0.85:
            name = self.random.choice(("a", "b"))
            log.drivers[name] = log.begin(name)
            self.seen["begin"] += 1
        elif kind < 0.95:
            scope, driver = log.drivers["a"]
            epoch = self.next_epoch.get(scope, 1)
            if not isinstance(log.do(ExpireScope(scope=scope, epoch=epoch, driver=driver)), Refused):
                self.next_epoch[scope] = epoch + 1
                self.seen["expire"] += 1
        elif len(log.active) < 4:
            part = self.random.choice(log.active)
            held = log.do(log.split(part))
            if not isinstance(held, Refused):
                self.split()

    def split(self) -> None:
        """Go on with a split until something refuses it: rows that wait in its source."""
        log = self.log
        change = log.transition.change
        log.must(log.hold(change))
        if isinstance(log.do(log.commit(change)), Refused):
            log.must(log.abort(change))
            return
        log.must(log.opened(change))
        self.seen["split"] += 1

    # ---- the account ----------------------------------------------------------------------------------

    def check(self) -> None:
        """What waits in the state is what the account has, and only what is to be written or gone is due."""
        found = {
            (scope.scope, commit.epoch): (
                {part.partition for part in commit.parts},
                set() if commit.consumed is UNSET else {one.partition for one in commit.consumed.ranges},
            )
            for scope in self.log.state.scopes.values()
            for commit in scope.pending
        }
        assert found == self.waiting, f"CT7: {found} is pending, {self.waiting} is not confirmed"
        now = self.log.cohort(self.log.clean).incarnation
        expected = {
            (*key, partition, self.incarnations[key] != now)
            for key, (rows, positions) in self.waiting.items()
            for partition in positions
            if not rows or self.incarnations[key] != now
        }
        due = {
            (one.scope, one.epoch, one.range.partition, one.is_gone)
            for one in consumed_ranges.due_positions(self.log.state)
        }
        assert due == expected, f"CT4: {due} is due, {expected} should be"


def walk(seed: int, steps: int = 120) -> Counter[str]:
    return ConsumedWalk(seed).run(steps)
