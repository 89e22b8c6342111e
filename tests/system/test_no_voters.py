"""F25: every voter is down, and the data path goes on before any of them is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ringfence
from tests.harness.cluster import MEMORY, ThreeNodes
from tests.harness.load import Load
from tests.harness.loaded_cluster import grown
from tests.harness.processes import SCHEMA, NodeProcess, check_identity, cli, free_port, read_ids, until

DATA = (1, 2, 3)
"""Places of the nodes that have all partitions, and no vote."""
TOPICS = {"alone": 1, "copied": 3}
"""Replicas of each topic's partitions."""


@pytest.fixture
def four(tmp_path: Path) -> Iterator[ThreeNodes]:
    """One votes and has no partition, three have all partitions and do not vote."""
    cluster = ThreeNodes(tmp_path)
    try:
        cluster.start()
        control = f"tcp://127.0.0.1:{free_port()}"
        options = ("--control", control, "--join", cluster.controls[0], *MEMORY)
        cluster.controls.append(control)
        cluster.nodes.append(NodeProcess(tmp_path / "d", options=options).start())
        door = ("--control", cluster.controls[0])
        for place in DATA:
            assert cli("node", "demote", str(cluster.id(place)), *door).returncode == 0
        learners = ["leader", "learner", "learner", "learner"]
        until(lambda: cluster.roles(0) == sorted(learners), what="one voter")
        assert cli("node", "drain", str(cluster.id(0)), "--wait", *door).returncode == 0
        yield cluster
    finally:
        for node in cluster.nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()


def newest_index(four: ThreeNodes) -> int:
    """Of the entries that any of the three has applied."""
    found = []
    for place in DATA:
        with ringfence.connect(four.nodes[place].address, timeout_s=10) as client:
            found.append(client.status().index)
    return max(found)


def ends(four: ThreeNodes) -> dict[tuple[str, int], int]:
    """Where the rows of each partition end, told by a client that connects now."""
    with ringfence.connect(four.nodes[3].address, timeout_s=10) as client:
        return {(topic, part): end.end for topic in TOPICS for part, end in client.end_offsets(topic).items()}


def check_rows(four: ThreeNodes, loads: list[Load]) -> None:
    """A client that connects now reads every row that was acknowledged before, once and in order."""
    acknowledged = {load.producer: list(load.acknowledged) for load in loads}
    with ringfence.connect(four.nodes[3].address, timeout_s=10) as client:
        for load in loads:
            known = {load.producer: acknowledged[load.producer]}
            check_identity(read_ids(client, load.topic), known, {load.producer: load.sent})


@pytest.mark.timeout(180)
def test_without_voters_rows_are_taken_and_read_before_anything_is_back(four: ThreeNodes, soak: int) -> None:
    """F25: publishes and reads of topics with one and with three replicas; a voter stopped, then killed."""
    for topic, replication in TOPICS.items():
        placed = four.create(1, topic, partitions=3, replication=replication).partitions
        assert {part.owner for part in placed} == {four.id(place) for place in DATA}
    loads = [
        Load(four.nodes[1].address, topic, number, pause_s=0.01).start()
        for number, topic in enumerate(TOPICS)
    ]
    until(lambda: all(load.errors or len(load.acknowledged) > 500 for load in loads), what="rows")
    voter = four.nodes[0]
    harms: list[tuple[Callable[[], object], Callable[[], object]]] = [
        (voter.freeze, voter.wake),
        (voter.kill, voter.start),
    ]
    for stop, begin in harms:
        index = newest_index(four)
        stop()
        for _ in range(soak):
            before = ends(four)
            until(grown(loads, 2_000), what="rows without voters")
            assert [load.errors for load in loads] == [[], []]
            after = ends(four)
            assert all(after[place] > end for place, end in before.items()), (before, after)
            check_rows(four, loads)
        with (
            ringfence.connect(four.nodes[1].address, timeout_s=2) as client,
            pytest.raises(ringfence.RingfenceError),
        ):
            client.create_topic("late", schema=SCHEMA)
        assert newest_index(four) == index, "the metadata stood still"
        begin()
        four.create(1, f"after-{stop.__name__}", partitions=1)
    for load in loads:
        load.finish()
    assert [load.errors for load in loads] == [[], []]
    check_rows(four, loads)
