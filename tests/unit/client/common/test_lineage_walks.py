"""Random readers of a topic that changes lose nothing, and read nothing twice or out of order.

A bug that no walk finds would mean that its rule is not checked. Invariants of the machine are switched off
where bugs are planted: the rows alone must show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ringfence.common import lineage
from ringfence.common.lineage import Effect, Lineage, Part, Restored, View
from tests.fakes import lineage_reader
from tests.fakes.lineage_reader import ModelCursor, ModelReader
from tests.fakes.lineage_topic import LineageTopic
from tests.fakes.lineage_walk import walk

WALKS = 150
# Walks that a bug may take: the rarest of these needs 547.
WALKS_MAX = 3_000
Patch = pytest.MonkeyPatch


def test_readers_return_each_row_once_in_the_order_of_its_slot() -> None:
    walks = [walk(seed) for seed in range(WALKS)]
    assert [walked for walked in walks if walked.wrong] == []
    assert sum(walked.versions for walked in walks) > 10 * WALKS, "layouts change often"
    assert sum(walked.pruned for walked in walks) > WALKS
    assert sum(walked.restarts for walked in walks) > WALKS
    assert sum(walked.rows for walked in walks) > 50 * WALKS
    assert sum(walked.broken for walked in walks) > WALKS // 5, "rows are lost, and said to be"


# ---- bugs of the machine -----------------------------------------------------------------------------------


def child_at_once(patch: Patch) -> None:
    add = Lineage._add

    def planted(self: Lineage, part: Part, *, is_open: bool) -> bool:
        return add(self, part._replace(older=()), is_open=is_open)

    patch.setattr(Lineage, "_add", planted)


def one_parent_done(patch: Patch) -> None:
    clear = Lineage._clear

    def planted(self: Lineage, partition: int, effects: list[Effect]) -> None:
        for newer in self._newer.get(partition, ()):
            if self.open.get(newer, 0):
                self.open[newer] = 1
        clear(self, partition, effects)

    patch.setattr(Lineage, "_clear", planted)


def done_without_table(patch: Patch) -> None:
    patch.setattr(Lineage, "_is_sealed", lambda *_: True)


def done_is_caught_up(patch: Patch) -> None:
    """An answer without rows ends a partition."""
    done_without_table(patch)
    fetch = ModelReader.fetch

    def planted(self: ModelReader, at: int) -> None:
        fetch(self, at)
        if at in self.cursors and at in self.topic.logs:
            self.cursors[at].ended |= self.cursors[at].fetched == len(self.topic.logs[at].rows)

    patch.setattr(ModelReader, "fetch", planted)


def pruned_is_done(patch: Patch) -> None:
    patch.setattr(Lineage, "missing", lambda self, partition, _: self.skip(partition))


def gone_is_new(patch: Patch) -> None:
    """What came and went between two tables is passed over."""
    patch.setattr(Lineage, "_add_missed", lambda *_: [])


def older_table_is_taken(patch: Patch) -> None:
    table = Lineage.table

    def planted(self: Lineage, view: View) -> list[Effect]:
        self.view = self.view.__class__(view.topic, 0, 0, self.view.parts, self.view.gone)
        return table(self, view)

    patch.setattr(Lineage, "table", planted)


def finished_is_forgotten(patch: Patch) -> None:
    patch.setattr(Lineage, "_forget", lambda self: self.finished.clear())


# ---- bugs of positions -------------------------------------------------------------------------------------


def restoring(change: Callable[[View, Iterable[int], Restored], Restored]) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        restore = lineage.restore

        def planted(view: View, positions: Any) -> Restored:
            restored = restore(view, positions)
            return change(view, positions, restored) if positions else restored

        patch.setattr(lineage_reader, "restore", planted)

    return plant


def _unlisted_is_done(view: View, positions: Iterable[int], restored: Restored) -> Restored:
    finished = frozenset((view.parts.keys() | view.gone.keys()) - set(positions))
    return restored._replace(new=(), others=(), missed=(), finished=finished)


def _unlisted_is_new(view: View, _: Iterable[int], restored: Restored) -> Restored:
    again = tuple(one for one in restored.finished if one in view.parts)
    return restored._replace(others=again, finished=restored.finished - set(again))


def _gone_is_finished(_: View, __: Iterable[int], restored: Restored) -> Restored:
    return restored._replace(missed=(), finished=restored.finished | set(restored.missed))


unlisted_is_done = restoring(_unlisted_is_done)
unlisted_is_new = restoring(_unlisted_is_new)
gone_is_finished = restoring(_gone_is_finished)


def unfinished_ones_are_left_out(patch: Patch) -> None:
    """Positions do not list what is sealed, also where rows of it are still to come."""

    def planted(self: ModelReader) -> dict[int, int]:
        parts = self.lineage.view.parts
        return {
            at: cursor.returned
            for at, cursor in self.cursors.items()
            if at in parts and not parts[at].is_sealed
        }

    patch.setattr(ModelReader, "positions", planted)


# ---- bugs of the reader around the machine, and of the metadata --------------------------------------------


def new_from_latest(patch: Patch) -> None:
    carry_out = ModelReader._carry_out

    def planted(self: ModelReader, effects: list[Effect]) -> None:
        known = set(getattr(self, "cursors", {}))
        carry_out(self, effects)
        for at in self.cursors.keys() - known:
            if at in self.topic.logs:
                self.cursors[at].returned = len(self.topic.logs[at].rows)

    patch.setattr(ModelReader, "_carry_out", planted)


def ended_before_its_rows_are_returned(patch: Patch) -> None:
    """A partition is finished as soon as its last answer arrives, with rows of it in memory."""

    fetch, take = ModelReader.fetch, ModelReader.take

    def planted(self: ModelReader, at: int) -> None:
        fetch(self, at)
        cursor = self.cursors.get(at)
        if cursor is not None and cursor.ended and cursor.rows:
            memory = vars(self).setdefault("memory", {})
            memory[at] = ModelCursor(cursor.returned, list(cursor.rows))
            cursor.rows.clear()
            self._carry_out(self.lineage.ended(at))

    def planted_take(self: ModelReader, at: int) -> None:
        memory = vars(self).get("memory", {})
        for other in [one for one in memory if self._draw.random() < 0.3]:
            cursors, self.cursors = self.cursors, memory
            take(self, other)
            self.cursors = cursors
            if not memory[other].rows:
                del memory[other]
        take(self, at)

    patch.setattr(ModelReader, "fetch", planted)
    patch.setattr(ModelReader, "take", planted_take)


def pruned_in_any_order(patch: Patch) -> None:
    def prunable(self: LineageTopic) -> list[int]:
        return [log.partition for log in self.logs.values() if log.sealed]

    def prune(self: LineageTopic, partition: int) -> None:
        self.logs[partition].parents.clear()
        pruned(self, partition)

    pruned = LineageTopic.prune
    patch.setattr(LineageTopic, "prunable", prunable)
    patch.setattr(LineageTopic, "prune", prune)


PLANTED = [
    child_at_once,
    one_parent_done,
    done_without_table,
    done_is_caught_up,
    pruned_is_done,
    gone_is_new,
    older_table_is_taken,
    finished_is_forgotten,
    unlisted_is_done,
    unlisted_is_new,
    gone_is_finished,
    unfinished_ones_are_left_out,
    new_from_latest,
    ended_before_its_rows_are_returned,
    pruned_in_any_order,
]
NAMES = ["unlisted_is_done", "unlisted_is_new", "gone_is_finished"]


def name_of(plant: Callable[[Patch], None]) -> str:
    for name in NAMES:
        if globals()[name] is plant:
            return name
    return plant.__name__


@pytest.mark.parametrize("plant", PLANTED, ids=name_of)
def test_a_planted_bug_is_found_by_rows(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(Lineage, "faults", lambda _: ())
    assert walks_until_wrong() is not None


def walks_until_wrong() -> int | None:
    for seed in range(WALKS_MAX):
        try:
            if walk(seed).wrong:
                return seed + 1
        except (AssertionError, KeyError):  # the bug broke the machine
            return seed + 1
    return None
