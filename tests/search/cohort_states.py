"""States of a searched world of cohorts, and which of them are equal."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from tests.search.cohort_chain import CohortChain


class Gate(NamedTuple):
    """`at`: the prefix that the owner has applied; `entry`: (incarnation, position, settled by a member).

    `word`: the incarnation in which the parent's owner said that it is drained. `known`: the prefix for which
    an entry was forgotten. `is_new`: the owner has opened after the last replacement.
    """

    at: int
    entry: tuple[int, int, bool] | None = None
    word: int = 0
    known: int = 0
    is_new: bool = True


class State(NamedTuple):
    """`path`: prefixes that some owner has not applied, the newest last.

    `begins`: of each incarnation the first rows that must be given, by partition; None: where RESET said.
    `missed`, `told`: (incarnation, partition); `late`: pruned with all rows acknowledged and no mark.
    """

    path: tuple[int, ...]
    gates: tuple[Gate, ...]
    wrote: tuple[int, ...]
    begins: tuple[tuple[int, tuple[int | None, ...]], ...]
    got: frozenset[tuple[int, int, int]] = frozenset()
    seen: tuple[int, ...] = ()
    promise: tuple[int, ...] = ()
    missed: frozenset[tuple[int, int]] = frozenset()
    late: frozenset[tuple[int, int]] = frozenset()
    told: frozenset[tuple[int, int]] = frozenset()
    answers: frozenset[tuple[int, int, frozenset[int]]] = frozenset()
    seeks: int = 0
    replacements: int = 0
    kills: int = 0
    prunes: int = 0
    wrong: str = ""


class Keyed:
    """A state that equals another one if both differ by the numbers of their entries alone."""

    __slots__ = ("key", "state")

    def __init__(self, state: State, key: Hashable) -> None:
        self.state, self.key = state, key

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.key == other.key


def put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    """The tuple with another value at one place."""
    return (*values[:place], value, *values[place + 1 :])


class StateKeys(CohortChain):
    """Two states are one if they differ by the numbers of their entries alone."""

    def views(self, s: State) -> list[int]:
        """Prefixes under which a new owner may open: it has applied the entry that made it one (CG15)."""
        return [at for at in s.path if at >= self.log[s.path[-1]].restart]

    def trim(self, s: State) -> State:
        """Forget prefixes that every owner has applied, and rows of incarnations that no owner is in."""
        made = len(self.log[s.path[-1]].chain)
        low = min(gate.at for gate in s.gates[:made])
        if any(not gate.is_new for gate in s.gates[:made]):
            low = min([low, *self.views(s)])
        lagging = tuple(
            gate if place < made else gate._replace(at=low, is_new=True) for place, gate in enumerate(s.gates)
        )
        path = tuple(at for at in s.path if at >= low)
        oldest = int(self.cohort_of(path[0]).incarnation)
        return s._replace(
            path=path,
            gates=lagging,
            got=frozenset(row for row in s.got if row[2] >= oldest),
            seen=tuple(max(one, 0) if one >= oldest else 0 for one in s.seen),
            begins=tuple(known for known in s.begins if known[0] >= oldest),
            missed=frozenset(key for key in s.missed if key[0] >= oldest),
            late=frozenset(key for key in s.late if key[0] >= oldest),
            told=frozenset(key for key in s.told if key[0] >= oldest),
        )

    def keyed(self, s: State) -> Keyed:
        ranks = self.ranks(s)
        places = {at: place for place, at in enumerate(s.path)}
        gates_key = tuple(
            (
                places[gate.at],
                None if gate.entry is None else (ranks[gate.entry[0]], *gate.entry[1:]),
                ranks.get(gate.word, 0),
                places.get(gate.known, 0),
                gate.is_new,
            )
            for gate in s.gates
        )
        key = (
            tuple(self.view_key(at, ranks) for at in s.path),
            gates_key,
            s.wrote,
            tuple((ranks[inc], known) for inc, known in s.begins),
            frozenset((place, row, ranks[inc]) for place, row, inc in s.got),
            tuple(ranks.get(one, 0) for one in s.seen),
            s.promise,
            *(frozenset((ranks[inc], part) for inc, part in keys) for keys in (s.missed, s.late, s.told)),
            frozenset((place, ranks.get(inc, 0), gone) for place, inc, gone in s.answers),
            (s.seeks, s.replacements, s.kills, s.prunes),
            s.wrong,
        )
        return Keyed(s, key)

    def ranks(self, s: State) -> dict[int, int]:
        known = {int(self.cohort_of(at).incarnation) for at in s.path}
        known |= {gate.entry[0] for gate in s.gates if gate.entry is not None}
        known |= {gate.word for gate in s.gates if gate.word} | {inc for inc, _ in s.begins}
        known |= {row[2] for row in s.got} | {inc for keys in (s.missed, s.late, s.told) for inc, _ in keys}
        return {inc: rank for rank, inc in enumerate(sorted(known), start=1)}

    def view_key(self, at: int, ranks: dict[int, int]) -> Hashable:
        """What a prefix says of the chain, without the numbers of its entries."""
        prefix, cohort = self.log[at], self.cohort_of(at)
        layout = prefix.state.topics[self.topic].layout.by_id()
        place_of = {part: place for place, part in enumerate(prefix.chain)}
        marks = {mark.partition for mark in prefix.state.drained_marks.get(self.cohort, ())}
        notes = prefix.state.pruned_notes.get(self.cohort, {})
        return (
            ranks[int(cohort.incarnation)],
            cohort.start.kind,
            tuple((place_of[position.partition], position.offset) for position in cohort.start.positions),
            tuple(place_of[part] for part in cohort.start.finished if part in place_of),
            sum(
                layout[part].created_version <= cohort.layout_version
                for part in prefix.chain
                if part in layout
            ),
            tuple(part in layout for part in prefix.chain),
            tuple(place_of[part] for part in sorted(marks) if part in place_of),
            tuple(place_of[part] for part in cohort.resetting if part in place_of),
            frozenset(
                (place_of[child], tuple(place_of[note.partition] for note in one.notes))
                for child, one in notes.items()
                if child in place_of
            ),
        )
