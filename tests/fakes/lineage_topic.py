"""A topic whose layout changes, as plain values: rows of slots in logs, splits, merges, prunes, tables.

A row is (slot, number): numbers of a slot ascend by one over its lineage. Partition ids ascend along it, too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

from ringfence.common.lineage import DRAW_BITS, Part, View

TOPIC = 3
Row = tuple[int, int]


@dataclass
class LineageLog:
    """A partition. `sealed`: version that sealed it; `gone`: end offsets of pruned parents."""

    partition: int
    slots: range
    created: int
    parents: list[int]
    gone: dict[int, int] = field(default_factory=dict)
    children: list[int] = field(default_factory=list)
    sealed: int = 0
    rows: list[Row] = field(default_factory=list)

    @property
    def part(self) -> Part:
        return Part(self.partition, self.created, (*self.parents, *self.gone), self.sealed > 0)


class LineageTopic:
    """Steps raise AssertionError where the metadata would refuse them. `lost` has logs that were pruned."""

    def __init__(self, slots: int, partitions: int) -> None:
        self.version, self.generation, self._index = 1, 1, TOPIC
        self.appended = dict.fromkeys(range(slots), 0)
        self.logs: dict[int, LineageLog] = {}
        self.pruned: dict[int, LineageLog] = {}
        bounds = [slots * number // partitions for number in range(partitions + 1)]
        self._create([range(lo, hi) for lo, hi in pairwise(bounds)], [])

    @property
    def active(self) -> list[LineageLog]:
        return sorted((log for log in self.logs.values() if not log.sealed), key=lambda log: log.slots.start)

    def view(self) -> View:
        gone: dict[int, int] = {}
        for log in self.logs.values():
            gone |= log.gone
        parts = {log.partition: log.part for log in self.logs.values()}
        return View(TOPIC, self.generation, self.version, parts, gone)

    def append(self, slot: int) -> None:
        log = next(log for log in self.active if slot in log.slots)
        self.appended[slot] += 1
        log.rows.append((slot, self.appended[slot]))

    def change(self, parents: list[int], bounds: list[int]) -> list[int]:
        """Replace adjacent partitions by others; `bounds`: the slots between which children lie."""
        sources = sorted((self.logs[one] for one in parents), key=lambda log: log.slots.start)
        assert all(not log.sealed for log in sources)
        assert all(one.slots.stop == two.slots.start for one, two in pairwise(sources))
        self.version += 1
        edges = [sources[0].slots.start, *bounds, sources[-1].slots.stop]
        children = self._create([range(lo, hi) for lo, hi in pairwise(edges)], sources)
        for log in sources:
            log.sealed = self.version
        return children

    def prune(self, partition: int) -> None:
        log = self.logs[partition]
        assert log.sealed
        assert not log.parents, "L8: parents first"
        del self.logs[partition]
        self.pruned[partition] = log
        for child in log.children:
            if child in self.logs:
                self.logs[child].parents.remove(partition)
                self.logs[child].gone[partition] = len(log.rows)
        self.generation += 1

    def prunable(self) -> list[int]:
        return [log.partition for log in self.logs.values() if log.sealed and not log.parents]

    def _create(self, ranges: list[range], sources: list[LineageLog]) -> list[int]:
        self.generation += 1
        self._index += 1
        made = []
        for ordinal, slots in enumerate(ranges):
            partition = self._index << DRAW_BITS | ordinal
            assert len(slots), "a partition without slots"
            before = [log for log in sources if log.slots.start < slots.stop and slots.start < log.slots.stop]
            parents = [log.partition for log in before]
            self.logs[partition] = LineageLog(partition, slots, self.version, parents)
            for log in before:
                log.children.append(partition)
            made.append(partition)
        return made


def step(topic: LineageTopic, draw: random.Random, *, prunes: bool, rows: float = 0.62) -> None:
    """One random step of producers, the leader or retention; `rows`: share of the first."""
    active = topic.active
    if draw.random() < rows:
        topic.append(draw.choice(sorted(topic.appended)))
        return
    kind = draw.random()
    if kind < 0.35:
        log = draw.choice(active)
        if len(log.slots) > 1:
            topic.change([log.partition], [draw.randrange(log.slots.start + 1, log.slots.stop)])
    elif kind < 0.6 and len(active) > 1:
        at = draw.randrange(len(active) - 1)
        topic.change([log.partition for log in active[at : at + 2]], [])
    elif kind < 0.74:
        first = draw.randrange(len(active))
        some = active[first : first + draw.randint(1, 3)]
        lo, hi = some[0].slots.start, some[-1].slots.stop
        cuts = sorted(draw.sample(range(lo + 1, hi), min(hi - lo - 1, draw.randint(0, 3))))
        if [lo, *cuts, hi] != [some[0].slots.start, *(log.slots.stop for log in some)]:
            topic.change([log.partition for log in some], cuts)
    elif prunes and topic.prunable():
        topic.prune(draw.choice(topic.prunable()))
