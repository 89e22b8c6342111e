"""Hot keys: a slot that takes most of the rows is found in narrow ranges; wide ones are narrowed first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.ranges import SlotRange
from ringfence.control.state_machines.layout.hot_keys import hot_key
from ringfence.control.state_machines.layout.plan import BUCKETS, cut_slots, weight_of

PART = PartitionId(7)


def sketch_of(slots: SlotRange, rows: dict[int, int]) -> list[int]:
    """What an owner counts for these rows by slot."""
    weights, size = [0] * BUCKETS, slots.hi - slots.lo + 1
    for slot, count in rows.items():
        weights[(slot - slots.lo) * BUCKETS // size] += count
    return weights


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 64_000), st.integers(2, BUCKETS), st.integers(0, BUCKETS - 1))
def test_the_slot_of_a_heavy_bucket_is_named(lo: int, size: int, place: int) -> None:
    slots = SlotRange(lo, lo + size - 1)
    slot = lo + place % size
    rows = dict.fromkeys(range(lo, lo + size), 1)
    total = sum(rows.values())
    found = hot_key(PART, slots, sketch_of(slots, rows | {slot: 100 * total}))
    assert found is not None
    assert found.slot == slot
    assert found.percent >= 90
    assert f"{slot:#06x}" in str(found)


def test_even_loads_wide_ranges_and_nothing_at_all_have_no_hot_key() -> None:
    narrow, wide = SlotRange(0, 499), SlotRange(0, 4_999)
    assert hot_key(PART, narrow, sketch_of(narrow, dict.fromkeys(range(500), 9))) is None
    assert hot_key(PART, wide, sketch_of(wide, {3: 1_000})) is None, "a split narrows the range"
    assert hot_key(PART, narrow, ()) is None
    assert hot_key(PART, narrow, [0] * BUCKETS) is None
    two = sketch_of(narrow, {3: 500, 400: 500})
    assert hot_key(PART, narrow, two) is None, "a split between both helps"
    alone = hot_key(PART, SlotRange(5, 5), ())
    assert alone is not None
    assert (alone.slot, alone.percent) == (5, 100)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60_000), st.integers(2, 5_000), st.integers(0, 1 << 30))
def test_the_parts_of_a_cut_have_the_weight_of_all_buckets(lo: int, size: int, seed: int) -> None:
    slots = SlotRange(lo, lo + size - 1)
    rows = {lo + seed * step % size: step for step in range(1, 40)}
    weights = sketch_of(slots, rows)
    [cut] = cut_slots(slots, 2, weights)
    left, right = SlotRange(lo, cut - 1), SlotRange(cut, slots.hi)
    assert weight_of(slots, left, weights) + weight_of(slots, right, weights) == sum(weights)
    if size <= BUCKETS:
        assert weight_of(slots, left, weights) == sum(count for slot, count in rows.items() if slot < cut)
