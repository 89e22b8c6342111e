"""The proof of a chaos run names each harm that is planted into a sound history; without one it is silent."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from ringfence import Place
from ringfence.control.cli.cluster_load import topic_schema
from tests.chaos.proof import Harm, Violation, judge, shown
from tests.chaos.reading import changed, has_its_content
from tests.chaos.seen import Seen

PARTITIONS = (7, 8, 11)
PRODUCERS = 3
BATCH_ROWS = 5

Batch = tuple[int, int, list[tuple[int, int]]]
"""Partition, first offset, (producer, number) of each row."""


@dataclass
class History:
    """Batches as lists, so that a plant can change any of them."""

    stored: list[Batch]
    followed: list[Batch]
    sent: dict[int, int] = field(default_factory=dict)

    def harms(self) -> set[Harm]:
        return {
            found.harm
            for found in judge(seen(self.stored), [(seen(self.followed), list(PARTITIONS))], self.sent)
        }


def seen(batches: list[Batch]) -> Seen:
    found = Seen()
    for partition, first, rows in batches:
        producers, numbers = np.array(rows, np.int64).T
        found.add(partition, first, producers.astype(np.int32), numbers)
    return found


def sound(seed: int) -> History:
    """Producers' batches on partitions by chance, in order; a reader that saw all in batches of its own."""
    dice, ends, sent = random.Random(seed), dict.fromkeys(PARTITIONS, 0), dict.fromkeys(range(PRODUCERS), 0)
    stored: list[Batch] = []
    for _ in range(60):
        partition, producer = dice.choice(PARTITIONS), dice.randrange(PRODUCERS)
        rows = [(producer, sent[producer] + row) for row in range(BATCH_ROWS)]
        stored.append((partition, ends[partition], rows))
        ends[partition] += BATCH_ROWS
        sent[producer] += BATCH_ROWS
    followed = [
        (partition, first + cut, rows[cut : cut + part])
        for partition, first, rows in stored
        for part in (dice.randrange(1, BATCH_ROWS + 1),)
        for cut in range(0, BATCH_ROWS, part)
    ]
    return History(stored, followed, sent)


def last_of(history: History, partition: int) -> int:
    return max(at for at, batch in enumerate(history.stored) if batch[0] == partition)


def lose_the_end(history: History) -> None:
    """A partition's last batch is gone, and nobody had seen it."""
    partition, first, _ = history.stored.pop(last_of(history, PARTITIONS[0]))
    history.followed = [b for b in history.followed if b[0] != partition or b[1] < first]


def lose_one_row(history: History) -> None:
    """The rows behind it move up, for the reader, too."""
    partition, first, rows = history.stored[last_of(history, PARTITIONS[1])]
    rows.pop()
    history.followed = [b for b in history.followed if b[0] != partition or b[1] < first]
    history.followed.append((partition, first, rows))


def store_a_batch_twice(history: History) -> None:
    at = last_of(history, PARTITIONS[0])
    partition, first, rows = history.stored[at]
    again = (partition, first + BATCH_ROWS, rows)
    history.stored.append(again)
    history.followed.append(again)


def store_a_row_in_two_partitions(history: History) -> None:
    own, _, rows = history.stored[-1]
    other = next(partition for partition in PARTITIONS if partition != own)
    partition, first, _ = history.stored[last_of(history, other)]
    again = (partition, first + BATCH_ROWS, rows[-1:])
    history.stored.append(again)
    history.followed.append(again)


def swap_two_rows(history: History) -> None:
    partition, first, rows = history.stored[10]
    rows[1], rows[2] = rows[2], rows[1]
    history.followed = [
        b for b in history.followed if b[0] != partition or not first <= b[1] < first + BATCH_ROWS
    ]
    later = [b for b in history.followed if b[0] == partition and b[1] > first]
    history.followed = [b for b in history.followed if b not in later] + [(partition, first, rows), *later]


def show_another_row_first(history: History) -> None:
    """The reader saw what the old owner had; at the end another row stands there."""
    partition, first, rows = history.followed[4]
    history.followed[4] = (partition, first, [(rows[0][0], rows[0][1] + BATCH_ROWS), *rows[1:]])


def give_one_offset_to_two_rows(history: History) -> None:
    partition, first, rows = history.stored[-1]
    producer = (rows[0][0] + 1) % PRODUCERS
    history.stored.append((partition, first, [(producer, history.sent[producer])]))
    history.sent[producer] += 1


