"""A majority of a partition's replicas is gone for good: an operator chooses, others take their place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.cli.program import run
from tests.system.cluster import Three
from tests.system.harness import SCHEMA, NodeProcess, batch, check_identity, free_port, read_ids, until


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Three]:
    """Three that vote, and a fourth one: with it and one of the others down the metadata goes on."""
    cluster = Three(tmp_path)
    try:
        cluster.start()
        control = f"tcp://127.0.0.1:{free_port()}"
        options = ("--control", control, "--join", cluster.controls[0])
        cluster.controls.append(control)
        cluster.nodes.append(NodeProcess(tmp_path / "d", options=options).start())
        until(
            lambda: sum(node["in_ring"] for node in cluster.listed(0)["nodes"]) == 4, what="four in the ring"
        )
        yield cluster
    finally:
        cluster.kill_all()


def test_a_partition_without_a_majority_serves_again_with_what_one_replica_has(
    four: Three, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = {four.id(place): place for place in range(4)}

    def told(*arguments: str, code: int = 0) -> dict[str, Any]:
        ended = run([*arguments, "--json"])
        said = capsys.readouterr()
        assert ended == code, said
        shown: dict[str, Any] = json.loads(said.out) if said.out else {}
        return shown

    def shown(number: int, place: int) -> dict[str, Any]:
        return told("partition", "show", str(number), "--control", four.controls[place])

    with ringfence.connect(four.nodes[0].address, timeout_s=30) as client:
        number, nodes, known, part = 0, list[int](), dict[str, Any](), 0
        while four.id(3) not in nodes:
            number += 1
            created = client.create_topic(
                f"t{number}", schema=SCHEMA, key=["id"], partitions=1, replication=3
            )
            part = created.partitions[0].partition
            known = shown(part, 0)
            nodes = [replica["node"] for replica in known["replicas"]]
        topic = f"t{number}"
        with client.producer(topic) as producer:
            producer.send(batch(0, 2_000))
            producer.flush()
    # Who dies: the fourth, and another replica, so that the owner is among them and one replica is left.
    others = [node for node in nodes if node != four.id(3)]
    second = known["owner"] if known["owner"] in others else others[0]
    [left] = [node for node in others if node != second]
    [spare] = [node for node in ids if node not in nodes]
    here = ids[left]
    until(lambda: told("fsck", "--cluster", "--control", four.controls[here])["compared"] == number,
          what="level replicas")  # fmt: skip
    for node in (four.id(3), second):
        four.nodes[ids[node]].kill()

    def answered() -> bool:
        change = shown(part, here)["change"] or {"candidates": []}
        return any(known["node"] == left and known["records"] for known in change["candidates"])

    until(answered, what="the replica that is left to answer its fence")
    choice = ("partition", "force-owner", str(part), "--owner", str(left), "--control",
              four.controls[here])  # fmt: skip
    names = [option for node in (left, spare, second) for option in ("--replica", str(node))]
    accepted = told(*choice, *names, "--yes")["accepted"]
    assert "are lost" in accepted
    until(lambda: shown(part, here)["change"] is None, what="an open owner")
    with ringfence.connect(four.nodes[here].address, timeout_s=30) as client:
        with client.producer(topic) as producer:
            producer.send(batch(2_000, 500))
            producer.flush()
        rows = read_ids(client, topic)
    check_identity(rows, {0: range(2_500)}, {0: 2_500})
    assert sorted(replica["node"] for replica in shown(part, here)["replicas"]) == sorted(
        [left, spare, second]
    )
