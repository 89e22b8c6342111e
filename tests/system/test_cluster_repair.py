"""Nodes that lack something: entries, their data, a sound journal. They say so, catch up, or are refused."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.native import wire
from tests.fakes.admin_api import TOPIC, send
from tests.harness.admin_http import with_http
from tests.harness.isolated_cluster import IsolatedCluster, isolated_cluster
from tests.harness.processes import (
    SCHEMA,
    NodeProcess,
    batch,
    check_identity,
    cli,
    free_port,
    read_ids,
    until,
)
from tests.harness.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FAT = {f"p{number}": "x" * 1_000 for number in range(7)}
"""Properties of a topic: a few such entries, and a journal of 64 KiB is compacted."""


@pytest.fixture(scope="module")
def started(module_folder: Path) -> Iterator[IsolatedCluster]:
    with isolated_cluster(module_folder) as world:
        yield world


@pytest.fixture
def world(started: IsolatedCluster) -> IsolatedCluster:
    started.three.until_whole()
    return started


@contextlib.contextmanager
def flipped(path: Path) -> Iterator[None]:
    """One byte in the middle of a file is another one."""
    sound = path.read_bytes()
    middle = len(sound) // 2
    path.write_bytes(sound[:middle] + bytes([sound[middle] ^ 0x40]) + sound[middle + 1 :])
    try:
        yield
    finally:
        path.write_bytes(sound)


@pytest.mark.timeout(120)
def test_a_node_that_lacks_an_entry_serves_nothing_of_it_until_it_has_it(world: IsolatedCluster) -> None:
    """Z8: what a node cannot know that it owns it neither stores nor answers for; senders wait for it."""
    three = world.three
    world.network.cut(2, [0, 1])
    try:
        until(lambda: three.led_by_one_of([0, 1]), what="a leader of the majority")
        topic = three.create(0, "unheard", partitions=3)
        mine = [part.partition for part in topic.partitions if part.owner == three.id(2)]
        assert mine
        with ringfence.connect(three.nodes[0].address, timeout_s=60) as client:
            producer = client.producer("unheard")
            future = producer.send(batch(0, 300))
            with pytest.raises(ringfence.WaitTimeoutError):
                future.result(1.5)
            assert "public/default/unheard" not in three.topics_known(2)
            world.network.heal()
            assert sum(part.rows for part in future.result(60)) == 300
            producer.close()
            rows = read_ids(client, "unheard")
    finally:
        world.network.heal()
    check_identity(rows, {0: range(300)}, {0: 300})


def ring(world: IsolatedCluster, place: int) -> set[int]:
    return {node["node"] for node in world.three.listed(place)["nodes"] if node["in_ring"]}


@pytest.mark.timeout(120)
def test_a_ring_that_grew_is_served_by_who_has_its_entry_and_by_nobody_else(
    world: IsolatedCluster, tmp_path: Path
) -> None:
    """Z8: the commit is the majority's; the node that it did not reach knows neither ring nor table."""
    three, host = world.three, world.network.hosts[0]
    options = (
        "--control",
        f"tcp://{host}:{free_port()}",
        "--join",
        three.controls[0],
        *three.nodes[0].options[2:],
    )
    before = ring(world, 2)
    world.network.cut(2, [0, 1])
    try:
        until(lambda: three.led_by_one_of([0, 1]), what="a leader of the majority")
        with NodeProcess(tmp_path / "d", options=options, host=host, prefix=three.nodes[0].prefix) as fourth:
            number = fourth.ready["node"]
            until(lambda: ring(world, 0) == ring(world, 1) == {*before, number}, what="the majority's ring")
            topic = three.create(0, "grown", partitions=8)
            assert number in {part.owner for part in topic.partitions}
            assert ring(world, 2) == before
            with RawClient(three.nodes[2].address) as cut:
                assert cut.ask(wire.Opcode.TABLE, topic=topic.topic).code == wire.Code.UNKNOWN_TOPIC
            world.network.heal()
            until(lambda: ring(world, 2) == {*before, number}, what="its entry at who was cut off")
            three.until_equal()
            with RawClient(three.nodes[0].address) as one, RawClient(three.nodes[2].address) as other:
                tables = [client.ask(wire.Opcode.TABLE, topic=topic.topic).body for client in (one, other)]
            assert tables[0] == tables[1]
            with ringfence.connect(three.nodes[1].address, timeout_s=30) as client:
                client.delete_topic("grown")
            removed = cli("node", "remove", str(number), "--control", three.controls[0])
            assert removed.returncode == 0, removed.stderr
    finally:
        world.network.heal()
    until(lambda: ring(world, 2) == before, what="the ring that was")


