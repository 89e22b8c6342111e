"""Layouts of a topic, and the choice of a partition without key."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.common.routing import WeightedRoundRobin, layout_of
from ringfence.native.errors import ProtocolError
from ringfence.native.messages import PartitionEntry, Table
from tests.fakes.routing_tables import table


@given(st.sets(st.integers(1, 65535), max_size=40))
def test_every_slot_has_the_partition_whose_range_holds_it(bounds: set[int]) -> None:
    layout = layout_of(table(sorted(bounds)))
    for slot in {0, 65535, *bounds, *(bound - 1 for bound in bounds)}:
        entry = layout.active[int(layout.index_of_slot[slot])]
        assert entry.lo <= slot <= entry.hi
    assert np.all(np.diff(layout.index_of_slot.astype(np.int32)) >= 0)


@pytest.mark.parametrize(("lo", "hi"), [(1, 65535), (0, 65534), (0, 70000)])
def test_a_table_that_does_not_tile_the_slots_is_not_taken(lo: int, hi: int) -> None:
    entry = PartitionEntry(partition=1, lo=lo, hi=hi, state="ACTIVE", owner=1, epoch=1)
    broken = Table(
        topic=7,
        name="t",
        history=b"h",
        generation=1,
        version=1,
        key=[],
        schemas=[b"s"],
        replication=1,
        partitions=[entry],
        nodes=[],
    )
    with pytest.raises(ProtocolError):
        layout_of(broken)


def choices(loads: list[int | None], turns: int = 1000) -> Counter[int]:
    chooser = WeightedRoundRobin(
        layout_of(table([index * 1000 for index in range(1, len(loads))], loads=loads))
    )
    return Counter(chooser.choose() for _ in range(turns))


def test_without_loads_whole_batches_go_round() -> None:
    assert set(choices([None] * 4).values()) == {250}


def test_a_lower_load_takes_more_batches_and_none_starves() -> None:
    counted = choices([90, 10, 50, None])
    assert counted[101] > counted[102] > counted[100] > 0
    assert counted[103] == pytest.approx(counted[102], abs=5), "unknown counts as the mean"
