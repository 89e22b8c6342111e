"""Micro-batches over a topic that changes: what each may read, and where a restored query begins."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from ringfence.cluster.offsets import Ends, Position
from ringfence.common import lineage
from ringfence.common.lineage import DRAW_BITS, Lineage, Lost, Restored
from ringfence.spark import stream_lineage, stream_offset
from ringfence.spark.stream_lineage import Beginning, beginning
from ringfence.spark.stream_offset import StreamOffset, decode, encode
from tests.fakes.lineage_topic import TOPIC, LineageTopic, step

ONE = TOPIC + 1 << DRAW_BITS
Patch = pytest.MonkeyPatch


def ends_of(topic: LineageTopic) -> dict[int, Ends]:
    return {one: Ends(one, 0, len(log.rows), 0, log.sealed > 0) for one, log in topic.logs.items()}


def offset(positions: dict[int, int], *ended: int) -> StreamOffset:
    return StreamOffset({one: Position(one, at) for one, at in positions.items()}, frozenset(ended))


def begun(topic: LineageTopic, positions: dict[int, int], *ended: int) -> Beginning:
    return beginning(topic.view(), offset(positions, *ended), ends_of(topic))


def test_a_child_is_admitted_in_the_batch_after_the_one_that_reads_its_parents_last_row() -> None:
    topic = LineageTopic(4, 1)
    topic.append(0)
    children = topic.change([ONE], [2])
    first = begun(topic, {ONE: 0})
    assert first.admitted == {ONE}
    assert first.positions.keys() == {ONE, *children}
    second = begun(topic, {ONE: 1, **dict.fromkeys(children, 0)}, ONE)
    assert second.admitted == second.positions.keys() == {*children}
    assert ONE in second.finished


def test_a_partition_that_is_sealed_after_its_last_row_was_read_ends_at_once() -> None:
    topic = LineageTopic(4, 1)
    topic.append(0)
    children = topic.change([ONE], [2])
    begin = begun(topic, {ONE: 1})
    assert begin.admitted == {*children}
    assert begin.ended == {ONE}
    assert set(begin.positions) == {ONE, *children}, "it is listed once more, as ended"


def test_empty_generations_are_passed_in_one_batch() -> None:
    topic = LineageTopic(4, 1)
    middle = topic.change([ONE], [2])
    (last,) = topic.change(middle, [])
    begin = begun(topic, {ONE: 0})
    assert begin.admitted == {last}
    assert begin.ended == {ONE, *middle}


def test_an_offset_of_before_the_split_is_carried_on() -> None:
    """Format 2 lists the partitions of version 1; its children begin at their first row."""
    topic = LineageTopic(4, 1)
    old = {"format": 2, "topic": TOPIC, "version": 1, "partitions": {str(ONE): {"offset": 0, "epoch": 0}}}
    assert encode(topic.view(), [Position(ONE, 0)]) == old
    topic.append(0)
    children = topic.change([ONE], [2])
    begin = beginning(topic.view(), decode("t", topic.view(), old), ends_of(topic))
    assert begin.admitted == {ONE}
    assert begin.positions.keys() == {ONE, *children}
    assert encode(topic.view(), begin.positions.values())["format"] == 3


def test_an_ended_partition_that_was_pruned_is_finished_and_an_unread_one_is_lost() -> None:
    topic = LineageTopic(4, 1)
    topic.append(0)
    children = topic.change([ONE], [2])
    (last,) = topic.change(children, [])
    for one in (ONE, *children):
        topic.prune(one)
    assert begun(topic, {ONE: 1, **dict.fromkeys(children, 0)}, ONE).lost == ()
    assert begun(topic, {ONE: 0, **dict.fromkeys(children, 0)}).lost == (Lost(ONE, 0, None),)
    assert begun(topic, {ONE: 1}, ONE).lost[0].partition in children, "they came and went"
    assert begun(topic, {last: 0}).lost == ()


class Query:
    """What Spark does with a stream: offsets are logged, a planned batch is run again after a crash."""

    def __init__(self, topic: LineageTopic, draw: random.Random) -> None:
        self.topic, self._draw = topic, draw
        self.start = self.log(topic, dict.fromkeys(topic.logs, 0))
        self.got = dict.fromkeys(topic.appended, 0)
        self.wrong: str | None = None
        self.batches = 0

    def log(self, topic: LineageTopic, at: dict[int, int], ended: frozenset[int] = frozenset()) -> str:
        return json.dumps(encode(topic.view(), [Position(one, row) for one, row in at.items()], ended))

    def batch(self, rows_max: int) -> bool:
        """Plan and run one micro-batch. Returns whether there was one."""
        view, ends = self.topic.view(), ends_of(self.topic)
        begin = beginning(view, decode("t", view, json.loads(self.start)), ends)
        if begin.lost:
            self.wrong = f"rows are told as lost: {begin.lost}"
        first = {one: position.offset for one, position in begin.positions.items()}
        last = dict(first)
        for one in begin.admitted:
            last[one] = min(ends[one].end, first[one] + self._draw.randint(0, rows_max))
        ended = begin.ended | {
            one for one in begin.admitted if ends[one].ended and last[one] == ends[one].end
        }
        end = self.log(self.topic, last, ended)
        if end == self.start:
            return False
        rows = [row for one in first for row in self.topic.logs[one].rows[first[one] : last[one]]]
        assert decode("t", view, json.loads(end)).ended == ended
        self._take(rows)
        self.start = end
        self.batches += 1
        return True

    def _take(self, rows: list[tuple[int, int]]) -> None:
        """Rows of one batch have any order, so they are compared as sets by slot."""
        by_slot: dict[int, list[int]] = {}
        for slot, number in rows:
            by_slot.setdefault(slot, []).append(number)
        for slot, numbers in by_slot.items():
            wanted = list(range(self.got[slot] + 1, self.got[slot] + len(numbers) + 1))
            if sorted(numbers) != wanted and self.wrong is None:
                self.wrong = f"slot {slot}: rows {sorted(numbers)} come after row {self.got[slot]}"
            self.got[slot] = max(numbers)
        parts = {one for one, log in self.topic.logs.items() if any(row in log.rows for row in rows)}
        older = self.topic.view().ancestors(parts)
        if parts & older and self.wrong is None:
            self.wrong = f"one batch has rows of {sorted(parts & older)} and of their descendants"


def walk(seed: int) -> Query:
    draw = random.Random(seed)
    topic = LineageTopic(5, draw.randint(1, 3))
    query = Query(topic, draw)
    for _ in range(150):
        if draw.random() < 0.75:
            step(topic, draw, prunes=False)
        elif draw.random() < 0.8:
            query.batch(draw.randint(1, 4))
        else:
            prune_read(topic, query)
        if query.wrong:
            return query
    for _ in range(500):
        if not query.batch(1_000):
            break
    if query.wrong is None and query.got != topic.appended:
        query.wrong = f"rows are never read: {query.got}, {topic.appended}"
    return query


def prune_read(topic: LineageTopic, query: Query) -> None:
    """Prune what the stream has finished, by its last offset."""
    kept = decode("t", topic.view(), json.loads(query.start))
    unread = kept.positions.keys() - kept.ended
    for one in topic.prunable():
        has_read = all(number <= query.got[slot] for slot, number in topic.logs[one].rows)
        is_followed = bool(topic.view().descendants([one]) & kept.positions.keys())
        if one not in unread and has_read and is_followed:
            topic.prune(one)


def test_a_stream_over_random_changes_reads_each_row_once_in_lineage_order() -> None:
    walks = [walk(seed) for seed in range(150)]
    assert [query.wrong for query in walks if query.wrong] == []
    assert sum(query.batches for query in walks) > 1_000
    assert sum(len(query.topic.pruned) for query in walks) > 300


def test_a_walk_finds_a_batch_with_a_parent_and_its_child(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Lineage, "admitted", property(lambda self: list(self.open)))
    assert found()


def restoring(change: Callable[[Any, Any, Restored], Restored]) -> Callable[[Patch], None]:
    restore = lineage.restore

    def plant(patch: Patch) -> None:
        patch.setattr(
            stream_lineage,
            "restore",
            lambda view, positions: change(view, positions, restore(view, positions)),
        )

    return plant


PLANTED: dict[str, Callable[[Any, Any, Restored], Restored]] = {
    "unlisted_is_new": lambda view, _, restored: restored._replace(
        new=(*restored.new, *(one for one in restored.finished if one in view.parts)), finished=frozenset()
    ),
    "unlisted_is_done": lambda _, __, restored: restored._replace(
        new=(), others=(), finished=restored.finished | set(restored.new)
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_walk_finds_a_bug_of_restored_offsets(name: str, monkeypatch: Patch) -> None:
    restoring(PLANTED[name])(monkeypatch)
    assert found()


def test_a_walk_finds_an_ended_partition_that_is_read_again(monkeypatch: Patch) -> None:
    """`ended` is left out of the offset log: the partition is listed at its end, and the walk goes on."""

    def planted(view: Any, positions: Any, _: Any = ()) -> dict[str, Any]:
        return stream_offset.encode(
            view, [one for one in positions if not view.parts[one.partition].is_sealed]
        )

    monkeypatch.setattr("tests.unit.client.spark.test_stream_lineage.encode", planted)
    assert found()


def found() -> bool:
    for seed in range(200):
        try:
            if walk(seed).wrong:
                return True
        except (KeyError, AssertionError):
            return True
    return False
