"""Convert between Spark's types and Arrow's. The Arrow types are the ones that `mapInArrow` exchanges."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pyarrow as pa

from ringfence.native.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

PYTHON_VARIABLE = "PYSPARK_PYTHON"
# Digits of Spark's decimals; Arrow's have up to 76.
DECIMAL_DIGITS_MAX = 38


def use_this_python() -> None:
    """Let Spark's workers, which need this package, run this interpreter, unless PYSPARK_PYTHON is set."""
    os.environ.setdefault(PYTHON_VARIABLE, sys.executable)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of these rows, with instants in UTC: Spark passes them in the session's zone.

    Raises:
        SchemaError: Spark has no Arrow type for a column, or encodes it as a struct.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - never with `import ringfence`
    from pyspark.sql.types import StructType  # noqa: PLC0415

    fields: list[pa.Field] = []
    for field in schema:
        _refuse_struct_encoded(field.name, field.dataType)
        try:
            fields += worker_schema(StructType([field]))
        except PySparkException as error:
            raise SchemaError(
                f'Spark cannot hand over column "{field.name}" as Arrow: {error}; cast it or leave it out',
                column=field.name,
                type=field.dataType.simpleString(),
            ) from error
    return pa.schema(fields)


def _refuse_struct_encoded(column: str, kind: DataType) -> None:
    """Raises SchemaError for types that Spark encodes as structs: a read would give plain structs."""
    from pyspark.sql.types import ArrayType, GeographyType, GeometryType, MapType, StructType, VariantType  # noqa: PLC0415 - never with `import ringfence`

    if isinstance(kind, VariantType | GeometryType | GeographyType):
        way_out = (
            "store it as text, to_json(...)"
            if isinstance(kind, VariantType)
            else "store its bytes, st_asbinary(...)"
        )
        raise SchemaError(
            f'column "{column}" is {kind.simpleString()}, which would come back as a plain struct; '
            f"{way_out}, or leave it out",
            column=column,
        )
    if isinstance(kind, ArrayType):
        _refuse_struct_encoded(f"{column}[]", kind.elementType)
    elif isinstance(kind, MapType):
        _refuse_struct_encoded(f"{column}.key", kind.keyType)
        _refuse_struct_encoded(f"{column}.value", kind.valueType)
    elif isinstance(kind, StructType):
        for field in kind:
            _refuse_struct_encoded(f"{column}.{field.name}", field.dataType)


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's type for rows of a topic. View and large types become plain ones, as in `mapInArrow`.

    Raises:
        SchemaError: Spark has no type for a column.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - never with `import ringfence`
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    fields: list[StructField] = []
    for field in schema:
        reason = "its decimals have 38 digits at most" if _is_too_wide(field.type) else None
        try:
            fields += from_arrow_schema(plain(pa.schema([field])))
        except PySparkException as error:
            reason = str(error)
        if reason is not None:
            raise SchemaError(
                f'Spark has no type for column "{field.name}" ({field.type}): {reason}; read the other '
                "columns with `columns`",
                column=field.name,
                type=str(field.type),
            )
    return StructType(fields)


def _is_too_wide(kind: pa.DataType) -> bool:
    """Whether the type has a decimal, at any depth, that PySpark accepts and Spark's JVM refuses."""
    if pa.types.is_dictionary(kind):
        return _is_too_wide(kind.value_type)
    if pa.types.is_decimal(kind) and kind.precision > DECIMAL_DIGITS_MAX:
        return True
    return any(_is_too_wide(kind.field(index).type) for index in range(kind.num_fields))


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema in types that Spark has, at every depth; docs/spark.md has the table.

    Views, 64-bit offsets and dictionaries become plain types, unsigned integers the next wider signed ones,
    and half floats become floats. The values stay the same.
    """
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _plain(field.type), field.nullable)


_SIMPLE: dict[pa.DataType, pa.DataType] = {
    pa.string_view(): pa.string(),
    pa.large_string(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def _plain(kind: pa.DataType) -> pa.DataType:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    types = pa.types
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(index)) for index in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain_field(kind.item_field))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    return kind


def worker_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark requires from a data source's `read` for rows of this type.

    PySpark asserts that there is a zone if there is an instant, and then ignores its value.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - never with `import ringfence`

    return to_arrow_schema(schema, timezone="UTC")
