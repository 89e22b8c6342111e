"""Two runs of one query side by side, as from a copied checkpoint: the older one is fenced, and says so."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import ringfence
import ringfence.spark
from ringfence.control.cli.demo_spark import content
from tests.conftest import ROOT
from tests.harness.processes import NodeProcess, until
from tests.spark.driver import held
from tests.spark.test_kills import killed

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other
TIMEOUT_S = 240
FILES, ROWS_A_FILE = 4, 4_000


def sources(folder: Path) -> None:
    """Files in the order of their times: each run has the same rows in a micro-batch of one number."""
    (folder / "source").mkdir(parents=True)
    for number in range(FILES):
        path = folder / "source" / f"{number}.parquet"
        ids = pa.array(range(number * ROWS_A_FILE, (number + 1) * ROWS_A_FILE), pa.int64())
        pq.write_table(pa.table({"id": ids}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)


def is_fenced(client: ringfence.Client, scope: str, run: str) -> bool:
    """A run that has the scope may begin it as often as it wants."""
    try:
        client.scopes.begin(scope, run.encode())
    except ringfence.FencedError:
        return True
    return False


def test_of_two_live_runs_of_one_query_the_older_is_fenced_and_each_row_comes_once(
    spark: SparkSession, node: NodeProcess, tmp_path: Path
) -> None:
    old, new, errors = tmp_path / "old", tmp_path / "new", tmp_path / "errors"
    sources(old)
    with errors.open("wb") as told:
        older = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", "held", node.address, str(old)],
            cwd=ROOT,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        )
    newer = None
    try:
        assert older.stdout is not None
        assert select.select([older.stdout], [], [], TIMEOUT_S)[0]
        run = json.loads(older.stdout.readline())["run"]
        until((old / "waits").exists, TIMEOUT_S, "the older in its second micro-batch")
        shutil.copytree(old / "checkpoint", new / "checkpoint")
        (new / "source").symlink_to(old / "source")
        newer = query = held(spark, node.address, str(new))
        assert str(newer.runId) != run
        with ringfence.connect(node.address, timeout_s=30) as client:
            until(lambda: (new / "waits").exists() or not query.isActive, TIMEOUT_S, "the newer in it, too")
            assert query.isActive, query.exception()
            until(lambda: is_fenced(client, f"spark-query-{newer.id}", run), 60, "the older fenced")
            assert client.count("rivals") == ROWS_A_FILE, "both have staged, none has committed"
            (old / "go").touch()
            assert older.wait(TIMEOUT_S) == 1
            assert client.count("rivals") == ROWS_A_FILE
        assert newer.isActive
        (new / "go").touch()
        newer.awaitTermination(TIMEOUT_S)
    finally:
        killed(older)
        if newer is not None:
            newer.stop()
    text = errors.read_text()
    assert "StreamingQueryException" in text
    assert "was begun again by another driver: this driver is fenced" in text, text[-2_000:]
    written = ringfence.spark.read(spark, address=node.address, topic="rivals")
    assert content(written.select("id")) == content(spark.range(FILES * ROWS_A_FILE))
