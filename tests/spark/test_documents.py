"""The examples of docs/spark.md run as they are printed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ringfence
import ringfence.spark
from tests.conftest import ROOT
from tests.harness.processes import NodeProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other


def test_the_examples_run(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> None:
    blocks = re.findall(
        r"<!-- run: spark -->\n```python\n(.*?)```", (ROOT / "docs" / "spark.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 4
    (tmp_path / "example.py").write_text("\n".join(blocks))
    given = {
        "spark": spark,
        "address": node.address,
        "df": spark.range(0, 300, numPartitions=2),
        "checkpoint": str(tmp_path / "checkpoint"),
        "directory": str(tmp_path / "events-parquet"),
    }
    left = runpy.run_path(str(tmp_path / "example.py"), init_globals=given)
    with ringfence.connect(node.address) as client:
        assert (client.count("events"), client.count("copies")) == (600, 300)
    assert (left["done"].added.rows, left["done"].table.count()) == (600, 600)
    assert left["done"].table.dtypes == left["rows"].dtypes
    again = ringfence.spark.compact(
        spark, address=node.address, topic="events", directory=str(tmp_path / "events-parquet")
    )
    assert (again.added.rows, again.table.count()) == (0, 600)
