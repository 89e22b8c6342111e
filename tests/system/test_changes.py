"""Partitions change their owners under load, planned and not, and no producer sees more than a pause."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.native import messages, wire
from tests.harness.cluster import ThreeNodes
from tests.harness.load import Load
from tests.harness.loaded_cluster import check, create, grown, moved, publishing
from tests.harness.processes import NodeProcess, batch, cli, free_port, read_ids, until
from tests.harness.raw_client import RawClient, RawTopic


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path)
    try:
        yield cluster.start()
    finally:
        cluster.kill_all()


def pause_ms(loads: list[Load], since_s: float) -> float:
    return max(load.pause_s(since_s) for load in loads) * 1000


def rows_of_partition(three: ThreeNodes, partition: int, place: int) -> list[tuple[int, int]]:
    """(producer, id) of each row that the node at `place` gives of its partition."""
    with ringfence.connect(three.nodes[place].address, timeout_s=30) as client:
        parts = list(client.read("t", partition=partition))
    return [
        pair
        for part in parts
        for pair in zip(part["producer"].to_pylist(), part["id"].to_pylist(), strict=True)
    ]


def end_offset(three: ThreeNodes, partition: int) -> int:
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        return next(part.end_offset for part in client.topic("t").partitions if part.partition == partition)


def check_redirect(three: ThreeNodes, topic: int, index: int, old: int, new: int) -> None:
    """The old owner takes nothing more, and names the new one of just this partition."""
    with RawClient(three.nodes[old].address) as client:
        raw = RawTopic.existing(client, topic, "t")
        answer = raw.publish(batch(0, 1, producer=99), 0, index)
    assert (answer.status, answer.reason) == (wire.Status.REDIRECT, wire.RedirectReason.NOT_OWNER)
    body = answer.read(messages.Redirected)
    assert (body.owner, body.addresses) == (three.id(new), [three.nodes[new].address])


def test_a_partition_moves_under_load_and_comes_back(three: ThreeNodes) -> None:
    """Z3: producers at all nodes. The target copies; the source keeps its rows, and gets what came since.

    In the end it has, in the partition that moved, exactly the rows that were acknowledged there.
    """
    topic = create(three, 3, 1)
    loads = publishing(three, [0, 1, 2])
    part = topic.partitions[0]
    home = next(place for place in range(3) if three.id(place) == part.owner)
    away = (home + 1) % 3
    copied: list[int] = []
    there = ("start", "move", "--move", f"{part.partition}:{three.id(away)}")
    for way, source, target in ((there, home, away), (("reverse",), away, home)):
        began_s = time.monotonic()
        told = moved(three, "rebalance", *way)
        end = end_offset(three, part.partition)
        until(grown(loads, 500), what="more rows")
        [move] = told["moves"]
        copied.append(move["rows"])
        print(
            f"move of {move['rows']} rows, {move['bytes']} bytes: {told['ended_ms'] - told['started_ms']} ms,"
            f" gap {move['gap_us']} us, longest pause of a producer {pause_ms(loads, began_s):.0f} ms"
        )
        check_redirect(three, topic.topic, 0, source, target)
        assert sum(copied) <= end, "the rows of the first way are there already"
    print(f"{check(three, loads, 2)} rows acknowledged, each stored once and in order")
    for load in loads:
        assert len(load.acknowledged) == load.sent
    part_rows = rows_of_partition(three, part.partition, home)
    key = ringfence.slots(batch(0, max(load.sent for load in loads)), key=["id"])
    here = {row for row, slot in enumerate(key) if part.lo <= slot <= part.hi}
    assert len(part_rows) == len(set(part_rows))
    assert set(part_rows) == {
        (load.producer, row) for load in loads for row in load.acknowledged if row in here
    }
    # What came back is on the disk that it had left before.
    three.nodes[home].kill()
    three.nodes[home].start()
    check(three, loads, 2)


def test_a_partition_moves_whose_beginning_is_gone(three: ThreeNodes) -> None:
    """Head and producer table travel: the producer goes on; what is left is read, also after a restart."""
    topic = create(three, 1, 1, retention_bytes=1 << 20)
    [load] = publishing(three, [0])
    [part] = topic.partitions
    home = next(place for place in range(3) if three.id(place) == part.owner)
    away = (home + 1) % 3

    def begin() -> int:
        with ringfence.connect(three.nodes[away].address, timeout_s=30) as client:
            return client.end_offsets("t")[part.partition].start

    until(lambda: begin() > 0, what="a log start that moved")
    moved(three, "rebalance", "start", "move", "--move", f"{part.partition}:{three.id(away)}")
    until(grown([load], 1_000), what="rows after the move")
    load.finish()
    assert load.errors == []
    for _ in range(2):
        with ringfence.connect(three.nodes[home].address, timeout_s=30) as client:
            rows = [row for _, row in read_ids(client, "t")[part.partition]]
        assert rows[0] > 0
        assert rows == list(range(rows[0], load.sent)), "what is left has neither gaps nor repeats"
        three.nodes[away].kill()
        three.nodes[away].start()


def test_a_partition_moves_between_nodes_with_the_smallest_segments(tmp_path: Path) -> None:
    """Pieces of a copy are longer than the largest body that such a node takes of clients."""
    rows, step = 300_000, 1_000
    three = ThreeNodes(tmp_path, options=("--segment-bytes", "1MiB"))
    try:
        three.start()
        [part] = create(three, 1, 1).partitions
        with (
            ringfence.connect(three.nodes[0].address, timeout_s=30) as client,
            client.producer("t") as producer,
        ):
            for first in range(0, rows, step):
                producer.send(batch(first, step))
        home = next(place for place in range(3) if three.id(place) == part.owner)
        away = (home + 1) % 3
        told = moved(three, "rebalance", "start", "move", "--move", f"{part.partition}:{three.id(away)}")
        [move] = told["moves"]
        assert move["bytes"] > 4 << 20, "several pieces"
        with ringfence.connect(three.nodes[away].address, timeout_s=30) as client:
            assert read_ids(client, "t") == {part.partition: [(0, row) for row in range(rows)]}
    finally:
        three.kill_all()


def test_a_node_is_drained_under_load(three: ThreeNodes) -> None:
    """The node leads the metadata, too: it gives the lead away."""
    create(three, 6, 1)
    drained = three.leader()
    loads = publishing(three, [0, 1])
    began_s = time.monotonic()
    told = moved(three, "node", "drain", str(three.id(drained)))
    print(
        f"drain: {len(told['moves'])} moves, {told['ended_ms'] - told['started_ms']} ms,"
        f" longest pause of a producer {pause_ms(loads, began_s):.0f} ms"
    )
    with ringfence.connect(three.nodes[drained].address, timeout_s=30) as client:
        owners = {part.owner for part in client.topic("t").partitions}
    assert owners == {three.id(place) for place in range(3)} - {three.id(drained)}
    until(lambda: three.leader() != drained, what="another leader")
    until(grown(loads, 500), what="rows after the drain")
    print(f"{check(three, loads, drained)} rows acknowledged, each stored once and in order")


def test_an_owner_is_killed_and_its_partitions_go_on_elsewhere(three: ThreeNodes) -> None:
    """Three replicas: whoever has every acknowledged row takes over under a new epoch."""
    before = {part.partition: part for part in create(three, 3, 3).partitions}
    leader = three.leader()
    victim = next(place for place in range(3) if place != leader)
    others = [place for place in range(3) if place != victim]
    loads = publishing(three, others)
    began_s = time.monotonic()
    three.nodes[victim].kill()
    until(grown(loads, 1_000), what="rows after the kill")
    print(f"kill -9 of an owner: longest pause of a producer {pause_ms(loads, began_s):.0f} ms")
    rows = check(three, loads, others[0])
    with ringfence.connect(three.nodes[others[0]].address, timeout_s=30) as client:
        after = {part.partition: part for part in client.topic("t").partitions}
    lost = [number for number, part in before.items() if part.owner == three.id(victim)]
    assert lost
    for number in lost:
        assert after[number].owner != three.id(victim)
        assert after[number].epoch > before[number].epoch
    print(f"{rows} rows acknowledged, each stored once and in order")


def test_an_owner_that_was_paused_tells_no_old_tales_and_takes_nothing(three: ThreeNodes) -> None:
    """It wakes with an open partition, and others have gone on: ends and batches wait for a quorum's word."""
    topic = create(three, 1, 3)
    [part] = topic.partitions
    old = next(place for place in range(3) if three.id(place) == part.owner)
    other = (old + 1) % 3
    [load] = publishing(three, [other])
    with RawClient(three.nodes[old].address) as client:
        raw = RawTopic.existing(client, topic.topic, "t")
        three.nodes[old].freeze()
        until(grown([load], 1_000), what="rows with another owner")
        load.finish()
        assert load.errors == []
        acknowledged = len(load.acknowledged)
        place = raw.place()
        three.nodes[old].wake()
        # It may close the connection first, over which it was deaf for so long, and with it what was sent.
        answers = []
        for _ in range(20):
            client.send(wire.Opcode.END_OFFSETS, topic=place["topic"], partition=place["partition"])
            answers.append(client.receive(500))
    with RawClient(three.nodes[old].address) as client:
        body = batch(0, 1, producer=99).serialize().to_pybytes()
        stale = client.ask(wire.Opcode.PUBLISH, body, **raw.fields(1, 0))
    told = [answer for answer in answers if answer is not None]
    assert told
    for answer in told:
        assert answer.status != wire.Status.OK or answer.header.end_offset >= acknowledged, answer
    assert stale.status != wire.Status.OK, stale
    check(three, [load], other)


