"""Families of Arrow types that represent the same values: text, bytes, timestamps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


def is_text(kind: pa.DataType) -> bool:
    """UTF-8 with 32-bit offsets, 64-bit offsets or views."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Like `is_text`, for bytes; fixed-size binary is another type."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def without_views(kind: pa.DataType) -> pa.DataType:
    """The same type with 64-bit offsets in place of views, at any depth: pyarrow cannot `take` from views."""
    return each_leaf(kind, _without_view)


def in_utc(kind: pa.DataType) -> pa.DataType:
    """The same type with all time zones replaced by UTC, at any depth.

    A zone only affects the display: timestamps of one unit are equal numbers in every zone. Timestamps
    without a zone are not instants, and stay.
    """
    return each_leaf(kind, _in_utc)


def has_zone(kind: pa.DataType) -> bool:
    """Whether it is a timestamp with a zone."""
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _without_view(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if has_zone(kind) else kind


def each_leaf(kind: pa.DataType, changed: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The same type with every leaf, at any depth, replaced by `changed(leaf)`."""

    def field_of(field: pa.Field) -> pa.Field:
        return field.with_type(each_leaf(field.type, changed))

    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field_of(kind.field(place)) for place in range(kind.num_fields)])
    if types.is_map(kind):
        key = each_leaf(kind.key_type, changed)
        return pa.map_(key, field_of(kind.item_field), keys_sorted=kind.keys_sorted)
    if types.is_list(kind):
        return pa.list_(field_of(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(field_of(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(field_of(kind.value_field), kind.list_size)
    return changed(kind)
