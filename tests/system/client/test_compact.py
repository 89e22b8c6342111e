"""Compaction: each row in exactly one file, also when a run dies at any of its steps."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringfence
from ringfence.compact import Compacted, compact, files
from ringfence.compaction.manifest import MANIFEST, Manifest
from ringfence.native.errors import StoreLockedError
from tests.fakes.client_topic import SCHEMA, rows, until
from tests.harness.processes import NodeProcess, cli


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data") as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as made:
        yield made


def send(client: ringfence.Client, topic: str, first: int, count: int) -> None:
    with client.producer(topic) as producer:
        for start in range(first, first + count, 50):
            producer.send(rows(start, 50))


def ids_in(directory: Path) -> list[int]:
    return sorted(pa.concat_tables([pq.read_table(path) for path in files(directory)])["id"].to_pylist())


def test_runs_add_what_is_new_and_a_transaction_is_compacted_like_any_row(
    client: ringfence.Client, tmp_path: Path
) -> None:
    client.create_topic("runs", schema=SCHEMA, key=["id"], partitions=2)
    send(client, "runs", 0, 500)
    first = compact(client, "runs", tmp_path / "out", rows_per_file=100, sort=["text"])
    assert first.rows == 500
    assert first.files >= 6
    with client.transaction("runs", scope="compact") as transaction:
        transaction.send(rows(500, 100))
    assert compact(client, "runs", tmp_path / "out", rows_per_file=1000).rows == 100
    assert compact(client, "runs", tmp_path / "out") == Compacted(0, 0, 0)
    assert ids_in(tmp_path / "out") == list(range(600))
    glob = str(tmp_path / "out" / "*" / "*.parquet")
    found = duckdb.sql(f"select count(*), sum(id) from '{glob}'")
    assert found is not None
    assert found.fetchall() == [(600, 179_700)]
    for path in files(tmp_path / "out")[: first.files]:
        table = pq.read_table(path)
        assert table["text"].to_pylist() == sorted(table["text"].to_pylist())
        told = json.loads(pq.read_schema(path).metadata[b"ringfence"])
        assert told["end_offset"] - told["first_offset"] == table.num_rows <= 100


def starts(client: ringfence.Client, topic: str) -> dict[int, int]:
    return {partition: ends.start for partition, ends in client.end_offsets(topic).items()}


@pytest.mark.parametrize(
    "bound", [{"retention_bytes": 20_000}, {"retention_ms": 1}], ids=lambda one: next(iter(one))
)
def test_retention_that_waits_for_files_gives_up_what_they_have_and_nothing_else(
    client: ringfence.Client, tmp_path: Path, bound: dict[str, Any]
) -> None:
    topic = next(iter(bound))
    waiting = {"ringfence.retention": "compacted"}
    client.create_topic(topic, schema=SCHEMA, key=["id"], partitions=2, properties=waiting, **bound)
    client.create_topic(f"plain_{topic}", schema=SCHEMA, key=["id"], partitions=2, **bound)
    for name in (topic, f"plain_{topic}"):
        for start in range(0, 20_000, 10_000):
            send(client, name, start, 10_000)
    until(lambda: max(starts(client, f"plain_{topic}").values()) > 0, 30)
    assert set(starts(client, topic).values()) == {0}, "the same retention without the property was at work"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Manifest, "commit", died)
        with pytest.raises(RuntimeError, match="died"):
            compact(client, topic, tmp_path / "out")
    assert set(starts(client, topic).values()) == {0}, "no manifest has a row"
    done = compact(client, topic, tmp_path / "out")
    assert done.rows == 20_000
    assert done.given_up == sum(starts(client, topic).values()) > 10_000
    held = [row["id"] for batch in client.read(topic) for row in batch.to_pylist()]
    assert len(held) == 20_000 - done.given_up
    assert ids_in(tmp_path / "out") == list(range(20_000))
    send(client, topic, 20_000, 500)
    assert compact(client, topic, tmp_path / "out").rows == 500, "nothing between the runs was lost"


def died(*_: object) -> None:
    raise RuntimeError("died")


@pytest.mark.parametrize(
    ("properties", "retention_ms", "why"),
    [
        ({"ringfence.retention": "compacted"}, None, "needs retention_bytes or retention_ms"),
        ({"ringfence.retention": "never"}, 1, "compacted, or leave it out"),
        ({"ringfence.retentoin": "compacted"}, 1, "ringfence.retention only"),
    ],
)
def test_own_properties_that_cannot_be_so_make_no_topic(
    client: ringfence.Client, properties: dict[str, str], retention_ms: int | None, why: str
) -> None:
    with pytest.raises(ringfence.InvalidArgumentError, match=why):
        client.create_topic("wrong", schema=SCHEMA, properties=properties, retention_ms=retention_ms)
    assert client.topics("public/default/wrong") == []


def test_rows_with_views_at_any_depth_are_sorted_like_others_and_keep_their_types(
    client: ringfence.Client, tmp_path: Path
) -> None:
    """TPC-H files, polars and DuckDB have text as views, which pyarrow does not sort by itself."""
    word = pa.string_view()
    kinds = {
        "text": word,
        "bytes": pa.binary_view(),
        "list": pa.list_(word),
        "large": pa.large_list(word),
        "pair": pa.list_(word, 2),
        "struct": pa.struct([("a", word)]),
        "map": pa.map_(word, word),
    }
    schema = pa.schema([*kinds.items(), ("id", pa.int64())])
    made = [
        {
            "id": at,
            "text": f"{at:04}",
            "bytes": b"b",
            "list": ["l", str(at)],
            "large": [str(at)],
            "pair": ["p", str(at)],
            "struct": {"a": str(at)},
            "map": [("k", str(at))],
        }
        for at in (5, 3, 4)
    ]
    client.create_topic("views", schema=schema)
    with client.producer("views") as producer:
        producer.send(pa.RecordBatch.from_pylist(made, schema))
    assert compact(client, "views", tmp_path / "out", sort=["text"]).rows == 3
    [path] = files(tmp_path / "out")
    assert pq.read_table(path).to_pylist() == sorted(
        ({name: row[name] for name in schema.names} for row in made), key=lambda row: str(row["text"])
    )
    assert pq.read_schema(path).field("text").type == word


@pytest.mark.parametrize("step", range(0, 15, 2))
def test_a_run_that_dies_at_any_step_is_finished_by_the_next(
    step: int, client: ringfence.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"dies-{step}"
    client.create_topic(topic, schema=SCHEMA)
    send(client, topic, 0, 200)
    steps = iter(range(100))

    def dying(name: str) -> None:
        real = getattr(os, name)

        def die(*given: object) -> object:
            if next(steps) == step:
                raise RuntimeError("killed")
            return real(*given)

        monkeypatch.setattr(os, name, die)

    dying("rename")
    dying("fsync")
    with pytest.raises(RuntimeError, match="killed"):
        compact(client, topic, tmp_path / "out", rows_per_file=100)
    monkeypatch.undo()
    compact(client, topic, tmp_path / "out", rows_per_file=100)
    assert ids_in(tmp_path / "out") == list(range(200))
    assert sorted(map(str, (tmp_path / "out").glob("*/*"))) == sorted(files(tmp_path / "out"))


def test_lost_rows_and_foreign_directories_are_said(
    node: NodeProcess, client: ringfence.Client, tmp_path: Path
) -> None:
    for topic in ("lost", "other"):
        client.create_topic(topic, schema=SCHEMA)
        send(client, topic, 0, 100)
    done = cli("compact", "lost", str(tmp_path / "out"), "--json", address=node.address)
    assert json.loads(done.stdout)["rows"] == 100, done.stderr
    send(client, "lost", 100, 100)
    client.truncate("lost", before_offset=150)
    with pytest.raises(
        ringfence.TruncatedError, match="rows 100 to 149 were removed before they were compacted"
    ):
        compact(client, "lost", tmp_path / "out")
    with pytest.raises(ringfence.InvalidArgumentError, match="belongs to another topic"):
        compact(client, "other", tmp_path / "out")
    assert ids_in(tmp_path / "out") == list(range(100))


def test_one_run_at_a_time_writes_into_a_directory(client: ringfence.Client, tmp_path: Path) -> None:
    client.create_topic("one-run", schema=SCHEMA)
    send(client, "one-run", 0, 50)
    refused: list[Exception] = []

    class Meddler:
        """A second run begins while the first is under way."""

        def __getattr__(self, name: str) -> object:
            if name == "topic" and not refused:
                with pytest.raises(StoreLockedError, match="another run") as caught:
                    compact(client, "one-run", tmp_path / "out")
                refused.append(caught.value)
            return getattr(client, name)

    meddler: Any = Meddler()
    assert compact(meddler, "one-run", tmp_path / "out").rows == 50
    assert len(refused) == 1
    assert ids_in(tmp_path / "out") == list(range(50))
    assert compact(client, "one-run", tmp_path / "out").rows == 0


def test_files_that_no_manifest_names_are_neither_counted_nor_touched(
    client: ringfence.Client, tmp_path: Path
) -> None:
    """A manifest that was lost: a run that began anew would name only what came after it."""
    client.create_topic("strange", schema=SCHEMA)
    send(client, "strange", 0, 100)
    out = tmp_path / "out"
    compact(client, "strange", out)
    kept = (out / MANIFEST).read_bytes()
    (out / MANIFEST).unlink()
    send(client, "strange", 100, 50)
    with pytest.raises(ringfence.InvalidArgumentError, match=r"_manifest\.parquet does not name; restore it"):
        compact(client, "strange", out)
    (out / MANIFEST).write_bytes(kept)
    mine = next(out.glob("*/")) / ".mine.part"
    mine.write_text("not of ringfence")
    assert compact(client, "strange", out).rows == 50
    assert ids_in(out) == list(range(150))
    assert mine.exists()
    pq.write_table(pa.table({"id": [1]}), mine.parent / "stranger.parquet")
    with pytest.raises(ringfence.InvalidArgumentError, match=r"stranger\.parquet"):
        compact(client, "strange", out)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}'])
def test_a_manifest_that_is_none_is_named(text: str, client: ringfence.Client, tmp_path: Path) -> None:
    client.create_topic("no-manifest", schema=SCHEMA, exist_ok=True)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ringfence.InvalidArgumentError, match=r"not a manifest of ringfence.*manifest\.json"):
        compact(client, "no-manifest", tmp_path)
    with pytest.raises(ringfence.InvalidArgumentError, match="not a manifest of ringfence"):
        files(tmp_path)


def test_an_unknown_compression_is_refused_before_a_file_is_made(
    client: ringfence.Client, tmp_path: Path
) -> None:
    client.create_topic("codec", schema=SCHEMA)
    send(client, "codec", 0, 50)
    with pytest.raises(ringfence.InvalidArgumentError, match=r"this compression is not supported.*zip.*zstd"):
        compact(client, "codec", tmp_path / "out", compression="zip")
    assert not (tmp_path / "out").exists()