def test_a_drain_goes_on_when_the_only_node_that_could_take_what_is_left_is_back(
    three: ThreeNodes, tmp_path: Path
) -> None:
    """Four nodes, three replicas: with one of them dead, a drained one cannot give anything away."""
    create(three, 4, 3)
    stranded_drain(three)
    spare = NodeProcess(
        tmp_path / "d", options=("--control", f"tcp://127.0.0.1:{free_port()}", "--join", three.controls[0])
    )
    with spare:
        number = int(spare.ready["node"])
        until(lambda: life_of(three, number) == "LIVE", what="a fourth member")
        moved(three, "rebalance", "start", "add_node", "--node", str(number))
        spare.kill()
        until(lambda: life_of(three, number) == "FAILED", what="its failure")
        leader = three.leader()
        said = cli("status", address=three.nodes[leader].address).stdout
        assert f" 4, FAILED: {number} (" in said, "any node tells it"
        drained = next(place for place in range(3) if place != leader)
        door = ("--control", three.controls[leader])
        assert cli("node", "drain", str(three.id(drained)), *door).returncode == 0

        def told() -> dict[str, Any]:
            shown: dict[str, Any] = json.loads(cli("rebalance", "status", "--json", *door).stdout)
            return shown

        until(lambda: f"node {number} is FAILED" in told()["waits"], what="a run that waits for it")
        assert (told()["state"], told()["action"]) == ("RUNNING", "drain")
        assert "waiting for: node" in cli("rebalance", "status", *door).stdout
        spare.start()
        until(lambda: told()["state"] == "IDLE", what="the end of the drain")
        end = told()
        assert (end["outcome"], end["held"], end["waits"]) == ("DONE", 0, []), end
        assert end["moves"], "it was this run that moved them"


