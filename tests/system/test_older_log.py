"""What was restored from an older copy, a log or all, counts for no quorum until it has caught up."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.cli.program import run
from tests.harness.cluster import ThreeNodes
from tests.harness.log_ends import marked_rows
from tests.harness.processes import SCHEMA, NodeProcess, batch, check_identity, read_ids, until

FIRST, LATER = 2_000, 500


def copied(node: NodeProcess, what: str, to: Path) -> None:
    """A copy of the follower's files. Of the same run it is as a snapshot of the volume would have it."""
    if what == "log of the same run":
        node.freeze()
        shutil.copytree(node.data / "log", to)
        node.wake()
        return
    node.stop()
    shutil.copytree(node.data if what == "directory" else node.data / "log", to)
    node.start()


def restored(node: NodeProcess, what: str, copy: Path) -> None:
    place = node.data if what == "directory" else node.data / "log"
    shutil.rmtree(place)
    shutil.copytree(copy, place)


@pytest.mark.parametrize("what", ["log", "log of the same run", "directory"])
def test_rows_that_an_older_copy_lacks_are_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """Rows are on the owner and on one follower; the follower is restored, the owner dies.

    The two that are left ended at the same record: together they would have been a majority without the rows.
    """
    cluster = ThreeNodes(tmp_path)

    def shown(part: int, place: int) -> dict[str, Any]:
        ended = run(["partition", "show", str(part), "--control", cluster.controls[place], "--json"])
        said = capsys.readouterr()
        known: dict[str, Any] = json.loads(said.out) if ended == 0 else {}
        return known

    try:
        cluster.start()
        with ringfence.connect(cluster.nodes[0].address, timeout_s=30) as client:
            created = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1, replication=3)
            with client.producer("t") as producer:
                producer.send(batch(0, FIRST))
        part = created.partitions[0].partition
        owner = next(place for place in range(3) if cluster.id(place) == shown(part, 0)["owner"])
        older, other = (place for place in range(3) if place != owner)

        copied(cluster.nodes[older], what, tmp_path / "copy")
        cluster.until_whole()
        cluster.nodes[other].kill()
        with (
            ringfence.connect(cluster.nodes[owner].address, timeout_s=60) as client,
            client.producer("t") as late,
        ):
            late.send(batch(FIRST, LATER)).result(60)
        until(
            lambda: marked_rows(cluster.nodes[older], part) == FIRST + LATER,
            what="the follower's bound on disk",
        )
        cluster.nodes[older].kill()
        restored(cluster.nodes[older], what, tmp_path / "copy")
        cluster.nodes[owner].kill()

        cluster.start_at_once([older, other])
        both = {cluster.id(older), cluster.id(other)}

        def told() -> bool:
            candidates = (shown(part, other).get("change") or {}).get("candidates", [])
            return {known["node"] for known in candidates if known["records"] is not None} >= both

        until(told, what="the answers of both to the fence")
        change = shown(part, other)["change"]
        cut = [known["cut"] for known in change["candidates"] if known["node"] == cluster.id(older)]
        assert cut == [True], "it may lack rows, and the two wait for the third"

        cluster.nodes[owner].start()
        until(lambda: shown(part, owner).get("change", 1) is None, what="an open owner")
        with ringfence.connect(cluster.nodes[owner].address, timeout_s=60) as client:
            rows = read_ids(client, "t")
        check_identity(rows, {0: range(FIRST + LATER)}, {0: FIRST + LATER})
    finally:
        cluster.kill_all()
