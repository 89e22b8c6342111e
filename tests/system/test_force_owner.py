"""A majority of a partition's replicas is gone for good: an operator chooses, others take their place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ringfence
from ringfence.control.cli.program import run
from tests.harness.cluster import ThreeNodes
from tests.harness.log_ends import marked_rows
from tests.harness.processes import SCHEMA, NodeProcess, batch, check_identity, free_port, read_ids, until


@pytest.fixture
def four(tmp_path: Path) -> Iterator[ThreeNodes]:
    """Three that vote, and a fourth one: with it and one of the others down the metadata goes on."""
    cluster = ThreeNodes(tmp_path)
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


class Asked:
    """What commands print of a cluster, as JSON."""

    def __init__(self, four: ThreeNodes, capsys: pytest.CaptureFixture[str]) -> None:
        self._four, self._capsys = four, capsys

    def told(self, *arguments: str) -> dict[str, Any]:
        ended = run([*arguments, "--json"])
        said = self._capsys.readouterr()
        assert ended == 0, said
        told: dict[str, Any] = json.loads(said.out) if said.out else {}
        return told

    def shown(self, part: int, place: int) -> dict[str, Any]:
        return self.told("partition", "show", str(part), "--control", self._four.controls[place])

    def force(self, part: int, place: int, *nodes: int) -> dict[str, Any]:
        """The first of these nodes becomes the owner, all of them the replicas. `place` is asked."""

        def answered() -> bool:
            change = self.shown(part, place)["change"] or {"candidates": []}
            return any(known["node"] == nodes[0] and known["records"] for known in change["candidates"])

        until(answered, what="the replica that is left to answer its fence")
        names = [option for node in nodes for option in ("--replica", str(node))]
        choice = (
            "partition",
            "force-owner",
            str(part),
            "--owner",
            str(nodes[0]),
            "--control",
            self._four.controls[place],
            *names,
            "--yes",
        )
        done = self.told(*choice)
        until(lambda: self.shown(part, place)["change"] is None, what="an open owner")
        return done


def test_a_partition_without_a_majority_serves_again_with_what_one_replica_has(
    four: ThreeNodes, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = {four.id(place): place for place in range(4)}

    asked = Asked(four, capsys)
    with ringfence.connect(four.nodes[0].address, timeout_s=30) as client:
        number, nodes, known, part = 0, list[int](), dict[str, Any](), 0
        while four.id(3) not in nodes:
            number += 1
            created = client.create_topic(
                f"t{number}", schema=SCHEMA, key=["id"], partitions=1, replication=3
            )
            part = created.partitions[0].partition
            known = asked.shown(part, 0)
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
    until(
        lambda: asked.told("fsck", "--cluster", "--control", four.controls[here])["compared"] == number,
        what="level replicas",
    )
    for node in (four.id(3), second):
        four.nodes[ids[node]].kill()

    assert "are lost" in asked.force(part, here, left, spare, second)["accepted"]
    with ringfence.connect(four.nodes[here].address, timeout_s=30) as client:
        with client.producer(topic) as producer:
            producer.send(batch(2_000, 500))
            producer.flush()
        rows = read_ids(client, topic)
    check_identity(rows, {0: range(2_500)}, {0: 2_500})
    assert sorted(replica["node"] for replica in asked.shown(part, here)["replicas"]) == sorted(
        [left, spare, second]
    )


class Placed(NamedTuple):
    """A topic with one partition, and the nodes beside the fourth: two replicas, and one without."""

    topic: str
    part: int
    left: int
    second: int
    spare: int


def level_replicas(four: ThreeNodes, asked: Asked) -> Placed:
    """A hundred rows on three level replicas, one of them on the fourth node, which does not vote."""
    ids = {four.id(place): place for place in range(4)}
    with ringfence.connect(four.nodes[0].address, timeout_s=30) as client:
        number, nodes, part = 0, list[int](), 0
        while four.id(3) not in nodes:
            number += 1
            created = client.create_topic(
                f"t{number}", schema=SCHEMA, key=["id"], partitions=1, replication=3
            )
            part = created.partitions[0].partition
            nodes = [replica["node"] for replica in asked.shown(part, 0)["replicas"]]
        topic = f"t{number}"
        with client.producer(topic) as producer:
            producer.send(batch(0, 100))
    [left, second] = [node for node in nodes if node != four.id(3)]
    [spare] = [node for node in ids if node not in nodes]
    here = ids[left]
    until(
        lambda: asked.told("fsck", "--cluster", "--control", four.controls[here])["compared"] == number,
        what="level replicas",
    )
    # Else it would vote in the place of the one that is down, and be missed when it dies itself.
    asked.told("node", "demote", str(four.id(3)), "--control", four.controls[here])
    return Placed(topic, part, left, second, spare)


def test_a_log_start_of_lost_rows_takes_none_of_those_that_have_their_offsets_now(
    four: ThreeNodes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Truncate to 1,000, lose the two that had these rows, force the one that ends at 100; start again."""
    ids, asked = {four.id(place): place for place in range(4)}, Asked(four, capsys)
    topic, part, left, second, spare = level_replicas(four, asked)
    here = ids[left]
    four.nodes[here].kill()
    with ringfence.connect(four.nodes[ids[second]].address, timeout_s=60) as client:
        with client.producer(topic) as producer:
            producer.send(batch(100, 1_400))
        client.truncate(topic, before_offset=1_000)
    for node in (four.id(3), second):
        four.nodes[ids[node]].kill()
    four.nodes[here].start()
    asked.force(part, here, left, spare, second)
    with ringfence.connect(four.nodes[here].address, timeout_s=60) as client:
        with client.producer(topic) as producer:
            producer.send(batch(5_000, 500))
        ends = client.end_offsets(topic)[part]
        assert (ends.start, ends.end) == (100, 600), "what it had of the truncated rows is given up, too"
    back = [here, ids[spare]]
    for place in back:
        four.nodes[place].kill()
    four.start_at_once(back)
    with ringfence.connect(four.nodes[here].address, timeout_s=60) as client:
        rows = read_ids(client, topic)
    check_identity(rows, {0: range(5_000, 5_500)}, {0: 5_500})