def stranded_drain(three: ThreeNodes) -> None:
    """Three replicas, three nodes: nobody else may take what a drained one has."""
    first, door = str(three.id(0)), ("--control", three.controls[0])
    ended = cli("node", "drain", first, "--wait", "--json", *door)
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["outcome"], told["held"]) == (Exit.DEGRADED, "DONE", 4)
    said = cli("rebalance", "status", *door).stdout
    assert f"node {first} still has 4 replicas\n" in said
    assert "4 replicas left" in said
    assert cli("node", "undrain", first, *door).returncode == 0
    assert cli("node", "remove", first, *door).returncode == Exit.REFUSED
    told = audited(three.nodes[0])
    assert [line["action"] for line in told] == ["rebalance start drain", "node undrain", "node remove"]
    assert [line["status"] for line in told] == [200, 200, 422]
    assert {line["who"] for line in told} == {""}
    assert 0 < told[0]["index"] < told[1]["index"] > told[2]["index"] == 0
    assert "replicas" in told[2]["detail"], "why not"
    assert "replicas" not in cli("rebalance", "status", *door).stdout, "nothing is to be moved any more"


def audited(node: NodeProcess) -> list[dict[str, Any]]:
    """Lines of its audit log: who asks at the control address has an answer when his is on disk."""
    told = [json.loads(line) for line in (node.data / "audit" / "audit.log").read_text().splitlines()]
    return [line for line in told if line["method"] == "CONTROL"]


def life_of(three: ThreeNodes, number: int) -> str:
    nodes = three.listed(three.leader())["nodes"]
    return next((node["life"] for node in nodes if node["node"] == number), "")
