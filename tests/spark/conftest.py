"""One Spark session, one node and TPC-H's lineitem for all tests here.

Starting Spark takes most of their time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ringfence.control.cli.demo_spark import QUICK
from ringfence.spark.schema import use_this_python
from tests.harness.java_classes import share_classes
from tests.harness.processes import NodeProcess

SCALE = "0.01"  # 60,175 rows


@pytest.fixture(scope="session", autouse=True)
def _classes() -> None:
    share_classes()


@pytest.fixture(scope="session")
def spark(_classes: None) -> Iterator[SparkSession]:
    use_this_python()
    session = (
        SparkSession.builder.master("local[2,4]")  # a task may fail three times
        .appName("ringfence-tests")
        .config(map={**QUICK})
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("spark") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def lineitem_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    program = shutil.which("tpchgen-cli") or str(Path(sys.executable).parent / "tpchgen-cli")
    subprocess.run(
        [program, "parquet", "-s", SCALE, "--tables", "lineitem", "--output-dir", str(folder)], check=True
    )
    return folder / "lineitem.parquet"


@pytest.fixture(scope="session")
def lineitem(spark: SparkSession, lineitem_file: Path) -> DataFrame:
    return spark.read.parquet(str(lineitem_file)).repartition(4).cache()