def test_a_name_that_a_forced_owner_never_heard_of_is_not_taken_for_a_new_one(
    four: ThreeNodes, capsys: pytest.CaptureFixture[str]
) -> None:
    ids, asked = {four.id(place): place for place in range(4)}, Asked(four, capsys)
    topic, part, left, second, spare = level_replicas(four, asked)
    here = ids[left]
    four.nodes[here].kill()
    with (
        ringfence.connect(four.nodes[ids[spare]].address, timeout_s=60) as client,
        client.producer(topic, name="loader", timeout_s=60) as loader,
    ):
        loader.send(batch(100, 100), number=1).result(60)
    for node in (four.id(3), second):
        four.nodes[ids[node]].kill()
    four.nodes[here].start()
    asked.force(part, here, left, spare, second)
    with ringfence.connect(four.nodes[here].address, timeout_s=60) as client:
        for _ in range(2):
            with pytest.raises(ringfence.ResumeUnknownError) as caught:
                client.producer(topic, name="loader")
            assert (caught.value.producer, caught.value.partitions) == ("loader", [part])
        with client.producer(topic, name="loader", accept_fresh_start=True) as loader:
            assert not loader.resume
            loader.send(batch(100, 100), number=1).result(60)
        assert client.producer(topic, name="loader").resume[part].send == 1
        rows = read_ids(client, topic)
    check_identity(rows, {0: range(200)}, {0: 200})


def test_a_live_replica_with_more_rows_follows_a_forced_owner_without_a_restart(
    four: ThreeNodes, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stood still when the owner was chosen, and knows that the rows which that one lacks are marked."""
    ids, asked = {four.id(place): place for place in range(4)}, Asked(four, capsys)
    topic, part, left, second, spare = level_replicas(four, asked)
    here, late = ids[left], four.nodes[ids[second]]
    four.nodes[here].kill()
    with ringfence.connect(late.address, timeout_s=60) as client, client.producer(topic) as producer:
        producer.send(batch(100, 1_400))
    until(lambda: marked_rows(late, part) == 1_500, what="a mark above all of them")
    four.nodes[3].kill()
    late.freeze()
    four.nodes[here].start()
    asked.force(part, here, left, spare, second)
    with ringfence.connect(four.nodes[here].address, timeout_s=60) as client:
        with client.producer(topic) as producer:
            producer.send(batch(5_000, 500))
        late.wake()
        audited = late.data / "audit" / "audit.log"
        until(
            lambda: audited.exists() and f"of partition {part}" in audited.read_text(), what="a line of audit"
        )
        # What is acknowledged from here on is on it.
        four.nodes[ids[spare]].kill()
        with client.producer(topic, timeout_s=60) as producer:
            producer.send(batch(6_000, 500)).result(60)
        rows = read_ids(client, topic)
    check_identity(rows, {0: [*range(100), *range(5_000, 5_500), *range(6_000, 6_500)]}, {0: 6_500})
    [line] = [json.loads(line) for line in audited.read_text().splitlines() if "give up" in line]
    assert (line["method"], line["path"], line["status"]) == ("NODE", f"partition/{part}", 200), line
    assert "(1400 rows)" in line["action"] and "chosen by force" in line["detail"], line
