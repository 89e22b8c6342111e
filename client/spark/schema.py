"""Spark's types and Arrow's, both ways; the types are those that `mapInArrow` exchanges."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pyarrow as pa

from ringfence.native.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PYTHON_VARIABLE = "PYSPARK_PYTHON"


def use_this_python() -> None:
    """Let Spark's workers run this very interpreter, unless PYSPARK_PYTHON says otherwise.

    They need this package.
    """
    os.environ.setdefault(PYTHON_VARIABLE, sys.executable)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark hands over rows of this type.

    Raises:
        SchemaError: Spark has no Arrow type for a column.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - never with `import ringfence`
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    try:
        return to_arrow_schema(schema)
    except PySparkException as error:
        raise SchemaError(
            f"Spark cannot hand over this schema as Arrow: {error}", spark_schema=schema.simpleString()
        ) from error


def spark_schema(schema: pa.Schema) -> StructType:
    """Spark's type for rows of a topic. View and large types become plain ones, as `mapInArrow` gives them.

    Raises:
        SchemaError: Spark has no type for a column.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - never with `import ringfence`
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415

    try:
        return from_arrow_schema(plain(schema))
    except PySparkException as error:
        raise SchemaError(f"Spark has no type for a column: {error}", columns=schema.names) from error


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema with views and 64-bit offsets replaced by what every version of Spark takes."""
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return kind
