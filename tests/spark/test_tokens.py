"""A cluster that asks for a token: Spark jobs show the one of a file, and no plan or error has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import ringfence
import ringfence.spark
from ringfence.native.errors import UnauthorizedError
from tests.harness.token_node import TokenNode

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


@pytest.fixture(scope="module")
def locked(module_folder: Path) -> Iterator[TokenNode]:
    made = TokenNode(module_folder)
    with made.node:
        for name, role in (("root", "admin"), ("viewer", "viewer"), ("writer", "writer")):
            made.make(name, role)
        made.make("late", "writer", "--expires", "1ms")
        (made.files / "wrong").write_text("rf_" + "w" * 43)
        with made.connect("root") as client:
            client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2)
        yield made


def options(locked: TokenNode, name: str | None) -> dict[str, str]:
    known = {"address": locked.node.address, "topic": "t", "timeoutSeconds": "30"}
    return known if name is None else {**known, "tokenFile": str(locked.files / name)}


def write(rows: DataFrame, locked: TokenNode, name: str | None) -> None:
    rows.write.format("ringfence").options(**options(locked, name)).mode("append").save()


def test_who_may_write_writes_and_who_may_read_reads(spark: SparkSession, locked: TokenNode) -> None:
    write(spark.range(0, 100, numPartitions=2), locked, "writer")
    back = spark.read.format("ringfence").options(**options(locked, "viewer")).load()
    assert sorted(row.id for row in back.collect()) == list(range(100))
    address, file = locked.node.address, str(locked.files / "writer")
    more = spark.range(100, 120)
    assert ringfence.spark.write(more, address=address, topic="t", token_file=file).rows == 20
    assert ringfence.spark.read(spark, address=address, topic="t", token_file=file).count() == 120


def test_without_the_right_a_job_fails_at_once_with_our_reason_and_stores_nothing(
    spark: SparkSession, locked: TokenNode
) -> None:
    rows = spark.range(5, numPartitions=1)
    with locked.connect("root") as client:
        before = client.count("t")
        for name, why in (
            (None, "HELLO had none"),
            ("wrong", "no token has this secret"),
            ("late", "has expired"),
            ("viewer", "has not the right .write.*--role writer"),
        ):
            with pytest.raises(PySparkException, match=why) as caught:
                write(rows, locked, name)
            assert "wwww" not in str(caught.value)
        assert client.count("t") == before
    with pytest.raises(PySparkException, match="No such file"):
        write(rows, locked, "none")
    with pytest.raises(PySparkException, match=r"unknown options.*tokenFile"):
        rows.write.format("ringfence").options(**options(locked, None), token="rf_x").mode("append").save()
    with pytest.raises(UnauthorizedError, match="HELLO had none"):
        ringfence.spark.read(spark, address=locked.node.address, topic="t")


def test_no_plan_of_a_job_has_the_token(spark: SparkSession, locked: TokenNode) -> None:
    secret = (locked.files / "viewer").read_text().strip()
    back = spark.read.format("ringfence").options(**options(locked, "viewer")).load()
    java = back._jdf.queryExecution()
    shown = [java.toString(), repr(back)]
    assert "ringfence" in shown[0].lower()
    assert not any(secret in text for text in shown)
