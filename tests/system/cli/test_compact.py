"""`ringfence compact` and what lies in its directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from tests.harness.processes import NodeProcess, cli


@pytest.mark.parametrize("name", ["other.parquet", "OTHER.PARQUET", "some/where/other.parquet"])
def test_parquet_files_of_somebody_else_are_refused_before_anything_is_written(
    node: NodeProcess, tmp_path: Path, name: str
) -> None:
    """A reader of all Parquet files there would take them together with the topic's."""
    other = tmp_path / name
    other.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1]}), other)
    rows = pa.record_batch({"id": [1, 2]})
    with ringfence.connect(node.address) as client:
        topic = f"beside-{len(client.topics())}"
        client.create_topic(topic, schema=rows.schema)
        with client.producer(topic) as producer:
            producer.send(rows)
    compacted = ("compact", topic, str(tmp_path))
    refused = cli(*compacted, address=node.address)
    assert refused.returncode == Exit.REFUSED, refused
    assert other.name in refused.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]
    other.unlink()
    done = [cli(*compacted, address=node.address) for _ in range(2)]
    assert [(one.returncode, "2 rows" in one.stdout) for one in done] == [(0, True), (0, False)]
