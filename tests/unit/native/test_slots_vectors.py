"""Hashes and slots equal real Spark's, for every public vector, with every kind of loop that this CPU has."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ringfence.native import _node
from ringfence.native.errors import InvalidArgumentError
from ringfence.native.frame import header_crc
from ringfence.native.slots import hash64, slots, xxh64
from tests.conftest import public_data
from tests.unit.native.reference import hash_rows, slot_of

SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<int>": pa.list_(pa.int32()),
    "struct<a:int,b:string>": pa.struct([("a", pa.int32()), ("b", pa.string())]),
}


def arrow_type(name: str) -> pa.DataType:
    if name.startswith("decimal("):
        precision, scale = name[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return SIMPLE[name]


def python_value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in ("float", "double"):
        return float(value)
    if name.startswith("decimal("):
        return Decimal(value)
    if name == "date":
        return datetime.date.fromisoformat(value)
    if name == "binary":
        return bytes.fromhex(value)
    if name.startswith("struct"):
        return dict(zip(("a", "b"), value, strict=True))
    return value


def load(name: str) -> list[dict[str, Any]]:
    found = json.loads(public_data("vectors", name).read_text())["vectors"]
    assert isinstance(found, list)
    return found


def batch_of(vector: dict[str, Any]) -> pa.RecordBatch:
    columns = [
        pa.array([python_value(column["type"], column["value"])], arrow_type(column["type"]))
        for column in vector["columns"]
    ]
    return pa.record_batch(columns, names=[f"k{at}" for at in range(len(columns))])


@pytest.mark.parametrize("level", [-1, 0, 1, 2])
def test_every_public_vector_of_spark_has_its_hash_and_slot(level: int) -> None:
    vectors = load("xxhash64_spark.json")
    assert len(vectors) == 98
    for vector in vectors:
        batch, expected = batch_of(vector), int(vector["expected"])
        try:
            found = hash64(batch, batch.schema.names, level=level)
        except (
            InvalidArgumentError
        ) as error:  # this CPU lacks the instructions; the level that it chooses is tested
            assert level > 0 and "the loops of level" in str(error)
            return
        assert found.tolist() == [expected], vector
        assert slots(batch, batch.schema.names, level=level).tolist() == [slot_of(expected)], vector


def test_the_slow_reference_has_the_hashes_of_the_vectors_too() -> None:
    for vector in load("xxhash64_spark.json"):
        assert hash_rows(batch_of(vector).columns) == [int(vector["expected"])], vector


def test_plain_xxh64_of_the_public_vectors() -> None:
    for vector in load("xxh64_raw.json"):
        assert xxh64(bytes.fromhex(vector["bytes_hex"]), vector["seed"]) == int(vector["expected_hex"], 16)


def test_crc32c_of_the_public_vectors_by_every_way() -> None:
    for vector in load("crc32c.json"):
        data, expected = bytes.fromhex(vector["bytes_hex"]), int(vector["crc32c_hex"], 16)
        assert _node.crc32c(data) == expected
        assert _node.crc32c(data[3:], _node.crc32c(data[:3])) == expected
        assert header_crc(data) == header_crc(data, portable=True) == expected
