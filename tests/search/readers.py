"""One reader over all partitions of a topic that changes, by the real `Lineage`: a world for `explore`.

The log side is one step each: a row is appended to the ACTIVE partition of its slot, a transition seals, a
sealed partition is pruned (retention took its rows). The reader takes tables late, reads the admitted
partitions in any order, keeps its positions at any moment and may begin again at the kept ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

from ringfence.common.lineage import DRAW_BITS, Finish, Lineage, Lost, Part, View, restore
from tests.search.explore import Step

TOPIC = 1
AGAIN, PRUNE, SAVE = range(3)
Row = tuple[int, int]  # slot, number
Pairs = tuple[tuple[int, int], ...]


class Transition(NamedTuple):
    """Names of the partitions that are sealed, and slots of each child by its name."""

    sources: tuple[str, ...]
    children: dict[str, tuple[int, ...]]


class Reader(NamedTuple):
    """`cursors`: next row by partition; `lineage`: key of the machine; `saved`: positions and rows then."""

    held: tuple[int, frozenset[int]]
    cursors: Pairs
    lineage: Any
    got: Pairs
    saved: tuple[Pairs, Pairs]
    broken: bool = False
    wrong: str | None = None


class Topic(NamedTuple):
    version: int
    rows: tuple[tuple[int, tuple[Row, ...]], ...]
    pruned: frozenset[int]
    appended: Pairs
    reader: Reader
    spent: tuple[int, int, int]


def put(pairs: Any, key: Any, value: Any) -> Any:
    return tuple(sorted([*(pair for pair in pairs if pair[0] != key), (key, value)]))


def cloned(machine: Lineage) -> Lineage:
    """The same state; views are never changed, so they are shared."""
    made = copy(machine)
    made.open, made.finished = dict(machine.open), set(machine.finished)
    made._ended, made._missed, made._waits = set(machine._ended), set(machine._missed), dict(machine._waits)
    made._newer = {one: list(newer) for one, newer in machine._newer.items()}
    return made


class ReaderWorld:
    """`rows` of each slot; `budget`: restarts, prunes, kept positions."""

    machine: type[Lineage] = Lineage

    def __init__(
        self,
        roots: dict[str, tuple[int, ...]],
        *transitions: Transition,
        rows: int = 1,
        budget: tuple[int, int, int] = (1, 0, 1),
    ) -> None:
        self.rows, self.budget, self.transitions = rows, budget, transitions
        self.slots: dict[int, tuple[int, ...]] = {}
        self.created: dict[int, int] = {}
        self.sealed: dict[int, int] = {}
        self.parents: dict[int, tuple[int, ...]] = {}
        ids: dict[str, int] = {}
        for version, made in enumerate([roots, *(one.children for one in transitions)], 1):
            sources = () if version == 1 else tuple(ids[one] for one in transitions[version - 2].sources)
            for one in sources:
                self.sealed[one] = version
            for ordinal, (name, slots) in enumerate(made.items()):
                ids[name] = number = TOPIC + version << DRAW_BITS | ordinal
                self.slots[number], self.created[number] = slots, version
                self.parents[number] = tuple(one for one in sources if set(self.slots[one]) & set(slots))
        self._machines: dict[Any, Lineage] = {}

    # ---- the log side

    def known(self, version: int) -> list[int]:
        return [one for one, created in self.created.items() if created <= version]

    def active(self, version: int, slot: int) -> int:
        return next(
            one
            for one in self.known(version)
            if slot in self.slots[one] and self.sealed.get(one, 99) > version
        )

    def view(self, version: int, pruned: frozenset[int], rows: dict[int, tuple[Row, ...]]) -> View:
        present = [one for one in self.known(version) if one not in pruned]
        parts = {
            one: Part(one, self.created[one], self.parents[one], self.sealed.get(one, 99) <= version)
            for one in present
        }
        gone = {
            parent: len(rows[parent]) for one in present for parent in self.parents[one] if parent in pruned
        }
        return View(TOPIC, version + len(pruned), version, parts, gone)

    def view_of(self, state: Topic) -> View:
        return self.view(state.version, state.pruned, dict(state.rows))

    def first(self) -> Topic:
        slots = sorted({slot for own in self.slots.values() for slot in own})
        none = tuple((slot, 0) for slot in slots)
        rows = tuple((one, ()) for one in self.known(1))
        view = self.view(1, frozenset(), {})
        reader = self.begun(view, (), none)
        return Topic(1, rows, frozenset(), none, reader._replace(saved=(reader.cursors, none)), (0, 0, 0))

    def steps(self, state: Any) -> Iterator[Step]:
        rows = dict(state.rows)
        for slot, count in state.appended:
            if count < self.rows:
                one = self.active(state.version, slot)
                grown = put(state.rows, one, (*rows[one], (slot, count + 1)))
                after = state._replace(rows=grown, appended=put(state.appended, slot, count + 1))
                yield Step(f"row {count + 1} of {slot}", after)
        if state.version <= len(self.transitions):
            made = [one for one, created in self.created.items() if created == state.version + 1]
            grown = tuple(sorted([*state.rows, *((one, ()) for one in made)]))
            yield Step("a transition", state._replace(version=state.version + 1, rows=grown))
        yield from self.reader_steps(state)
        if state.spent[PRUNE] < self.budget[PRUNE]:
            for one, version in self.sealed.items():
                is_free = set(self.parents[one]) <= state.pruned and one not in state.pruned
                if version <= state.version and is_free:
                    after = self.spend(state, PRUNE)._replace(pruned=state.pruned | {one})
                    yield Step(f"{one} is pruned", after, True)

    def spend(self, state: Topic, what: int) -> Topic:
        first, second, third = (count + (at == what) for at, count in enumerate(state.spent))
        return state._replace(spent=(first, second, third))

    # ---- the reader

    def keyed(self, machine: Lineage) -> Any:
        key = (
            machine.view.generation,
            machine.view.version,
            frozenset(machine.view.parts),
            tuple(sorted(machine._gone.items())),
            tuple(sorted(machine.open.items())),
            frozenset(machine.finished),
            frozenset(machine._ended),
            frozenset(machine._missed),
            tuple(sorted((one, tuple(newer)) for one, newer in machine._newer.items())),
        )
        self._machines.setdefault(key, machine)
        return key

    def begun(self, view: View, positions: Pairs, got: Pairs) -> Reader:
        machine = self.machine(view, restore(view, dict(positions)), grows=True)
        effects = machine.begin(dict(positions))
        cursors = tuple(sorted((one, dict(positions).get(one, 0)) for one in machine.open))
        reader = Reader((0, frozenset()), cursors, self.keyed(machine), got, ((), ()))
        return self.applied(reader, machine, effects)

    def applied(self, reader: Reader, machine: Lineage, effects: list[Any]) -> Reader:
        cursors, broken = dict(reader.cursors), reader.broken
        for effect in effects:
            if isinstance(effect, Lost):
                broken = True
            elif isinstance(effect, Finish):
                cursors.pop(effect.partition, None)
            elif effect.partition in machine.open:
                cursors.setdefault(effect.partition, 0)
        wrong = reader.wrong or next(iter(machine.faults()), None)
        return reader._replace(
            cursors=tuple(sorted(cursors.items())), lineage=self.keyed(machine), broken=broken, wrong=wrong
        )

    def event(self, reader: Reader, name: str, *arguments: Any) -> Reader:
        machine = cloned(self._machines[reader.lineage])
        return self.applied(reader, machine, getattr(machine, name)(*arguments))

    def reader_steps(self, state: Topic) -> Iterator[Step]:
        reader, rows = state.reader, dict(state.rows)
        if reader.broken:
            return
        machine = self._machines[reader.lineage]
        views = [
            self.view(version, frozenset(), {}) for version in range(machine.view.version + 1, state.version)
        ]
        for view in [*views, self.view_of(state)]:
            after = self.event(reader, "table", view)
            if after.lineage != reader.lineage:
                yield Step(f"table {view.generation}", state._replace(reader=after))
        for one in machine.admitted:
            at = dict(reader.cursors)[one]
            yield from self.fetched(state, one, at, rows)
        if state.spent[SAVE] < self.budget[SAVE]:
            saved = reader._replace(saved=(reader.cursors, reader.got))
            yield Step("positions are kept", self.spend(state, SAVE)._replace(reader=saved), True)
        if state.spent[AGAIN] < self.budget[AGAIN]:
            positions, got = reader.saved
            again = self.begun(self.view_of(state), positions, got)._replace(saved=reader.saved)
            yield Step("begins again", self.spend(state, AGAIN)._replace(reader=again), True)

    def fetched(self, state: Topic, one: int, at: int, rows: dict[int, tuple[Row, ...]]) -> Iterator[Step]:
        reader = state.reader
        if one in state.pruned:
            held = self.event(reader, "table", self.view_of(state))
            yield Step(f"{one} is missing", state._replace(reader=self.event(held, "missing", one, at)))
        elif at < len(rows[one]):
            slot, number = rows[one][at]
            before = dict(reader.got)[slot]
            wrong = None if number == before + 1 else f"R1: slot {slot}: row {number} after row {before}"
            after = reader._replace(
                cursors=put(reader.cursors, one, at + 1), got=put(reader.got, slot, number), wrong=wrong
            )
            yield Step(f"reads row {number} of {slot}", state._replace(reader=after))
        elif self.sealed.get(one, 99) <= state.version:
            after = self.event(reader, "ended", one)
            if after.lineage != reader.lineage:
                yield Step(f"{one} has ended", state._replace(reader=after))

    # ---- what must hold

    def wrong(self, state: Any) -> str | None:
        wrong: str | None = state.reader.wrong
        return wrong

    def is_end(self, state: Any) -> bool:
        if state.version <= len(self.transitions) or any(count < self.rows for _, count in state.appended):
            return False
        if state.reader.broken:
            return bool(state.pruned)
        active = {one for one in self.known(state.version) if one not in self.sealed}
        return dict(state.reader.cursors).keys() == active and state.reader.got == state.appended


def split(source: str, *children: tuple[str, tuple[int, ...]]) -> Transition:
    return Transition((source,), dict(children))


Slots = dict[str, tuple[int, ...]]
ONE: Slots = {"p": (0, 1)}
AROUND = (split("p", ("a", (0,)), ("b", (1,))), Transition(("a", "b"), {"m": (0, 1)}))
DEEP = (*AROUND, split("m", ("c", (0,)), ("d", (1,))))
TWO: Slots = {"a": (0,), "b": (1,)}
DIAMOND = (Transition(("a", "b"), {"m": (0, 1)}), split("m", ("c", (0,)), ("d", (1,))))
SHIFTED: Slots = {"a": (0, 1), "b": (2,)}
SHIFT = (Transition(("a", "b"), {"c": (0,), "d": (1, 2)}),)
