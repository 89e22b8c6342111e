"""Drivers and workers of Spark die by SIGKILL; the topic has every row once, seen from outside.

The second run of each is one of the session of all tests here: another application, and no Java that starts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import ringfence
from ringfence.compact import files as compacted_files
from tests.conftest import ROOT
from tests.fakes.client_topic import ids_of
from tests.harness.processes import NodeProcess, until
from tests.spark.driver import ROWS, ROWS_A_FILE, batch, compact, stream

pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark and pandas warn of each other
TIMEOUT_S = 240  # of one driver; Spark alone takes 10 s on a quiet machine


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as made:
        yield made


def driver(*arguments: str) -> subprocess.Popen[str]:
    """In a session of its own, so that all of it can be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.driver", *arguments],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def killed(process: subprocess.Popen[str]) -> None:
    """The driver, its JVM and all Python workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def test_a_driver_killed_between_stages_and_commit_leaves_nothing_and_its_second_run_everything_once(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client, tmp_path: Path
) -> None:
    first = driver("batch", node.address, str(tmp_path), "commit")
    assert first.wait(TIMEOUT_S) == -signal.SIGKILL
    killed(first)
    assert (tmp_path / "worker-died").exists(), "no worker died"
    assert client.count("nightly") == 0, "all is staged, nothing committed"
    assert batch(spark, node.address, str(tmp_path), "") == (ROWS, False)
    assert sorted(ids_of(client, "nightly")) == list(range(ROWS))


def test_ctrl_c_ends_a_driver_soon_and_its_second_run_has_everything_once(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client, tmp_path: Path
) -> None:
    """As a terminal does it: SIGINT to the whole group, Java and Python workers too."""
    first = driver("batch", node.address, str(tmp_path), "wait")
    try:
        until((tmp_path / "waits").exists, TIMEOUT_S, "tasks in their middle")
        os.killpg(first.pid, signal.SIGINT)
        first.communicate(timeout=60)
        assert first.returncode in (-signal.SIGINT, 128 + signal.SIGINT, 1)
    finally:
        killed(first)
    assert client.count("interrupted-driver") == 0
    assert batch(spark, node.address, str(tmp_path), "again") == (ROWS, False)
    assert sorted(ids_of(client, "interrupted-driver")) == list(range(ROWS))


def test_a_stream_whose_driver_is_killed_goes_on_from_its_checkpoint_and_writes_each_row_once(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client, tmp_path: Path
) -> None:
    files, rows = 6, 1000
    (tmp_path / "source").mkdir()
    for number in range(files):
        ids = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
        pq.write_table(pa.table({"id": ids}), tmp_path / "source" / f"{number}.parquet")

    def count() -> int:
        try:
            return client.count("streamed")
        except ringfence.NotFoundError:
            return 0

    first = driver("stream", node.address, str(tmp_path))
    try:
        until(lambda: count() >= 2 * rows or first.poll() is not None, TIMEOUT_S, "two batches")
        assert first.poll() is None, "it was to be killed on its way"
    finally:
        killed(first)
    assert count() % rows == 0, "no batch is there in part"
    stream(spark, node.address, str(tmp_path))
    assert sorted(ids_of(client, "streamed")) == list(range(files * rows))


def test_a_driver_killed_in_a_compaction_leaves_files_that_the_next_goes_on_from(
    spark: SparkSession, node: NodeProcess, client: ringfence.Client, tmp_path: Path
) -> None:
    """Its fourth file is in the manifest, and has not got its name."""
    files, rows = 6, ROWS_A_FILE
    client.create_topic("compacted", schema=pa.schema([pa.field("id", pa.int64())]))
    with client.producer("compacted") as producer:
        producer.send(pa.record_batch({"id": pa.array(range(files * rows), pa.int64())}))
    first = driver("compact", node.address, str(tmp_path), "4")
    assert first.wait(TIMEOUT_S) == -signal.SIGKILL
    killed(first)
    assert len(list(tmp_path.glob("out/*/*.parquet"))) == 3
    added, table = compact(spark, node.address, str(tmp_path))
    assert (added.files, added.rows) == (2, 2 * rows)
    assert sorted(row.id for row in table.collect()) == list(range(files * rows))
    named = {Path(path) for path in compacted_files(tmp_path / "out")}
    assert set(tmp_path.glob("out/*/*")) == named, "nothing else is left"
