"""Validate Arrow schemas of clients, and turn the untrusted bytes into columns that the metadata compares."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ringfence.control.model.schemas import Column
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native._node import Encoder, check_schema
from ringfence.native.errors import RingfenceError
from ringfence.native.wire import COLUMNS_MAX, NESTING_MAX, Code


def columns_of(message: bytes) -> tuple[Column, ...]:
    """Check that rows of an Arrow IPC schema message can be stored; return its top-level columns.

    Raises:
        RequestRefused: BAD_BODY, UNSUPPORTED_TYPE or TOO_LARGE, with the reason.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        columns = tuple(Column(field.name, str(field.type), field.nullable) for field in schema)
        _check_size(schema)
    except (pa.ArrowException, OSError, ValueError, UnicodeError, MemoryError) as error:
        raise RequestRefused(Code.BAD_BODY, f"schema: no valid Arrow schema message: {error}") from error
    try:
        Encoder(message)
    except (RingfenceError, ValueError) as error:
        why = str(error).removeprefix("schema: ")
        raise RequestRefused(Code.UNSUPPORTED_TYPE, f"schema: {why}") from error
    return columns


def key_fault(message: bytes, columns: Sequence[Column], key: Sequence[str]) -> str | None:
    """The reason why rows cannot be routed by the key's columns; None if they can.

    The engine, which routes rows, makes the check. The metadata refuses key columns that the schema lacks.
    """
    key_indices = [index for index, column in enumerate(columns) if column.name in key]
    try:
        check_schema(message, key_indices)
    except RingfenceError as error:
        return f"key: {error.message}"
    return None


def _check_size(schema: pa.Schema) -> None:
    field_count = 0
    stack = [(field.type, 1) for field in schema]
    while stack:
        kind, depth = stack.pop()
        field_count += 1
        if depth > NESTING_MAX:
            raise RequestRefused(Code.TOO_LARGE, f"schema: nested deeper than {NESTING_MAX} levels")
        if field_count > COLUMNS_MAX:
            raise RequestRefused(
                Code.TOO_LARGE, f"schema: more than {COLUMNS_MAX} fields, nested ones included"
            )
        if pa.types.is_dictionary(kind):
            stack.append((kind.value_type, depth + 1))
        stack += [(kind.field(index).type, depth + 1) for index in range(kind.num_fields)]
