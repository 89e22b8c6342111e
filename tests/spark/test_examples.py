"""The Spark files of examples/ run as they are, within the session of these tests."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ROOT
from tests.harness.processes import NodeProcess

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other
SAYS = {"spark_batch": "4 files, 10000 rows", "spark_stream": "4500 rows"}


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(
    name: str,
    spark: SparkSession,
    node: NodeProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("RINGFENCE_ADDRESS", node.address)
    monkeypatch.setenv("CHECKPOINT", str(tmp_path / "checkpoint"))  # one left from before is of another topic
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    assert SAYS[name] in capsys.readouterr().out
