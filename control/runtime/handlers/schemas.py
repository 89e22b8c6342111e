"""Arrow schemas of clients: untrusted bytes into columns that the metadata can compare."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ringfence.control.model.schemas import Column
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native._node import Encoder, check_schema
from ringfence.native.errors import RingfenceError
from ringfence.native.wire import COLUMNS_MAX, NESTING_MAX, Code


def columns_of(message: bytes) -> tuple[Column, ...]:
    """The top-level columns of an Arrow IPC schema message, once it is known that rows of it can be stored.

    Raises:
        RequestRefused: BAD_BODY, UNSUPPORTED_TYPE or TOO_LARGE, with the reason.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        columns = tuple(Column(field.name, str(field.type), field.nullable) for field in schema)
        _check_size(schema)
    except (pa.ArrowException, OSError, ValueError, UnicodeError, MemoryError) as error:
        raise RequestRefused(Code.BAD_BODY, f"schema: no sound Arrow schema message: {error}") from error
    try:
        Encoder(message)
    except (RingfenceError, ValueError) as error:
        why = str(error).removeprefix("schema: ")
        raise RequestRefused(Code.UNSUPPORTED_TYPE, f"schema: {why}") from error
    return columns


def key_fault(message: bytes, columns: Sequence[Column], key: Sequence[str]) -> str | None:
    """Why rows cannot be routed by the key's columns, as the engine says that routes; None when they can.

    A column that is none of the schema's is for the metadata to refuse.
    """
    places = [place for place, column in enumerate(columns) if column.name in key]
    try:
        check_schema(message, places)
    except RingfenceError as error:
        return f"key: {error.message}"
    return None


def _check_size(schema: pa.Schema) -> None:
    flattened = 0
    waiting = [(field.type, 1) for field in schema]
    while waiting:
        kind, depth = waiting.pop()
        flattened += 1
        if depth > NESTING_MAX:
            raise RequestRefused(Code.TOO_LARGE, f"schema: nested deeper than {NESTING_MAX} levels")
        if flattened > COLUMNS_MAX:
            raise RequestRefused(
                Code.TOO_LARGE, f"schema: more than {COLUMNS_MAX} fields, nested ones included"
            )
        if pa.types.is_dictionary(kind):
            waiting.append((kind.value_type, depth + 1))
        waiting += [(kind.field(place).type, depth + 1) for place in range(kind.num_fields)]
