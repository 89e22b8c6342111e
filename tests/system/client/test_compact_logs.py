"""Compaction of another log than the one that was compacted, and of directories of an older program."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringfence
from ringfence.cluster.offsets import LogPoint
from ringfence.compact import Compacted, compact, files
from ringfence.compaction.manifest import MANIFEST, MANIFEST_OLD, read
from tests.fakes.client_topic import SCHEMA, rows
from tests.harness.processes import NodeProcess


def send(client: ringfence.Client, first: int, count: int) -> None:
    with client.producer("t") as producer:
        producer.send(rows(first, count))


def ids_in(directory: Path) -> list[int]:
    return sorted(pa.concat_tables([pq.read_table(path) for path in files(directory)])["id"].to_pylist())


@pytest.mark.parametrize("more", [50, 150], ids=["below the last compacted row", "beyond it"])
def test_a_restored_node_is_not_compacted_behind_the_rows_of_its_former_log(
    tmp_path: Path, more: int
) -> None:
    """The new rows have the offsets of rows that files have from before; none is passed over."""
    waiting = {"ringfence.retention": "compacted"}
    with NodeProcess(tmp_path / "data") as node:
        with ringfence.connect(node.address, timeout_s=30) as client:
            client.create_topic("t", schema=SCHEMA, properties=waiting, retention_ms=1)
            client.create_topic("other", schema=SCHEMA)
            send(client, 0, 100)
        assert node.stop() == 0
        shutil.copytree(tmp_path / "data", tmp_path / "backup")
        node.start()
        with ringfence.connect(node.address, timeout_s=30) as client:
            send(client, 100, 100)
            assert compact(client, "t", tmp_path / "out").rows == 200
        assert node.stop() == 0
        shutil.rmtree(tmp_path / "data")
        shutil.move(tmp_path / "backup", tmp_path / "data")
        node.start()
        with ringfence.connect(node.address, timeout_s=30) as client:
            send(client, 1_000, more)
            manifest = (tmp_path / "out" / MANIFEST).read_bytes()
            with pytest.raises(
                ringfence.TruncatedError, match=r"rows up to 199 of another log.*new directory"
            ):
                compact(client, "t", tmp_path / "out")
            assert (tmp_path / "out" / MANIFEST).read_bytes() == manifest
            assert client.end_offsets("t").popitem()[1].start == 0, "nothing was given up"
            assert compact(client, "t", tmp_path / "new").rows == 100 + more
    assert ids_in(tmp_path / "out") == list(range(200))
    assert ids_in(tmp_path / "new") == [*range(100), *range(1_000, 1_000 + more)]


def as_format_1(directory: Path) -> None:
    """As the program before this one left it."""
    manifest = read(directory / MANIFEST)
    entries = []
    for piece in manifest.files:
        former = piece.former()
        (directory / former.path).parent.mkdir(exist_ok=True)
        (directory / piece.path).rename(directory / former.path)
        entries.append(former._asdict())
    old = {
        "format": 1,
        "topic": manifest.topic,
        "name": manifest.name,
        "files": entries,
        "next": {str(partition): at.offset for partition, at in manifest.file_ends.items()},
    }
    (directory / MANIFEST_OLD).write_text(json.dumps(old))
    (directory / MANIFEST).unlink()
    for folder in directory.glob("p-*"):
        folder.rmdir()


@pytest.mark.parametrize("crashed", [False, True], ids=["whole", "a conversion that crashed"])
def test_directories_of_format_1_are_read_and_gone_on_with(tmp_path: Path, *, crashed: bool) -> None:
    out = tmp_path / "out"
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2)
        send(client, 0, 300)
        compact(client, "t", out, rows_per_file=100)
        converted = (out / MANIFEST).read_bytes()
        as_format_1(out)
        assert ids_in(out) == list(range(300))
        if crashed:
            (out / MANIFEST).write_bytes(converted)
        send(client, 300, 50)
        assert compact(client, "t", out).rows == 50
        assert compact(client, "t", out) == Compacted(0, 0, 0)
    assert ids_in(out) == list(range(350))
    assert pq.read_table(out).num_rows == 350
    left = {path for path in out.rglob("*") if path.is_file() or "=" in path.name}
    assert left == {out / MANIFEST, *map(Path, files(out))}
    assert all(at.epoch and at.time_ms for at in read(out / MANIFEST).file_ends.values())


def test_a_file_that_is_gone_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA)
        send(client, 0, 200)
        compact(client, "t", out, rows_per_file=100)
        Path(files(out)[0]).unlink()
        before = (out / MANIFEST).read_bytes()
        send(client, 200, 10)
        with pytest.raises(ringfence.InvalidArgumentError, match="names files that do not exist; restore"):
            compact(client, "t", out)
        assert (out / MANIFEST).read_bytes() == before


def test_a_log_that_became_another_one_during_a_run_gives_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the files are written, the owner says that their last row has another epoch."""
    waiting = {"ringfence.retention": "compacted"}
    with NodeProcess(tmp_path / "data") as node, ringfence.connect(node.address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, properties=waiting, retention_ms=1)
        send(client, 0, 100)
        plain = ringfence.Client.log_points

        def forced(self: ringfence.Client, topic: str, offsets: Mapping[int, int]) -> list[LogPoint]:
            return [point._replace(epoch=point.epoch + 1) for point in plain(self, topic, offsets)]

        monkeypatch.setattr(ringfence.Client, "log_points", forced)
        with pytest.raises(ringfence.TruncatedError, match=r"rows up to 99 of another log.*new directory"):
            compact(client, "t", tmp_path / "out")
        assert client.end_offsets("t").popitem()[1].start == 0, "nothing was given up"
        monkeypatch.undo()
        assert compact(client, "t", tmp_path / "out").given_up > 0
    assert ids_in(tmp_path / "out") == list(range(100))
