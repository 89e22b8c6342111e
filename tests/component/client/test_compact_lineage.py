"""Files of a topic that is split, merged and pruned: each row in one of them, in the order of the lineage."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import ringfence
from ringfence.compact import compact, files
from ringfence.compaction import manifest as manifests
from ringfence.compaction.manifest import MANIFEST, METADATA_KEY, read
from tests.fakes.lineage_client import ROWS, Writer, topic
from tests.fakes.lineage_node import LineageNode


def ids(directory: Path) -> list[int]:
    """In the order of `files`."""
    return [one for path in files(directory) for one in pq.read_table(path)["id"].to_pylist()]


def stored(directory: Path) -> dict[str, Any]:
    values = (pq.read_schema(directory / MANIFEST).metadata or {})[METADATA_KEY]
    return dict(json.loads(values))


def test_a_manifest_stays_as_it_was_until_a_partition_is_split(tmp_path: Path) -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        compact(client, "t", tmp_path)
        assert (stored(tmp_path)["format"], "lineage" in stored(tmp_path)) == (2, False)
        node.split("t")
        writer.put()
        assert compact(client, "t", tmp_path).rows == ROWS
        assert stored(tmp_path)["format"] == 3
        assert ids(tmp_path) == list(range(2 * ROWS))


def test_files_of_a_parent_come_before_those_of_its_children_whatever_was_written_first(
    tmp_path: Path,
) -> None:
    """A partition that cannot be compacted does not stop the others; its rows are written by a later run."""
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs.values()
        node.split("t")
        writer.put()
        record = parent.records[0]
        parent.records[0] = record[:200] + bytes([record[200] ^ 1]) + record[201:]
        with pytest.raises(ringfence.RingfenceError):
            compact(client, "t", tmp_path)
        assert ids(tmp_path) == list(range(ROWS, 2 * ROWS))
        parent.records[0] = record
        compact(client, "t", tmp_path)
        assert ids(tmp_path) == list(range(2 * ROWS))


def test_partitions_that_are_in_files_may_be_pruned_with_their_children(tmp_path: Path) -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        children = [log.partition for log in node.split("t")]
        writer.put()
        compact(client, "t", tmp_path)
        node.merge("t")
        writer.put()
        compact(client, "t", tmp_path)
        for one in (parent, *children):
            node.prune("t", one)
        writer.put()
        compact(client, "t", tmp_path)
        assert ids(tmp_path) == list(range(4 * ROWS))
        assert compact(client, "t", tmp_path).files == 0


def test_a_partition_that_was_pruned_before_its_rows_were_in_files_is_an_error_each_time(
    tmp_path: Path,
) -> None:
    with topic(2) as (node, client):
        writer = Writer(node)
        writer.put(first=0)
        compact(client, "t", tmp_path)
        writer.put(first=0)
        lost = node.active("t")[0].partition
        node.split("t")
        node.prune("t", lost)
        writer.put(first=0)
        for count in (3 * ROWS, 4 * ROWS):
            with pytest.raises(ringfence.TruncatedError, match="rows 10 to 19 were removed") as caught:
                compact(client, "t", tmp_path)
            assert caught.value.partition == lost
            assert len(ids(tmp_path)) == count - ROWS, "the others are compacted"
            writer.put(first=0)
        assert compact(client, "t", tmp_path / "new").rows == 3 * ROWS


def test_a_child_whose_first_rows_retention_took_is_an_error(tmp_path: Path) -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        compact(client, "t", tmp_path)
        left, _ = node.split("t")
        writer.put()
        writer.put()
        left.start = ROWS
        with pytest.raises(ringfence.TruncatedError, match="rows 0 to 9 were removed"):
            compact(client, "t", tmp_path)


def test_a_manifest_of_a_newer_format_is_refused_and_one_of_format_2_is_carried_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        compact(client, "t", tmp_path)
        node.split("t")
        writer.put()
        compact(client, "t", tmp_path)
        assert read(tmp_path / MANIFEST).lineage.keys() == node.topic_of("t").logs.keys()
        monkeypatch.setattr(manifests, "WITH_LINEAGE", 2)
        with pytest.raises(ringfence.InvalidArgumentError, match="newer"):
            compact(client, "t", tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_runs_beside_random_changes_write_each_row_once_in_lineage_order(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    with topic(2) as (node, client):
        writer = Writer(node)
        for _ in range(50):
            active, kind = node.active("t"), draw.random()
            if kind < 0.5:
                writer.put(draw.randint(1, 4), draw.randrange(len(active)))
            elif kind < 0.62 and len(active) < 6:
                node.split("t", draw.randrange(len(active)), draw.randint(2, 3))
            elif kind < 0.75 and len(active) > 1:
                node.merge("t", 2, draw.randrange(len(active) - 1))
            elif kind < 0.85:
                compact(client, "t", tmp_path, rows_per_file=draw.randint(1, 20))
                made = read(tmp_path / MANIFEST).lineage if (tmp_path / MANIFEST).exists() else {}
                for one in sorted(node.topic_of("t").logs):
                    if one in made and made[one].ended and not node.cut(one).parents and draw.random() < 0.5:
                        node.prune("t", one)
        compact(client, "t", tmp_path)
        assert sorted(ids(tmp_path)) == list(range(writer.next))
        order = [int(Path(path).parent.name[2:]) for path in files(tmp_path)]
        for at, partition in enumerate(order):
            assert not set(order[at + 1 :]) & set(older(node, partition))


def older(node: LineageNode, partition: int) -> Iterator[int]:
    for one in (*node.cut(partition).parents, *node.gone.get(partition, ())):
        yield one
        yield from older(node, one)
