"""The story of a group: its figures by hand, and small runs with a node of ours."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.cohorts import figures, messages, own, receipts, story
from benchmarks.cohorts.figures import Span
from benchmarks.cohorts.groups import SYSTEMS

MS = 1_000_000
SMALL = story.Size(rows=100, messages=80, steady_rows=10, each_s=0.01, span_s=1.0, killed_s=1.0)


def received(*rows: tuple[int, int, int, int, int]) -> receipts.Receipts:
    """(stream, serial, sent, received, rows), times in ms."""
    found = np.array(rows, np.int64).reshape(-1, 5)
    found[:, 2:4] *= MS
    return found


def test_rates_and_latencies_are_of_the_span() -> None:
    seen = received((0, 0, 0, 100, 10), (0, 1, 100, 200, 10), (0, 2, 300, 900, 1_000))
    span = Span(0, 500 * MS)
    assert figures.rows_per_s(seen, span) == 20 / 0.2
    assert figures.latency_ms(seen, span) == {"p50": 100.0, "p99": 100.0}


def test_a_gap_counts_from_the_begin_of_the_span_and_to_its_end() -> None:
    seen = received((0, 0, 0, 100, 1), (0, 1, 0, 250, 1), (3, 0, 0, 400, 1))
    assert figures.gaps_ms(seen, Span(50 * MS, 700 * MS)) == {0: 450.0, 3: 350.0}


def test_a_stream_that_changes_its_reader_moves() -> None:
    before = [(0, at, 0, at, 1) for at in range(0, 1_000, 10)]
    after = [(0, at, 0, at, 1) for at in range(1_300, 2_000, 10)]
    stays = [(1, at, 0, at, 1) for at in range(0, 2_000, 20)]
    seen = {"a": received(*before, *stays), "b": received(*after)}
    pauses = figures.pauses_ms(seen, Span(1_000 * MS, 2_000 * MS), 1_000 * MS)
    assert pauses == {"stays": 20.0, "moves": 300.0, "moved": 1}


def test_rows_of_parts_of_a_message_are_counted_together() -> None:
    seen = received((0, 0, 0, 1, 5), (0, 0, 0, 2, 5), (0, 1, 0, 3, 10), (0, 1, 0, 4, 10))
    assert figures.received_rows(seen) == {(0, 0): 10, (0, 1): 20}
    assert figures.out_of_order(seen) == 0
    assert figures.out_of_order(received((0, 2, 0, 1, 1), (0, 1, 0, 2, 1), (0, 2, 0, 3, 1))) == 1


def test_each_partition_has_a_key_and_parts_of_a_batch_are_told_apart() -> None:
    assert len(set(messages.keys_of_partitions(8))) == 8
    two = [messages.rows_of(7, 3, serial, rows) for serial, rows in ((4, 2), (5, 3))]
    parts = list(messages.parts(pa.Table.from_batches(two).combine_chunks().to_batches()[0]))
    assert [(stream, serial, rows) for stream, serial, _, rows in parts] == [(3, 4, 2), (3, 5, 3)]
    assert messages.unpacked(messages.packed(two[0])).equals(two[0])


@pytest.mark.parametrize("name", ["ringfence stream", "ringfence queue"])
def test_no_row_of_the_story_is_lost(name: str) -> None:
    (system,) = (one for one in SYSTEMS if one.name == name)
    told = story.told(system, SMALL)
    assert told["rows_lost"] == 0, told
    assert told.get("out_of_order", 0) == 0, told
    assert told["joins_pause_ms"]["moved"] >= 1, told


def test_all_ways_of_reading_give_all_rows() -> None:
    told = own.told(quick=True)
    assert all(told[mode]["rows_per_s"] > 0 for mode in own.HELD), told
    assert min(told["stream_acks_per_s"], told["queue_acks_per_s"]) > 0, told
