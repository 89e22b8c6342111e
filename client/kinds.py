"""Which Arrow types are forms of the same: text, or bytes."""

from __future__ import annotations

import pyarrow as pa


def is_text(kind: pa.DataType) -> bool:
    """UTF-8 with 32-bit offsets, 64-bit offsets or views."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """As `is_text`, of any bytes; values of one fixed size are another type."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def without_views(kind: pa.DataType) -> pa.DataType:
    """The same type with 64-bit offsets in place of views, at any depth: pyarrow cannot `take` from views."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return pa.struct([field.with_type(without_views(field.type)) for field in fields])
    if types.is_map(kind):
        return pa.map_(without_views(kind.key_type), _field_without_views(kind.item_field))
    if types.is_list(kind):
        return pa.list_(_field_without_views(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_field_without_views(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_field_without_views(kind.value_field), kind.list_size)
    return kind


def _field_without_views(field: pa.Field) -> pa.Field:
    return field.with_type(without_views(field.type))
