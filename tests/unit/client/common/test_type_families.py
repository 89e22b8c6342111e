"""Arrow types that represent the same values, at any depth of nesting."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ringfence.common.type_families import has_zone, in_utc, is_bytes, is_text, without_views

TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
OTHERS = [pa.binary(4), pa.int64(), pa.list_(pa.string()), pa.dictionary(pa.int8(), pa.string())]


def test_each_type_is_in_one_family_or_in_none() -> None:
    assert [is_text(kind) for kind in (*TEXTS, *BYTES, *OTHERS)] == [True] * 3 + [False] * 7
    assert [is_bytes(kind) for kind in (*TEXTS, *BYTES, *OTHERS)] == [False] * 3 + [True] * 3 + [False] * 4


def nested(leaf: pa.DataType) -> list[pa.DataType]:
    field = pa.field("x", leaf, nullable=False, metadata={"k": "v"})
    return [
        leaf,
        pa.struct([field, pa.field("n", pa.int8())]),
        pa.list_(field),
        pa.large_list(field),
        pa.list_(field, 3),
        pa.map_(pa.string(), field),
        pa.list_(pa.struct([field])),
    ]


@pytest.mark.parametrize(
    ("view", "plain"), [(pa.string_view(), pa.large_string()), (pa.binary_view(), pa.large_binary())]
)
def test_views_become_offsets_of_64_bits_and_all_else_stays(view: pa.DataType, plain: pa.DataType) -> None:
    assert [without_views(kind) for kind in nested(view)] == nested(plain)
    assert [without_views(kind) for kind in nested(pa.string())] == nested(pa.string())
    key = without_views(pa.map_(view, pa.int8(), keys_sorted=True))
    assert key == pa.map_(plain, pa.int8(), keys_sorted=True)


def test_zones_become_utc_and_timestamps_without_one_stay() -> None:
    zoned, plain = pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("ms")
    assert (has_zone(zoned), has_zone(plain), has_zone(pa.date32())) == (True, False, False)
    assert [in_utc(kind) for kind in nested(zoned)] == nested(pa.timestamp("ms", "UTC"))
    assert [in_utc(kind) for kind in nested(plain)] == nested(plain)
