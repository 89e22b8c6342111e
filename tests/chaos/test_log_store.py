"""The database of the CHECKPOINT cohort saves each row once, and what it has wrong is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ringfence import ConsumerPlace
from tests.chaos.cohort_record import Part
from tests.chaos.log_record import TopicRows, stream_history, unsaid
from tests.chaos.log_store import Chunk, LogStore, other_chunks, saved_lines
from tests.checker.cohorts import anomalies
from tests.checker.log_history import Values, value_of

PARENT, CHILD = 1, 2
ENDS = {PARENT: 4, CHILD: 2}
PARTS = [Part(PARENT, (), 4), Part(CHILD, (PARENT,), None)]


def values(partition: int, first: int, end: int) -> Values:
    """One writer: numbers ascend over both partitions."""
    before = 0 if partition == PARENT else ENDS[PARENT]
    return np.array([value_of(1, before + row) for row in range(first, end)], np.int64)


def keys(count: int) -> Values:
    return np.zeros(count, np.int64)


def topic() -> TopicRows:
    rows = TopicRows(ENDS)
    for partition, end in ENDS.items():
        assert rows.note(partition, 0, values(partition, 0, end), keys(end)) is None
    return rows


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    with LogStore(tmp_path / "store.db") as opened:
        yield opened


def save(store: LogStore, partition: int, first: int, end: int, hold: int) -> bool:
    place = ConsumerPlace(partition, first, end, 1, hold)
    return store.save(place, f"of hold {hold}", values(partition, first, end), keys(end - first))


def kinds(chunks: list[Chunk]) -> set[str]:
    return {one.kind for one in anomalies(stream_history(saved_lines(chunks), PARTS, topic().key_of, ENDS))}


def test_rows_are_saved_once_whoever_comes_late(store: LogStore) -> None:
    assert store.load(PARENT) is None
    assert save(store, PARENT, 0, 1, 5)
    assert store.load(PARENT) == f"1:{PARENT}:1:1:5"
    assert save(store, PARENT, 1, 2, 5)
    assert not save(store, PARENT, 1, 2, 6), "the one before has saved them"
    assert save(store, PARENT, 2, 4, 6)
    assert not save(store, PARENT, 4, 5, 5), "another one has the partition"
    assert save(store, CHILD, 0, 2, 7)
    chunks = store.chunks()
    assert [(one.partition, one.first, one.end) for one in chunks] == [
        (1, 0, 1),
        (1, 1, 2),
        (1, 2, 4),
        (2, 0, 2),
    ]
    assert kinds(chunks) == set()
    assert other_chunks(chunks, topic()) == []
    assert unsaid(saved_lines(chunks), ENDS) == []


def chunk(partition: int, first: int, end: int, hold: int) -> Chunk:
    return Chunk(0.0, "m", partition, first, end, hold, values(partition, first, end), keys(end - first))


SOUND = [chunk(PARENT, 0, 2, 5), chunk(PARENT, 2, 4, 6), chunk(CHILD, 0, 2, 7)]
PLANTED = {
    "again": [*SOUND[:2], chunk(PARENT, 2, 4, 7), SOUND[2]],
    "skipped": [chunk(PARENT, 0, 1, 5), *SOUND[1:]],
    "lost": SOUND[:2],
    "early": [SOUND[0], SOUND[2], SOUND[1]],
    "older hold": [SOUND[0]._replace(token=7), *SOUND[1:]],
}


@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_a_planted_anomaly_of_a_database_is_found(kind: str) -> None:
    assert kinds(SOUND) == set()
    assert kind in kinds(PLANTED[kind])


def test_other_rows_than_those_of_the_topic_are_found() -> None:
    wrong = chunk(PARENT, 0, 2, 5)._replace(values=values(PARENT, 1, 3))
    assert len(other_chunks([wrong, *SOUND[1:]], topic())) == 1
