"""Random walks over a metadata log with cohorts and layout changes, and a judge beside the invariants.

The judge has no line of the product's rules of cohorts. It keeps for each cohort what it was told itself:
slices by the plans that were taken, marks and incarnations, sessions, and what each partition that was pruned
leaves behind. It says which items must be taken, and what the state must be after each entry.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
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
    CohortId,
    CohortMode,
    CohortPosition,
    CohortSettings,
    MemberSession,
    StartKind,
)
from ringfence.control.model.commands import DeleteTopic
from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.layout_commands import PrunePartitions
from ringfence.control.model.results import Refused, Result
from ringfence.control.state_machines.cohorts.plans import next_entry
from tests.fakes.cohort_log import CohortLog, instance

EARLIEST, LATEST, POSITIONS = StartKind.EARLIEST, StartKind.LATEST, StartKind.POSITIONS
NAMES = ["m1", "m2", "m3", "m4"]


@dataclass
class Known:
    """What the judge knows of a cohort."""

    mode: CohortMode
    incarnation: int
    begins: dict[int, str]  # of partitions at its entry: "read", "behind" or "open"
    resetting: set[int]
    slices: dict[str, set[int]] = field(default_factory=dict)
    sessions: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    marks: set[int] = field(default_factory=set)
    missed: dict[int, set[int]] = field(default_factory=dict)  # by the child
    generation: int = 0


class CohortWalk(CohortLog):
    """One walk. `do` asks the judge about each command."""

    def __init__(self, seed: int) -> None:
        self.draw, self.seen = random.Random(seed), Counter[str]()
        self.known: dict[CohortId, Known] = {}
        self.late: list[Any] = []
        super().__init__(3, partitions=self.draw.choice([1, 2, 4]))

    # ---- the judge ------------------------------------------------------------------------------------

    def do(self, command: Any) -> Result:
        before, parts = self.state, self.parts()
        result = super().do(command)
        is_taken = not isinstance(result, Refused)
        self.seen[f"{type(command).__name__} {'taken' if is_taken else 'refused'}"] += 1
        judge = getattr(self, f"_judge_{type(command).__name__}", None)
        if judge is not None:
            judge(command, result)
        if isinstance(command, PrunePartitions) and is_taken:
            self._pruned(command, parts)
        if before is not self.state and hasattr(self, "known"):
            self._compare()
        return result

    def parts(self) -> dict[int, Any]:
        topic = self.state.topics.get(self.topic)
        return {} if topic is None else {int(part.partition): part for part in topic.layout.partitions}

    def through(self, known: Known, partition: int) -> bool:
        return partition in known.marks or known.begins.get(partition) == "behind"

    def _judge_CreateCohort(self, command: CreateCohort, result: Any) -> None:  # noqa: N802
        if isinstance(result, Refused) or result.already:
            return
        begins = {
            number: "read" if command.start is EARLIEST else "open" if part.is_active else "behind"
            for number, part in self.parts().items()
        }
        waiting = {number for number, how in begins.items() if how == "open"}
        self.known[result.cohort] = Known(command.mode, result.cohort, begins, waiting)

    def _judge_DeleteCohort(self, command: DeleteCohort, result: Any) -> None:  # noqa: N802
        if not isinstance(result, Refused):
            del self.known[command.cohort]

    def _judge_DeleteTopic(self, command: DeleteTopic, result: Any) -> None:  # noqa: N802
        has_members = any(known.sessions for known in self.known.values())
        assert isinstance(result, Refused) == (has_members and command.force is not True), "S9"
        if not isinstance(result, Refused):
            self.known.clear()

    def _judge_RegisterMembers(self, command: RegisterMembers, result: Any) -> None:  # noqa: N802
        if isinstance(result, Refused):
            return
        others = {other.item: other for other in result.others}
        for place, item in enumerate(command.members):
            known = self.known.get(item.cohort)
            if known is None:
                assert place in others, "a member of nothing"
                continue
            session, process = known.sessions.get(item.name, (0, b""))
            is_due = process != item.instance and item.after == session
            if place in others:
                assert others[place].session == session
                assert not is_due or item.instance in self._replaced(item), "a join was refused for nothing"
            else:
                assert is_due, "CAS: another session has the name"
                known.sessions[item.name] = (self.at << 16 | place, item.instance)
                known.slices.setdefault(item.name, set())

    def _replaced(self, item: Registration) -> tuple[bytes, ...]:
        return self.members(item.cohort)[item.name].replaced

    def _judge_RemoveMembers(self, command: RemoveMembers, result: Any) -> None:  # noqa: N802
        count, moved = 0, set[CohortId]()
        for item in command.members:
            known = self.known.get(item.cohort)
            if known is not None and known.sessions.get(item.name, (0, b""))[0] == item.session:
                count += 1
                del known.sessions[item.name]
                if known.slices.pop(item.name):
                    moved.add(item.cohort)
        for number in moved:
            self.known[number].generation += 1
        assert result.count == count, f"{result.count} members were removed, {count} had to be"

    def _judge_PublishPlan(self, command: PublishPlan, result: Any) -> None:  # noqa: N802
        known = self.known.get(command.cohort)
        must = known is not None and self._is_fit(known, command)
        assert must == (not isinstance(result, Refused)), f"judged {must}, got {result}"
        if known is None or isinstance(result, Refused):
            return
        for change in command.changes:
            known.slices[change.member] |= {*change.add}
            known.slices[change.member] -= {*change.remove}
        known.generation += 1

    def _is_fit(self, known: Known, command: PublishPlan) -> bool:
        parts = self.parts()
        if known.mode is CohortMode.QUEUE or command.generation != known.generation:
            return False
        if not command.changes or {change.member for change in command.changes} - {*known.sessions}:
            return False
        after = {name: set(share) for name, share in known.slices.items()}
        for change in command.changes:
            if not {*change.remove} <= after[change.member] or not (change.add or change.remove):
                return False
            after[change.member] -= {*change.remove}
        for change in command.changes:
            for partition in change.add:
                part = parts.get(int(partition))
                if part is None or (not part.is_active and self.through(known, int(partition))):
                    return False
                if any(partition in share for share in after.values()) or partition in change.remove:
                    return False
                after[change.member].add(int(partition))
        return True

    def _judge_MarkDrained(self, command: MarkDrained, result: Any) -> None:  # noqa: N802
        parts, count = self.parts(), 0
        for number in sorted({item.cohort for item in command.marks}):
            for item in command.marks:
                known = self.known.get(number)
                part = parts.get(int(item.partition))
                if item.cohort != number or known is None or part is None or part.is_active:
                    continue
                is_old = item.incarnation != known.incarnation or self.through(known, int(item.partition))
                is_early = any(
                    parent in parts and not self.through(known, int(parent)) for parent in part.parents
                )
                if not is_old and not is_early:
                    known.marks.add(int(item.partition))
                    known.missed.pop(int(item.partition), None)
                    count += 1
        assert result.count == count, f"{result.count} marks were taken, {count} had to be"

    def _judge_SeekCohort(self, command: SeekCohort, result: Any) -> None:  # noqa: N802
        known = self.known.get(command.cohort)
        if known is None or isinstance(result, Refused):
            return
        parts = self.parts()
        old = {number for number in parts if not parts[number].is_active and not self.through(known, number)}
        known.resetting |= old | {number for number, part in parts.items() if part.is_active}
        known.incarnation, known.marks, known.missed = result.incarnation, set(), {}
        known.generation += 1
        named = {int(position.partition) for position in command.positions}
        elders = self._elders(named)
        known.begins = {}
        for number, part in parts.items():
            to = command.to if command.to is not POSITIONS else command.rest
            if number in named or self._elders({number}) & named:
                known.begins[number] = "read" if number in named or number not in elders else "behind"
            elif number in elders:
                known.begins[number] = "behind"
            else:
                known.begins[number] = "read" if to is not LATEST else "open" if part.is_active else "behind"

    def _elders(self, numbers: set[int]) -> set[int]:
        parts, found, waiting = self.parts(), set[int](), list(numbers)
        while waiting:
            part = parts.get(waiting.pop())
            for parent in () if part is None else part.parents:
                if parent in parts and parent not in found:
                    found.add(int(parent))
                    waiting.append(int(parent))
        return found

    def _judge_MarkBegun(self, command: MarkBegun, result: Any) -> None:  # noqa: N802
        count = 0
        for number in sorted({item.cohort for item in command.marks}):
            known, begun = self.known.get(number), set[int]()
            for item in command.marks:
                fits = known is not None and item.cohort == number and item.incarnation == known.incarnation
                if fits and item.partition in known.resetting and self._owner(item) == item.epoch:  # type: ignore[union-attr]
                    begun.add(int(item.partition))
            if known is not None:
                known.resetting -= begun
            count += len(begun)
        assert result.count == count, f"{result.count} beginnings were taken, {count} had to be"

    def _owner(self, item: Begun) -> int:
        """The owner epoch of the log that has the gate, by walking down the lowest slot."""
        parts = self.parts()
        part = parts[int(item.partition)]
        lo = part.slots.lo
        holders = [one for one in parts.values() if one.is_active and one.slots.lo <= lo <= one.slots.hi]
        assert len(holders) == 1, "I1"
        return self.epoch(holders[0].partition)

    def _pruned(self, command: PrunePartitions, parts: dict[int, Any]) -> None:
        gone = {int(number) for number in command.partitions}
        for known in self.known.values():
            for number in sorted(gone):
                missed = known.missed.pop(number, set())
                if not self.through(known, number) and known.mode is not CohortMode.QUEUE:
                    missed = missed | {number}
                for child in parts[number].children:
                    if missed and int(child) not in known.marks:
                        known.missed.setdefault(int(child), set()).update(missed)
            if any(share & gone for share in known.slices.values()):
                known.generation += 1
            known.slices = {name: share - gone for name, share in known.slices.items()}
            known.marks -= gone
            known.resetting -= gone

    def _compare(self) -> None:
        """The state says what the judge knows."""
        assert {*self.state.cohorts} == {*self.known}, "cohorts"
        for number, known in self.known.items():
            cohort, members = self.cohort(number), self.members(number)
            assert cohort.incarnation == known.incarnation, "incarnations"
            assert {*cohort.resetting} == known.resetting, f"CD6: {cohort.resetting}, not {known.resetting}"
            assert cohort.generation == known.generation, f"CG6: generation {cohort.generation}, not {known}"
            assert {name: {*one.slice} for name, one in members.items()} == known.slices, "slices"
            found = {name: (int(one.session), one.instance) for name, one in members.items()}
            assert found == known.sessions, "sessions"
            marks = {int(mark.partition) for mark in self.state.drained_marks.get(number, ())}
            assert marks == known.marks, f"CD3: marks {marks}, not {known.marks}"
            notes = self.state.pruned_notes.get(number, {})
            told = {
                int(child): {int(note.partition) for note in one.notes if note.kind == "MISSED"}
                for child, one in notes.items()
            }
            assert {child: one for child, one in told.items() if one} == known.missed, "CR3: notes"

    # ---- drawing --------------------------------------------------------------------------------------

    def step(self) -> None:
        draw = self.draw
        self.time_ms += draw.choice([1, 1, 1_000, 400_000, 9_000_000])
        if self.topic not in self.state.topics:
            return
        kinds: list[tuple[Any, float]] = [
            (self._create, 2),
            (self._join, 6),
            (self._remove, 2),
            (self._plan, 6),
            (self._odd_plan, 4),
            (self._drain, 7),
            (self._seek, 3),
            (self._begin, 5),
            (self._layout, 6),
            (self._prune, 5),
            (self._owner_changes, 1),
            (self._change, 1),
            (self._rare, 0.1),
            (self._again, 4),
        ]
        command = draw.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]()
        if command is None:
            return
        if draw.random() < 0.25:
            self.late.append(command)  # it comes later, too
        self.do(command)

    def _any(self) -> CohortId | None:
        return self.draw.choice([*self.known]) if self.known else None

    def _again(self) -> Any:
        return self.late.pop(self.draw.randrange(len(self.late))) if self.late else None

    def _create(self) -> Any:
        return CreateCohort(
            topic=self.topic,
            name=self.draw.choice(["c1", "c2", "c3"]),
            mode=self.draw.choice([*CohortMode]),
            start=self.draw.choice([EARLIEST, LATEST]),
        )

    def _join(self) -> Any:
        number = self._any()
        if number is None:
            return None
        items = []
        for name in self.draw.sample(NAMES, self.draw.choice([1, 2, 3])):
            session = self.known[number].sessions.get(name, (0, b""))[0]
            after = self.draw.choice([session, session, 0])
            process = instance(f"{name}{self.draw.randrange(3)}")
            items.append(Registration(number, name, process, MemberSession(after), NodeId(self.nodes[0])))
        return RegisterMembers(members=tuple(items))

    def _remove(self) -> Any:
        number = self._any()
        if number is None or not self.known[number].sessions:
            return None
        name = self.draw.choice([*self.known[number].sessions])
        session = self.known[number].sessions[name][0] - self.draw.choice([0, 0, 0, 1])
        return RemoveMembers(members=(Removal(number, name, MemberSession(session), RemovalReason.SILENT),))

    def _plan(self) -> Any:
        number = self._any()
        made = (
            None
            if number is None
            else next_entry(self.state, self.cohort(number), most=self.draw.choice([2, 9]))
        )
        return None if made is None else made.command

    def _odd_plan(self) -> Any:
        """A plan of any partitions for any members."""
        number = self._any()
        if number is None:
            return None
        draw, known, parts = self.draw, self.known[number], [*self.parts()]
        changes = []
        for name in draw.sample(NAMES, draw.choice([1, 2])):
            own = sorted(known.slices.get(name, set())) if draw.random() < 0.85 else parts
            add = draw.sample(parts, min(len(parts), draw.choice([0, 1, 2])))
            remove = draw.sample(own, min(len(own), draw.choice([0, 1])))
            changes.append(
                SliceChange(
                    name, tuple(map(PartitionId, sorted(add))), tuple(map(PartitionId, sorted(remove)))
                )
            )
        generation = known.generation - draw.choice([0, 0, 0, 1])
        return PublishPlan(cohort=number, generation=generation, changes=tuple(changes))

    def _drain(self) -> Any:
        number = self._any()
        if number is None:
            return None
        draw, known, parts = self.draw, self.known[number], self.parts()
        sealed = [part for part in parts if not parts[part].is_active] if draw.random() < 0.9 else [*parts]
        if not sealed:
            return None
        chosen = draw.sample(sealed, min(len(sealed), draw.choice([1, 1, 2, 4])))
        old = draw.choice([known.incarnation] * 5 + [number])
        marks = tuple(Drained(number, old, PartitionId(part), draw.random() < 0.5) for part in chosen)  # type: ignore[arg-type]
        return MarkDrained(marks=marks)

    def _seek(self) -> Any:
        number = self._any()
        if number is None:
            return None
        draw, parts = self.draw, self.parts()
        to = draw.choice([*StartKind])
        positions: tuple[CohortPosition, ...] = ()
        if to is POSITIONS:
            named = sorted(draw.sample([*parts], min(len(parts), draw.choice([1, 2]))))
            positions = tuple(
                CohortPosition(PartitionId(part), draw.choice([0, 5]), Epoch(0)) for part in named
            )
        return SeekCohort(
            cohort=number,
            incarnation=self.cohort(number).incarnation,
            to=to,
            positions=positions,
            rest=draw.choice([None, EARLIEST, LATEST]) if to is POSITIONS else None,
        )

    def _begin(self) -> Any:
        number = self._any()
        if number is None or not self.known[number].resetting:
            return None
        waiting = sorted(self.known[number].resetting)
        chosen = self.draw.sample(waiting, min(len(waiting), self.draw.choice([1, 2, 9])))
        return self.begun(number, *chosen, late=self.draw.choice([0, 0, 0, 1]))

    def _layout(self) -> Any:
        """A whole split or merge, whose transition is left open or finalized."""
        if len(self.parts()) > 24:
            return None
        active = self.active
        place = self.draw.randrange(len(active))
        if self.draw.random() < 0.35 and place + 1 < len(active):
            made = self.merge(active[place], active[place + 1])
        elif active[place].slots.lo < active[place].slots.hi:
            made = self.split(active[place])
        else:
            return None
        self.done(made, upto="opened")
        return None

    def _prune(self) -> Any:
        for number in [*self.state.transitions]:
            self.do(self.finalize(number))
        oldest = [number for number, part in self.parts().items() if not part.is_active and not part.parents]
        return self.prune(PartitionId(self.draw.choice(oldest))) if oldest else None

    def _owner_changes(self) -> Any:
        return self.restart(int(self.draw.choice(self.nodes)))

    def _change(self) -> Any:
        number = self._any()
        if number is None:
            return None
        changed = self.cohort(number).changed
        if self.draw.random() < 0.7:
            return self.change(number, changed - self.draw.choice([0, 1]), limit=self.draw.choice([3, 500]))
        if self.draw.random() < 0.5:
            return self.delete(number)
        return ChangeCohort(cohort=number, mode=CohortMode.QUEUE, settings=CohortSettings(), expected=changed)

    def _rare(self) -> Any:
        return (
            DeleteTopic(topic=self.topic, force=True)
            if self.draw.random() < 0.3
            else DeleteTopic(topic=self.topic)
        )


def walk(seed: int, steps: int = 150) -> CohortWalk:
    """One walk; AssertionError names what is wrong."""
    walked = CohortWalk(seed)
    for number in range(steps):
        walked.step()
        if number % 30 == 29:
            walked.agree()
    walked.agree()
    return walked
