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


class Operator:
    """The commands, and a topic of three replicas, one of which the fourth node has."""

    def __init__(self, four: Three, capsys: pytest.CaptureFixture[str]) -> None:
        self._four, self._capsys = four, capsys
        self.ids = {four.id(place): place for place in range(4)}

    def told(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        ended = run([*arguments, "--json"])
        said = self._capsys.readouterr()
        assert ended == code, said
        shown: dict[str, Any] = json.loads(said.out) if said.out else {}
        return shown

    def shown(self, number: int, place: int) -> dict[str, Any]:
        return self.told("partition", "show", str(number), "--control", self._four.controls[place])

    def place(self, client: ringfence.Client) -> None:
        """`others`: two replicas of `part` that are not on the fourth node; `spare` has none."""
        self.number, nodes = 0, list[int]()
        while self._four.id(3) not in nodes:
            self.number += 1
            created = client.create_topic(
                f"t{self.number}", schema=SCHEMA, key=["id"], partitions=1, replication=3
            )
            self.part = created.partitions[0].partition
            self.known = self.shown(self.part, 0)
            nodes = [replica["node"] for replica in self.known["replicas"]]
        self.topic = f"t{self.number}"
        self.others = [node for node in nodes if node != self._four.id(3)]
        [self.spare] = [node for node in self.ids if node not in nodes]

    def level(self, here: int) -> None:
        control = self._four.controls[here]
        until(lambda: self.told("fsck", "--cluster", "--control", control)["compared"] == self.number,
              what="level replicas")  # fmt: skip

    def force(self, left: int, second: int) -> None:
        """Make the replica that is left the owner, beside the spare node and one that may come back."""
        here = self.ids[left]

        def answered() -> bool:
            change = self.shown(self.part, here)["change"] or {"candidates": []}
            return any(known["node"] == left and known["records"] for known in change["candidates"])

        until(answered, what="the replica that is left to answer its fence")
        choice = ("partition", "force-owner", str(self.part), "--owner", str(left), "--control",
                  self._four.controls[here])  # fmt: skip
        names = [option for node in (left, self.spare, second) for option in ("--replica", str(node))]
        accepted = self.told(*choice, *names, "--yes")["accepted"]
        assert "are lost" in accepted
        until(lambda: self.shown(self.part, here)["change"] is None, what="an open owner")


def test_a_partition_without_a_majority_serves_again_with_what_one_replica_has(
    four: Three, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Operator(four, capsys)
    with ringfence.connect(four.nodes[0].address, timeout_s=30) as client:
        operator.place(client)
        with client.producer(operator.topic) as producer:
            producer.send(batch(0, 2_000))
            producer.flush()
    # The fourth dies, and another replica, so that the owner is among them and one replica is left.
    others, owner = operator.others, operator.known["owner"]
    second = owner if owner in others else others[0]
    [left] = [node for node in others if node != second]
    here = operator.ids[left]
    operator.level(here)
    for node in (four.id(3), second):
        four.nodes[operator.ids[node]].kill()
    operator.force(left, second)
    with ringfence.connect(four.nodes[here].address, timeout_s=30) as client:
        with client.producer(operator.topic) as producer:
            producer.send(batch(2_000, 500))
            producer.flush()
        rows = read_ids(client, operator.topic)
    check_identity(rows, {0: range(2_500)}, {0: 2_500})
    assert sorted(replica["node"] for replica in operator.shown(operator.part, here)["replicas"]) == sorted(
        [left, operator.spare, second]
    )


def test_a_name_that_a_forced_owner_never_heard_of_is_not_taken_for_a_new_one(
    four: Three, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Operator(four, capsys)
    with ringfence.connect(four.nodes[0].address, timeout_s=30) as client:
        operator.place(client)
        with client.producer(operator.topic) as producer:
            producer.send(batch(0, 100))
            producer.flush()
    left, second = operator.others
    here = operator.ids[left]
    operator.level(here)
    # Else it would vote in the place of the one that is down, and be missed when it dies itself.
    operator.told("node", "demote", str(four.id(3)), "--control", four.controls[here])
    four.nodes[here].kill()
    with (
        ringfence.connect(four.nodes[operator.ids[operator.spare]].address, timeout_s=30) as client,
        client.producer(operator.topic, name="loader", timeout_s=30) as loader,
    ):
        loader.send(batch(100, 100), number=1).result(30)
    for node in (four.id(3), second):
        four.nodes[operator.ids[node]].kill()
    four.nodes[here].start()
    operator.force(left, second)
    with ringfence.connect(four.nodes[here].address, timeout_s=30) as client:
        for _ in range(2):
            with pytest.raises(ringfence.ResumeUnknownError) as caught:
                client.producer(operator.topic, name="loader")
            assert (caught.value.producer, caught.value.partitions) == ("loader", [operator.part])
        with client.producer(operator.topic, name="loader", accept_fresh_start=True) as loader:
            assert not loader.resume
            loader.send(batch(100, 100), number=1).result(30)
        assert client.producer(operator.topic, name="loader").resume[operator.part].send == 1
        rows = read_ids(client, operator.topic)
    check_identity(rows, {0: range(200)}, {0: 200})
