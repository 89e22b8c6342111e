"""Order partitions by lineage: which ones a reader may read now, and which are finished. Pure.

A split, merge or repartition seals partitions (the parents) and creates others (their children). Rows of a
slot in a parent come before its rows in a child. So a partition is admitted when every ancestor is finished.
It is finished when its owner said `ended` after the last row, and the held table has it as SEALED: only
then the reader knows the children.

    Lineage(view, restored, ...)      the state of one reader; `begin`, `table`, `ended`, `missing` and `skip`
                                      return effects for the reader to carry out in order
    restore(view, positions)          the partitions to open for positions of an earlier read (R1 to R4)

Sealed partitions are pruned once their rows are gone, parents before children. A child keeps the ids and end
offsets of pruned parents in `gone`, by which a reader tells a partition that it has read from one that it has
missed. docs/design/lineage.md has the rules and why each is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from ringfence.common.routing import Layout

# Bits of a partition id below the index of the metadata entry that drew it.
DRAW_BITS = 16


class Part(NamedTuple):
    """One partition of a table, as a reader needs it.

    `older`: its parents, also pruned ones. `is_sealed`: it was split, merged or repartitioned.
    """

    partition: int
    created_version: int
    older: tuple[int, ...] = ()
    is_sealed: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """The lineage in one routing table. `gone`: end offset of each pruned parent that a partition names."""

    topic: int
    generation: int
    version: int
    parts: Mapping[int, Part]
    gone: Mapping[int, int]

    @property
    def has_lineage(self) -> bool:
        """Whether a layout change ever replaced a partition that this table shows."""
        return bool(self.gone) or any(part.is_sealed or part.older for part in self.parts.values())

    def ancestors(self, partitions: Iterable[int]) -> set[int]:
        """All partitions before these that the table tells of, pruned parents included."""
        found: set[int] = set()
        left = list(partitions)
        while left:
            part = self.parts.get(left.pop())
            for older in () if part is None else part.older:
                if older not in found:
                    found.add(older)
                    left.append(older)
        return found

    def descendants(self, partitions: Iterable[int]) -> set[int]:
        """All partitions of the table that come after these."""
        found = set(partitions)
        roots = frozenset(found)
        for part in self.in_order():
            if not found.isdisjoint(part.older):
                found.add(part.partition)
        return found - roots

    def in_order(self) -> list[Part]:
        """The partitions, parents before children."""
        return sorted(self.parts.values(), key=lambda part: (part.created_version, part.partition))

    def was_pruned(self, partition: int) -> bool:
        """Whether a partition that is not in the table may be one of this topic that was pruned.

        Ids ascend along a lineage, and a pruned partition has a descendant in `gone`. Others belong to
        another topic, or to a newer table.
        """
        is_of_topic = partition >> DRAW_BITS >= self.topic
        return partition in self.gone or (is_of_topic and any(partition < newer for newer in self.gone))


def view_of(layout: Layout) -> View:
    """The lineage in a routing table."""
    gone: dict[int, int] = {}
    parts = {}
    for entry in layout.partitions.values():
        own = dict(entry.gone or ())
        gone |= own
        parts[entry.partition] = Part(
            entry.partition, entry.created_version, (*entry.parents, *own), entry.sealed_version > 0
        )
    return View(layout.topic, layout.generation, layout.version, parts, gone)


# ---- effects -----------------------------------------------------------------------------------------------


class Begin(NamedTuple):
    """Open a cursor at the first row of a partition that is new to this reader."""

    partition: int


class Admit(NamedTuple):
    """Fetch the partition from now on."""

    partition: int


class Finish(NamedTuple):
    """Close the cursor: no row comes after its position, or the rest was skipped."""

    partition: int


class FetchTable(NamedTuple):
    """The partition has ended and the held table does not seal it: fetch a newer table."""

    partition: int


class Lost(NamedTuple):
    """Rows from `offset` on may have been pruned before they were read. The partition is open until `skip`.

    `end`: after the last row; None: no table tells it, and rows of its descendants may be lost, too.
    """

    partition: int
    offset: int
    end: int | None


Effect = Begin | Admit | Finish | FetchTable | Lost


# ---- positions ---------------------------------------------------------------------------------------------


class Restored(NamedTuple):
    """Partitions of a table, by what positions of an earlier read say of them.

    `listed` begin at their positions, `new` at their first row, `others` at the log start: they have no
    listed ancestor. The table does not have `pruned`, which are listed, nor `missed`, which are not: they
    came and went since the positions. `finished` are not read. `unknown` are listed, and the topic never had
    them as far as the table tells.
    """

    listed: tuple[int, ...]
    new: tuple[int, ...]
    others: tuple[int, ...]
    pruned: tuple[int, ...]
    missed: tuple[int, ...]
    finished: frozenset[int]
    unknown: tuple[int, ...]

    @property
    def open(self) -> tuple[int, ...]:
        return (*self.listed, *self.new, *self.others, *self.pruned, *self.missed)


def restore(view: View, positions: Collection[int]) -> Restored:
    """Sort the partitions of a table by the partitions that positions list; none: a read from the start.

    R1: a listed partition is read from its position. R2: an ancestor of a listed one is finished, every other
    partition begins. R3: a listed partition that is not in the table was pruned. R4: so was one that no
    position lists, that `gone` names, and that is no ancestor of a listed one: it came and went meanwhile.
    """
    if not positions:
        everything = tuple(part.partition for part in view.in_order())
        return Restored((), (), everything, (), (), frozenset(view.gone), ())
    listed = frozenset(positions)
    finished = view.ancestors(listed) - listed
    missed = tuple(sorted(view.gone.keys() - listed - finished))
    newer = view.descendants({*listed, *missed})
    order = [part.partition for part in view.in_order()]
    unlisted = [one for one in order if one not in listed and one not in finished]
    absent = sorted(listed - view.parts.keys())
    return Restored(
        listed=tuple(one for one in order if one in listed),
        new=tuple(one for one in unlisted if one in newer),
        others=tuple(one for one in unlisted if one not in newer),
        pruned=tuple(one for one in absent if view.was_pruned(one)),
        missed=missed,
        finished=frozenset(finished),
        unknown=tuple(one for one in absent if not view.was_pruned(one)),
    )


def chosen(view: View, partitions: Collection[int]) -> Restored:
    """A read of these partitions alone."""
    listed = tuple(part.partition for part in view.in_order() if part.partition in partitions)
    finished = frozenset((view.parts.keys() | view.gone.keys()) - set(listed))
    unknown = tuple(one for one in partitions if one not in view.parts)
    return Restored(listed, (), (), (), (), finished, unknown)


# ---- one reader --------------------------------------------------------------------------------------------


class Lineage:
    """Which partitions one reader has open, and which of them it may read.

    A partition waits for the ones directly before it. One of these stops counting when it is *clear*:
    finished, and nothing before it is open. So a partition that waits for nothing has no open ancestor,
    though ancestors further up are not looked at.

    Attributes:
        view: of the newest table, or of the first one unless `grows`.
        open: partitions that are not finished, by the number of partitions that each waits for.
        finished: partitions that are read, or that positions or the caller left out.
    """

    def __init__(self, view: View, restored: Restored, *, grows: bool, limited: bool = False) -> None:
        """`grows`: follow children. `limited`: to partitions that the caller has named."""
        self.view = view
        self._grows, self._limited = grows, limited
        self.open: dict[int, int] = {}
        self.finished: set[int] = set(restored.finished)
        self._ended: set[int] = set()  # by their owners
        # By partition that is not clear: the ones that wait for it.
        self._newer: dict[int, list[int]] = {}
        self._waits: dict[int, int] = {}  # of finished partitions that are not clear
        self._missed: set[int] = set()  # open ones that came and went between two tables
        self._gone = view.gone
        for partition in restored.pruned:
            self.open[partition] = 0
        self._add_missed(restored.missed)
        to_open = {*restored.listed, *restored.new, *restored.others}
        for part in view.in_order():
            if part.partition in to_open:
                self._add(part, is_open=True)
            elif part.partition in self.finished:
                self._add(part, is_open=False)

    @property
    def admitted(self) -> list[int]:
        """The open partitions that wait for nothing."""
        return [partition for partition, waits in self.open.items() if not waits]

    # ---- events --------------------------------------------------------------------------------------------

    def begin(self, offsets: Mapping[int, int]) -> list[Effect]:
        """The first event: `offsets` of the positions. After a `Lost` nothing is admitted until `skip`.

        No table tells which partitions come after one that was pruned before this read began. So each of
        those is judged first.
        """
        absent = [one for one in self.open if one not in self.view.parts]
        effects = [effect for one in absent for effect in self.missing(one, offsets.get(one, 0))]
        if any(isinstance(effect, Lost) for effect in effects):
            return [effect for effect in effects if not isinstance(effect, Admit)]
        finished = [effect for effect in effects if isinstance(effect, Finish)]
        return [*finished, *(Admit(partition) for partition in self.admitted)]

    def table(self, view: View) -> list[Effect]:
        """A table arrived. One that is older than the held one is ignored."""
        if (view.generation, view.version) < (self.view.generation, self.view.version):
            return []
        self._gone = view.gone
        if not self._grows:
            return []  # the children are not read, so the first table stays the one that positions() goes by
        self.view = view
        unknown = [one for one in self._gone if one not in self.open and one not in self.finished]
        effects = self._add_missed(unknown)
        for part in view.in_order():
            if part.partition not in self.open and part.partition not in self.finished:
                effects.append(Begin(part.partition))
                if self._add(part, is_open=True):
                    effects.append(Admit(part.partition))
        for partition in [one for one in self.open if one in self._ended and self._is_sealed(one)]:
            effects += self._finish(partition)
        self._forget()
        return effects

    def ended(self, partition: int) -> list[Effect]:
        """The owner said that the partition is sealed, and all of its rows were returned."""
        if partition not in self.open:
            return []
        self._ended.add(partition)
        if self._limited or self._is_sealed(partition):
            return self._finish(partition)
        return [FetchTable(partition)] if self._grows else []

    def missing(self, partition: int, offset: int) -> list[Effect]:
        """The newest table does not have the partition, and rows below `offset` were returned."""
        end = self._gone.get(partition)
        if partition not in self.open or (self._grows and partition in self.view.parts):
            return []
        if partition in self._missed:
            return [Lost(partition, offset, None)]
        if end == offset or partition in self._ended:
            return self._finish(partition)
        return [Lost(partition, offset, end)]

    def skip(self, partition: int) -> list[Effect]:
        """The caller goes on after rows that are lost."""
        return self._finish(partition) if partition in self.open else []

    # ---- private -------------------------------------------------------------------------------------------

    def _is_sealed(self, partition: int) -> bool:
        part = self.view.parts.get(partition)
        return part is None or part.is_sealed

    def _add_missed(self, partitions: Iterable[int]) -> list[Effect]:
        """Open partitions that were created and pruned between two tables.

        Rows are lost even where they had none: no table tells their parents, which may have come and gone as
        well. These are pruned in any case (parents are pruned first), so each waits for the other open
        partitions that the table does not have.
        """
        older = tuple(one for one in self.open if one not in self.view.parts)
        effects: list[Effect] = []
        for partition in sorted(partitions):
            effects.append(Begin(partition))
            self._missed.add(partition)
            if self._add(Part(partition, 0, older), is_open=True):
                effects.append(Admit(partition))
        return effects

    def _add(self, part: Part, *, is_open: bool) -> bool:
        """Enter a partition whose older ones are known. Returns whether it waits for nothing."""
        waits = 0
        for older in part.older:
            if older in self.open or older in self._waits:
                self._newer.setdefault(older, []).append(part.partition)
                waits += 1
        if is_open:
            self.open[part.partition] = waits
        elif waits:
            self._waits[part.partition] = waits
        return not waits

    def _finish(self, partition: int) -> list[Effect]:
        waits = self.open.pop(partition)
        self._ended.discard(partition)
        self._missed.discard(partition)
        self.finished.add(partition)
        effects: list[Effect] = [Finish(partition)]
        if waits:
            self._waits[partition] = waits
        else:
            self._clear(partition, effects)
        return effects

    def _clear(self, partition: int, effects: list[Effect]) -> None:
        """Nothing before the partition is open any more: what waits for it may go on."""
        left = [partition]
        while left:
            for newer in self._newer.pop(left.pop(), ()):
                if newer in self.open:
                    self.open[newer] -= 1
                    if not self.open[newer]:
                        effects.append(Admit(newer))
                else:
                    self._waits[newer] -= 1
                    if not self._waits[newer]:
                        del self._waits[newer]
                        left.append(newer)

    def _forget(self) -> None:
        """Drop finished partitions that no later table can name (L8), so that the memory is bounded."""
        named = self.view.parts.keys() | self.view.gone.keys() | self._waits.keys()
        self.finished &= named

    # ---- invariants ----------------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """What must never hold; tests look after each event."""
        if not self.open.keys().isdisjoint(self.finished):
            yield "a partition is open and finished"
        if not self._ended <= self.open.keys():
            yield "a partition that is not open has ended"
        waits = dict.fromkeys((*self.open, *self._waits), 0)
        for older, newer in self._newer.items():
            if older not in self.open and older not in self._waits:
                yield f"partitions wait for {older}, which is clear"
            for one in newer:
                waits[one] = waits.get(one, 0) + 1
        if waits != {**self.open, **self._waits}:
            yield "a partition waits for another number of partitions than it has before it"
        for partition in self.admitted:
            blocked = self.view.ancestors([partition]) & self.open.keys()
            if blocked:
                yield f"partition {partition} is admitted, its ancestors {sorted(blocked)} are open"
