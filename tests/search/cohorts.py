"""A cohort over a chain of partitions that is split, sought and pruned: every order, over the product's log.

The log, the rules of gates, what is drained and what has begun are the product's. Modelled is one gate a
partition, as its owner's log has it: an entry (incarnation, position, whether a member settled), owners that
lag or are replaced, words between owners, a reader that takes rows and may be killed. A record of a gate's
log is one step. Each partition of the chain is split into the next one and a sibling without rows.

- CG3: what was acknowledged in an incarnation is not given again in it.
- CG7: no row is given before all rows of its ancestors, but for rows that the reader was told to be gone.
- CG8: no row of an older incarnation is given after a row of a newer one of a relative.
- CR3: a reader is told what was pruned before the cohort had read it, and nothing else.
- CD7: the latest rows are those after the answer: nothing that was published after it is passed over.
- From each state an end can be reached: all rows are read, nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from ringfence.control.model.cohort_commands import MarkBegun, MarkDrained, SeekCohort
from ringfence.control.model.cohorts import COHORT_LEVEL, CohortPosition, StartKind
from ringfence.control.model.ids import Epoch
from ringfence.control.model.layout_commands import FinalizeLayout, PrunePartitions
from ringfence.control.state_machines.cohorts import gates
from ringfence.control.state_machines.cohorts.gates import DrainedWord, GateProgress, GateRule
from ringfence.control.state_machines.metadata.cohort_lineage import BeginningKind
from tests.fakes.metadata_commands import restart
from tests.search.cohort_chain import EARLIEST, NODE
from tests.search.cohort_states import Gate, Keyed, State, StateKeys, put
from tests.search.explore import Step

POSITIONS = StartKind.POSITIONS
DAY_MS: Final = 86_400_000


class CohortWorld(StateKeys):
    """The world of one plan."""

    def __init__(
        self,
        lengths: tuple[int, ...] = (1, 1),
        *,
        start: tuple[StartKind, int] = (EARLIEST, 0),
        targets: tuple[StartKind, ...] = (),
        named: tuple[int, int] = (0, 1),
        seeks: int = 0,
        replacements: int = 0,
        kills: int = 0,
        prunes: int = 0,
    ) -> None:
        """`lengths`: rows of each partition; `start`: the first target, and the ACTIVE partition then;
        `named`: the partition and offset of a seek to positions.
        """
        super().__init__(lengths)
        self.targets, self.named, self.start = targets, named, start
        self.budget: dict[str, Any] = {
            "seeks": seeks,
            "replacements": replacements,
            "kills": kills,
            "prunes": prunes,
        }

    # ---- the log --------------------------------------------------------------------------------------

    def first(self) -> Keyed:
        kind, active = self.start
        wrote = tuple(count if place < active else 0 for place, count in enumerate(self.lengths))
        at = self.begin(kind, active, wrote)
        begins = ((int(self.cohort_of(at).incarnation), self.expected(at, wrote, kind, {})),)
        none = (0,) * len(self.lengths)
        gates_first = (Gate(at),) * len(self.lengths)
        first = State((at,), gates_first, wrote, begins, seen=none, promise=none)
        return self.keyed(first._replace(**self.budget))

    # ---- what is expected -----------------------------------------------------------------------------

    def missing(self, s: State, place: int, incarnation: int, end: int) -> int | None:
        """A row below `end` that had to be given and was not."""
        known = dict(s.begins).get(incarnation)
        first = None if known is None else known[place]
        if first is None:
            return None
        return next((row for row in range(first, end) if (place, row, incarnation) not in s.got), None)

    def fault(self, s: State, place: int, incarnation: int, row: int) -> str:
        if (place, row, incarnation) in s.got:
            return (
                f"CG3: row {row} of {place} was acknowledged in incarnation {incarnation}, and is given again"
            )
        begins = dict(s.begins)[incarnation][place]
        if begins is not None and row < begins:
            return f"CD7: row {row} of {place} is given, incarnation {incarnation} begins at {begins}"
        for other in range(place + 1):
            missing = self.missing(s, other, incarnation, row if other == place else s.wrote[other])
            if missing is None or (incarnation, other) in s.told:
                continue
            if (incarnation, other) in s.missed:
                return f"CR3: row {row} of {place} is given, rows of {other} are missing, and nobody was told"
            return f"CG7: row {row} of {place} before row {missing} of {other}, incarnation {incarnation}"
        if any(s.seen[other] > incarnation for other in self.all if other != place):
            return f"CG8: incarnation {incarnation} of {place} goes on after rows of {max(s.seen)}"
        return ""

    # ---- the world --------------------------------------------------------------------------------------

    def wrong(self, keyed: Any) -> str | None:
        s: State = keyed.state
        if s.wrong or not self.is_end(keyed):
            return s.wrong or None
        incarnation = int(self.cohort_of(s.path[-1]).incarnation)
        for place in self.all:
            row = self.missing(s, place, incarnation, s.wrote[place])
            if row is not None and (incarnation, place) not in s.told:
                return f"CH6: row {row} of {place} is given to nobody in incarnation {incarnation}"
        return None

    def is_end(self, keyed: Any) -> bool:
        s: State = keyed.state
        last, prefix = s.path[-1], self.log[s.path[-1]]
        if len(prefix.chain) < len(self.lengths) or self.cohort_of(last).resetting or s.answers:
            return False
        return all(self.is_done(s, place, last) for place in self.all)

    def is_done(self, s: State, place: int, last: int) -> bool:
        gate = s.gates[place]
        part = self.log[last].state.topics[self.topic].layout.find(self.log[last].chain[place])
        if part is None:
            return True
        rule = self.rule(last, place, 0)
        if rule.is_through:
            return True
        is_read = gate.entry is not None and gate.entry[0] == rule.incarnation
        position = gate.entry[1] if is_read and gate.entry is not None else rule.beginning.offset
        return gate.at == last and position == self.lengths[place] == s.wrote[place] and part.is_active

    def steps(self, keyed: Any) -> Iterator[Step]:
        for label, after, is_fault in self._steps(keyed.state):
            yield Step(label, self.keyed(self.trim(after)), is_fault)

    def _steps(self, s: State) -> Iterator[tuple[str, State, bool]]:
        last = s.path[-1]
        chain = self.log[last].chain
        active = len(chain) - 1
        if s.wrote[active] < self.lengths[active]:
            yield (
                f"a row is written to {active}",
                s._replace(wrote=put(s.wrote, active, s.wrote[active] + 1)),
                False,
            )
        elif active < self.all[-1]:
            yield "split", self.grown(s, self.split(last, s.wrote[active])), False
        if s.seeks:
            for target in self.targets:
                if target is not POSITIONS or self.can_name(s, active):
                    yield f"seek {target}", self.seek(s, target), True
        if s.prunes and active:
            yield from self.prune(s)
        if s.kills:
            yield "the reader is killed", s._replace(answers=frozenset(), kills=s.kills - 1), True
        if s.replacements:
            yield "owners are replaced", self.replaced(s), True
        for place in range(len(chain)):
            yield from self.owner(s, place)
        for answer in s.answers:
            yield self.hears(s, answer)

    def can_name(self, s: State, active: int) -> bool:
        part, offset = self.named
        chain = self.log[s.path[-1]].chain
        is_there = part <= active and self.log[s.path[-1]].state.topics[self.topic].layout.find(chain[part])
        return bool(is_there) and offset <= s.wrote[part]

    def grown(self, s: State, at: int) -> State:
        return s._replace(path=(*s.path, at))

    def seek(self, s: State, to: StartKind) -> State:
        last = s.path[-1]
        cohort, chain = self.cohort_of(last), self.log[last].chain
        part, offset = self.named
        positions = (CohortPosition(chain[part], offset, Epoch(0)),) if to is POSITIONS else ()
        command = SeekCohort(
            cohort=self.cohort,
            incarnation=cohort.incarnation,
            to=to,
            positions=positions,
            rest=EARLIEST if to is POSITIONS else None,
        )
        at = self.siblings_begin(self.take(last, command))
        begins = (int(self.cohort_of(at).incarnation), self.expected(at, s.wrote, to, {part: offset}))
        zero = (0,) * len(self.lengths)
        grown = self.grown(s, at)
        return grown._replace(seeks=s.seeks - 1, begins=(*s.begins, begins), promise=zero)

    def prune(self, s: State) -> Iterator[tuple[str, State, bool]]:
        """The oldest sealed partition goes, read or not."""
        last = s.path[-1]
        prefix = self.log[last]
        topic = prefix.state.topics[self.topic]
        place = next(place for place in self.all if topic.layout.find(prefix.chain[place]) is not None)
        if topic.layout.by_id()[prefix.chain[place]].is_active:
            return
        at = last
        for change in sorted(prefix.state.transitions):
            at = self.take(at, FinalizeLayout(change=change), DAY_MS)
        at = self.take(at, PrunePartitions(topic=self.topic, partitions=(prefix.chain[place],)), DAY_MS)
        incarnation = int(self.cohort_of(last).incarnation)
        key = (incarnation, place)
        first = dict(s.begins)[incarnation][place]
        is_missing = self.missing(s, place, incarnation, s.wrote[place]) is not None
        after = self.grown(s, at)._replace(prunes=s.prunes - 1)
        if is_missing:
            after = after._replace(missed=s.missed | {key})
        elif first is None or first < s.wrote[place]:
            # Rows that were acknowledged, without a mark: the note is allowed.
            after = after._replace(late=s.late | {key})
        yield f"{place} is pruned", after, True

    def replaced(self, s: State) -> State:
        at = self.take(s.path[-1], replace(restart(self.log[s.path[-1]].state, NODE), level=COHORT_LEVEL))
        self.log[at] = self.log[at]._replace(restart=at)
        opened = tuple(gate._replace(is_new=False) for gate in s.gates)
        return self.grown(s, at)._replace(gates=opened, replacements=s.replacements - 1)

    # ---- an owner ---------------------------------------------------------------------------------------

    def owner(self, s: State, place: int) -> Iterator[tuple[str, State, bool]]:
        gate = s.gates[place]
        if gate.at != s.path[-1]:
            following = s.path[s.path.index(gate.at) + 1]
            yield f"owner {place} applies", self.gate(s, place, at=following), False
        if not gate.is_new:
            yield from self.opens(s, place)
        prefix = self.log[gate.at]
        if place >= len(prefix.chain) or gate.at < gate.known:
            return
        if prefix.state.topics[self.topic].layout.find(prefix.chain[place]) is None:
            return
        rule = self.rule(gate.at, place, gate.word)
        if gate.entry is not None and gate.entry[0] > rule.incarnation:
            return
        yield from self.acts(s, place, gate, rule)

    def opens(self, s: State, place: int) -> Iterator[tuple[str, State, bool]]:
        """The new owner opens; it has applied the entry that made it one (CG15)."""
        for at in self.views(s):
            if place < len(self.log[at].chain):
                after = self.gate(s, place, at=at, word=0, is_new=True)
                yield f"the new owner of {place} opens", after, False

    def acts(self, s: State, place: int, gate: Gate, rule: GateRule) -> Iterator[tuple[str, State, bool]]:
        progress = self.progress(gate, rule)
        key = (self.cohort, rule.partition)
        state = self.log[gate.at].state
        if self.must_reset(gate, rule):
            yield from self.reset(s, place, rule)
        for told in gates.begun_words(state, [rule], {key: progress}):
            at = self.take(
                s.path[-1], MarkBegun(marks=(told._replace(epoch=self.epoch_of(gate, told.epoch)),))
            )
            if at != s.path[-1]:
                promise = put(s.promise, place, s.wrote[place])
                yield f"{place} has begun", self.grown(s, at)._replace(promise=promise), False
        for word in gates.drained_words(state, [rule], {key: progress}):
            yield from self.tells(s, place, word)
        if gate.entry is not None and rule.is_through and gate.entry[0] == rule.incarnation:
            yield f"owner {place} forgets", self.gate(s, place, entry=None, known=gate.at), False
        has_place = progress.incarnation == rule.incarnation or (
            gate.entry is None and not self.is_not_begun(rule)
        )
        if has_place and not rule.is_blocked and not rule.is_through:
            yield from self.serves(s, place, gate, rule)

    def epoch_of(self, gate: Gate, epoch: Epoch) -> Epoch:
        """The epoch under which an owner acts: after its replacement an older one than its metadata says."""
        is_old = not gate.is_new and gate.at >= self.log[gate.at].restart > 0
        return Epoch(epoch - 1) if is_old else epoch

    def must_reset(self, gate: Gate, rule: GateRule) -> bool:
        if gate.entry is None:
            return self.is_not_begun(rule) and not rule.is_through
        return gate.entry[0] < rule.incarnation

    @staticmethod
    def is_not_begun(rule: GateRule) -> bool:
        return rule.beginning.kind is BeginningKind.NOT_BEGUN

    @staticmethod
    def progress(gate: Gate, rule: GateRule) -> GateProgress:
        if gate.entry is None:
            return GateProgress(0, rule.beginning.offset, False)  # type: ignore[arg-type]
        incarnation, position, is_settled = gate.entry
        return GateProgress(incarnation, position, is_settled)  # type: ignore[arg-type]

    def reset(self, s: State, place: int, rule: GateRule) -> Iterator[tuple[str, State, bool]]:
        """The record by which a gate begins: RESET, or FORGET where the partition is not read."""
        gate = s.gates[place]
        if rule.beginning.kind is BeginningKind.FINISHED:
            yield (
                f"owner {place} forgets what was before",
                self.gate(s, place, entry=None, known=gate.at),
                False,
            )
            return
        position = s.wrote[place] if self.is_not_begun(rule) else rule.beginning.offset
        after = self.gate(s, place, entry=(int(rule.incarnation), position, False))
        is_newest = rule.incarnation == self.cohort_of(s.path[-1]).incarnation
        if self.is_not_begun(rule):
            newest = self.log[s.path[-1]].state.topics[self.topic].layout
            is_there = newest.find(rule.partition) is not None
            is_told = is_there and is_newest and rule.partition not in self.cohort_of(s.path[-1]).resetting
            if is_told and s.wrote[place] > s.promise[place]:
                row = s.promise[place]
                wrong = f"CD7: row {row} of {place} was published after the answer, and is passed over"
                after = after._replace(wrong=wrong)
            begins = dict(s.begins)
            begins[int(rule.incarnation)] = put(begins[int(rule.incarnation)], place, position)
            after = after._replace(begins=tuple(sorted(begins.items())))
        yield f"RESET of {place} at {position}", after, False

    def tells(self, s: State, place: int, word: DrainedWord) -> Iterator[tuple[str, State, bool]]:
        at = self.take(s.path[-1], MarkDrained(marks=(word.mark,)))
        if at != s.path[-1]:
            after = self.grown(s, at)
            silent = self.silent(s, place, int(word.mark.incarnation))
            if silent is not None:
                after = after._replace(
                    wrong=f"CR3: {place} is drained, rows of {silent} are missing: not told"
                )
            yield f"{place} is drained", after, False
        if place + 1 < len(self.lengths) and s.gates[place + 1].word < word.mark.incarnation:
            heard = self.gate(s, place + 1, word=int(word.mark.incarnation))
            yield f"owner {place + 1} hears that {place} is drained", heard, False

    def silent(self, s: State, place: int, incarnation: int) -> int | None:
        """An ancestor whose rows are missing, and nobody was told."""
        for other in range(place):
            key = (incarnation, other)
            if (
                key in s.missed
                and key not in s.told
                and self.missing(s, other, incarnation, s.wrote[other]) is not None
            ):
                return other
        return None

    def serves(self, s: State, place: int, gate: Gate, rule: GateRule) -> Iterator[tuple[str, State, bool]]:
        incarnation = int(rule.incarnation)
        entry_now = gate.entry or (incarnation, rule.beginning.offset, False)
        if rule.notes is not None and rule.notes.has_missed and not entry_now[2]:
            chain = self.log[gate.at].chain
            gone = frozenset(chain.index(note.partition) for note in rule.notes.notes)
            answer = (place, incarnation, gone)
            if answer not in s.answers:
                held = self.gate(s, place, entry=entry_now)
                yield f"{place} answers truncated", held._replace(answers=s.answers | {answer}), False
            return
        row = entry_now[1]
        newest = self.log[s.path[-1]].state.topics[self.topic].layout
        if row >= s.wrote[place] or newest.find(rule.partition) is None:
            return  # of a pruned partition the rows are gone before its entry
        wrong = self.fault(s, place, incarnation, row)
        after = self.gate(s, place, entry=(incarnation, row + 1, True))
        seen = put(s.seen, place, max(s.seen[place], incarnation))
        got = s.got | {(place, row, incarnation)}
        yield f"row {row} of {place}", after._replace(got=got, seen=seen, wrong=wrong), False

    def hears(self, s: State, answer: tuple[int, int, frozenset[int]]) -> tuple[str, State, bool]:
        """The reader hears what is gone, and skips: it settles where the partition begins."""
        place, incarnation, gone = answer
        told = {(incarnation, other) for other in gone}
        after = s._replace(answers=s.answers - {answer}, told=s.told | told)
        is_old = incarnation < self.cohort_of(s.path[0]).incarnation
        if not is_old and told - s.missed - s.late:
            after = after._replace(
                wrong=f"CR3: the reader is told of {sorted(gone)}, and missed none of them"
            )
        gate = s.gates[place]
        if gate.entry is not None and gate.entry[0] == incarnation and not gate.entry[2]:
            after = self.gate(after, place, entry=(incarnation, gate.entry[1], True))
        return f"the reader hears that {sorted(gone)} is gone", after, False

    @staticmethod
    def gate(s: State, place: int, **fields: Any) -> State:
        return s._replace(gates=put(s.gates, place, s.gates[place]._replace(**fields)))
