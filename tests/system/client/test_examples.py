"""The files of examples/ run as they are, and say what they should; those for Spark in tests/spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import ringfence
from tests.conftest import ROOT
from tests.fakes.client_topic import SCHEMA, rows
from tests.harness.processes import NodeProcess

EXAMPLES = {path.stem: path for path in (ROOT / "examples").glob("*.py")}
SAYS = {
    "transaction": ["first run: 1010 rows", "second run: 0 rows (was committed", "1000 payments, 10 in"],
    "polars_frame": ["Oslo", "4.0", "17.0"],
    "pandas_frame": ["Oslo", "4.0", "17.0"],
    "duckdb_query": ["1429", "1428.0"],
}


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data") as running:
        yield running


@pytest.mark.parametrize("name", SAYS)
def test_an_example_runs(name: str, node: NodeProcess) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES[name])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "RINGFENCE_ADDRESS": node.address},
    )
    assert done.returncode == 0, done.stderr
    missing = [text for text in SAYS[name] if text not in done.stdout]
    assert not missing, done.stdout


def test_every_example_is_run_by_a_test() -> None:
    others = {
        "spark_": "tests/spark/test_examples.py",
        "consumer_": "tests/component/client/test_consumer_examples.py",
    }
    tested = {name: path for name in EXAMPLES for start, path in others.items() if name.startswith(start)}
    assert set(EXAMPLES) == set(SAYS) | set(tested)
    for name, path in tested.items():
        assert f'"{name}"' in (ROOT / path).read_text()


def test_a_reader_is_an_arrow_stream_that_is_pulled_and_tells_its_errors(node: NodeProcess) -> None:
    with ringfence.connect(node.address) as client:
        client.create_topic("stream", schema=SCHEMA, key=["id"], partitions=3)
        with client.producer("stream") as producer:
            for start in range(0, 1000, 100):
                producer.send(rows(start, 100))
        reader = client.read("stream", partition=None, columns=["id"])
        assert sorted(pl.DataFrame(reader)["id"]) == list(range(1000))
        assert [position.offset for position in reader.positions()] == [
            ends.end for ends in client.end_offsets("stream").values()
        ]
        stream = pa.RecordBatchReader.from_stream(client.read("stream"))
        assert stream.schema.names == SCHEMA.names
        assert 0 < stream.read_next_batch().num_rows < 1000, "not all at once"
        starts = dict.fromkeys(client.end_offsets("stream"), 0)
        lost = pa.RecordBatchReader.from_stream(client.read("stream", start=starts))
        client.truncate("stream")
        with pytest.raises(pa.ArrowException, match="were given up"):
            lost.read_all()