def show_what_is_not_kept(history: History) -> None:
    """An unknown batch, seen by a reader, was never acknowledged and is cut at a failover."""
    partition, first, _ = history.stored[last_of(history, PARTITIONS[2])]
    history.followed.append((partition, first + BATCH_ROWS, [(0, 10_000)]))


def show_all_of_a_partition_that_is_empty(history: History) -> None:
    history.followed.append((99, 0, [(0, 10_000)]))


def pass_over_a_row(history: History) -> None:
    del history.followed[20]


def never_catch_up(history: History) -> None:
    history.followed.pop()


def see_nothing_of_a_partition(history: History) -> None:
    history.followed = [b for b in history.followed if b[0] != PARTITIONS[0]]


def give_a_batch_again(history: History) -> None:
    history.followed.append(history.followed[3])


def store_what_nobody_sent(history: History) -> None:
    partition, first, _ = history.stored[last_of(history, PARTITIONS[0])]
    strange = (partition, first + BATCH_ROWS, [(1, history.sent[1] + 7)])
    history.stored.append(strange)
    history.followed.append(strange)


def store_a_row_of_an_unknown_producer(history: History) -> None:
    partition, first, _ = history.stored[last_of(history, PARTITIONS[0])]
    strange = (partition, first + BATCH_ROWS, [(500, 0)])
    history.stored.append(strange)
    history.followed.append(strange)


PLANTS = {
    lose_the_end: Harm.LOST,
    lose_one_row: Harm.LOST,
    store_a_batch_twice: Harm.DOUBLED,
    store_a_row_in_two_partitions: Harm.DOUBLED,
    swap_two_rows: Harm.REORDERED,
    show_another_row_first: Harm.TWO_VALUES,
    give_one_offset_to_two_rows: Harm.TWO_VALUES,
    show_what_is_not_kept: Harm.VANISHED,
    show_all_of_a_partition_that_is_empty: Harm.VANISHED,
    pass_over_a_row: Harm.MISSED,
    never_catch_up: Harm.MISSED,
    see_nothing_of_a_partition: Harm.MISSED,
    give_a_batch_again: Harm.AGAIN,
    store_what_nobody_sent: Harm.STRANGE,
    store_a_row_of_an_unknown_producer: Harm.STRANGE,
}


@pytest.mark.parametrize("seed", range(20))
def test_a_sound_history_is_sound(seed: int) -> None:
    assert sound(seed).harms() == set()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: str(plant.__name__))
@pytest.mark.parametrize("seed", range(5))
def test_each_planted_harm_has_its_name_and_no_other(plant: object, seed: int) -> None:
    history = sound(seed)
    assert callable(plant)
    plant(history)
    assert history.harms() == {PLANTS[plant]}


def test_every_harm_is_planted() -> None:
    assert {*PLANTS.values(), Harm.CHANGED} == set(Harm)


def test_a_row_with_another_content_is_noticed() -> None:
    source = pa.record_batch({"key": pa.array([10, 11, 12]), "text": ["a", "b", "c"]})
    identity = [pa.array([5, 5], pa.int32()), pa.array([1, 2], pa.int64())]

    def batch(text: str) -> pa.RecordBatch:
        columns = [pa.array([11, 12]), pa.array(["b", text]), *identity]
        return pa.RecordBatch.from_arrays(columns, schema=topic_schema(source.schema))

    assert has_its_content(batch("c"), source)
    assert not has_its_content(batch("a"), source)
    read = [(Place(4, first, 2, 1, 0), batch(text)) for first, text in ((0, "c"), (2, "a"), (4, "c"))]
    assert changed([], source) == changed(read[:1], source) == []
    assert changed(read, source) == [Violation(Harm.CHANGED, 2, "of those at offset 2 of 4")]


def test_a_violation_says_how_many_rows_and_which() -> None:
    history = sound(1)
    count = history.sent[2]
    history.sent[2] += 3
    (found,) = judge(seen(history.stored), [], history.sent)
    assert (found.harm, found.count) == (Harm.LOST, 3)
    assert shown([found]) == [f"lost: 3 rows, the first is row {count} of producer 2"]
    assert shown([found] * 4, most=1)[1] == "... and 3 more"