@pytest.mark.timeout(120)
def test_a_node_that_was_away_for_long_gets_a_snapshot(world: IsolatedCluster) -> None:
    three, away = world.three, world.three.nodes[2]
    away.kill()
    with ringfence.connect(three.nodes[0].address, timeout_s=60) as client:
        for number in range(14):
            client.create_topic(f"fat-{number}", schema=SCHEMA, key=["id"], partitions=1, properties=FAT)
    until(lambda: "compacted" in three.nodes[three.leader()].log.read_text(), what="a compacted journal")
    away.start()
    three.until_whole()
    three.until_equal()
    assert "snapshot installed" in away.log.read_text()
    assert "public/default/fat-13" in three.topics(2)


@pytest.mark.timeout(120)
def test_damaged_metadata_is_refused_untouched_and_a_wiped_node_joins_as_another(
    world: IsolatedCluster, tmp_path: Path
) -> None:
    three, hurt = world.three, world.three.nodes[2]
    assert hurt.stop() == 0
    for name in ("journal", "snapshot"):
        path = hurt.data / "metadata" / name
        with flipped(path):
            damaged = path.read_bytes()
            with pytest.raises(AssertionError, match=f"exit code {Exit.DAMAGE}") as refused:
                hurt.start()
            assert "with an empty directory and --join" in str(refused.value)
            assert path.read_bytes() == damaged
    # With its directory gone it joins as a new node, of a new store, and learns before it votes.
    host, before = world.network.hosts[2], three.id(2)
    options = ("--control", f"tcp://{host}:{free_port()}", *hurt.options[2:])
    with NodeProcess(tmp_path / "wiped", options=options, host=host, prefix=hurt.prefix) as wiped:
        assert wiped.ready["node"] != before
        assert wiped.ready["store"] != hurt.ready["store"]
        until(lambda: role_of(world, wiped.ready["node"]) == "learner", what="it learns")
        until(lambda: role_of(world, wiped.ready["node"]) == "voter", what="it votes")
        # What the other store holds waits for that store: nothing of it is given to the new one.
        assert role_of(world, before) != "leader"
        hurt.start()
        until(lambda: three.life(2, seen_by=0) == "LIVE", what="the old one lives again")
    removed = cli("node", "demote", str(wiped.ready["node"]), "--control", three.controls[0])
    assert removed.returncode == 0, removed.stderr
    until(lambda: role_of(world, before) != "learner", what="the old one votes again")
    removed = cli("node", "remove", str(wiped.ready["node"]), "--control", three.controls[0])
    assert removed.returncode == 0, removed.stderr


def role_of(world: IsolatedCluster, node: int) -> str:
    nodes = world.three.listed(0)["nodes"]
    return next((known["role"] for known in nodes if known["node"] == node), "")


@pytest.mark.timeout(60)
def test_a_cluster_below_its_minimum_size_refuses_the_first_topic(tmp_path: Path) -> None:
    control = f"tcp://127.0.0.1:{free_port()}"
    one = NodeProcess(tmp_path / "one", options=("--control", control, "--nodes-min", "2"))
    http = with_http(one)
    with one:
        assert send(http, "GET", "/admin/status").body["table"] == "UNASSIGNED"
        assert send(http, "GET", "/admin/ring").body["members"] == []
        refused = send(
            http, "POST", "/admin/topics", json.dumps(TOPIC).encode(), {"content-type": "application/json"}
        )
        assert (refused.status, refused.slug) == (409, "too-few-replicas")
        with (
            ringfence.connect(one.address, timeout_s=1) as client,
            pytest.raises(ringfence.RetriableError, match="waits for 2"),
        ):
            client.create_topic("early", schema=SCHEMA, key=["id"])
        with (
            NodeProcess(tmp_path / "two", options=("--join", control)),
            ringfence.connect(one.address, timeout_s=30) as client,
        ):
            created = client.create_topic("early", schema=SCHEMA, key=["id"], partitions=2)
            assert len({part.owner for part in created.partitions}) == 2
            assert send(http, "GET", "/admin/status").body["table"] == "ASSIGNED"
