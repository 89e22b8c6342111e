"""Three real processes agree on one metadata log, and lose nothing of it when they are killed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zmq

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.transport import envelope
from ringfence.control.transport.envelope import Envelope, Kind
from tests.harness.cluster import MEMORY, THREE_VOTERS, ThreeNodes, names
from tests.harness.processes import (
    PROGRAM,
    SCHEMA,
    NodeProcess,
    batch,
    check_identity,
    cli,
    free_port,
    read_ids,
    until,
)

REMOVED = "was removed from the cluster by entry "
WAITS = "Only another node knows whether the entry was committed"


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path)
    try:
        yield cluster.start()
    finally:
        cluster.kill_all()


def test_a_topic_is_created_on_one_placed_over_all_and_known_to_all(three: ThreeNodes) -> None:
    created = three.create(1, "t")
    owners = [partition.owner for partition in created.partitions]
    assert sorted(owners.count(node.ready["node"]) for node in three.nodes) == [2, 2, 2]
    assert owners[:3] == owners[3:], "round-robin (J3)"
    for place in range(3):
        until(lambda place=place: three.topics(place) == names("t"), what=f"the topic on node {place}")
    with ringfence.connect(three.nodes[2].address) as client:
        producer = client.producer("t")
        for start in range(0, 3_000, 1_000):
            producer.send(batch(start, 1_000))
        producer.flush()
        producer.close()
    with ringfence.connect(three.nodes[0].address) as client:
        rows = read_ids(client, "t")
        assert sum(partition.end_offset for partition in client.topic("t").partitions) == 3_000
    check_identity(rows, {0: range(3_000)}, {0: 3_000})
    three.until_equal()
    owned = {partition.partition: partition.owner for partition in created.partitions}
    with ringfence.connect(three.nodes[1].address) as client, client.producer("t") as producer:

        def all_tell() -> bool:
            """Heartbeats carry what each owner appends to the leader, whoever is asked."""
            producer.send(batch(3_000, 1_000))
            done = cli("rebalance", "status", "--control", three.controls[2], "--json")
            loads = json.loads(done.stdout)["loads"]
            named = {one["partition"]: load["node"] for load in loads for one in load["busiest"]}
            return len(loads) == 3 and named == owned and all(load["requests_s"] for load in loads)

        until(all_tell, what="loads of all nodes")


def test_metadata_goes_on_after_a_kill_of_the_leader(three: ThreeNodes) -> None:
    before = three.placed(0, three.create(0, "before").name)
    leader = three.leader()
    rest = [place for place in range(3) if place != leader]
    three.nodes[leader].kill()
    # How long it takes is a figure of a benchmark, not of a test on a machine that others use.
    until(
        lambda: three.listed(rest[0])["leader"] in {three.nodes[place].ready["node"] for place in rest},
        what="a new leader",
    )
    with ringfence.connect(three.nodes[rest[1]].address) as client:
        client.create_topic("after", schema=SCHEMA, key=["id"], partitions=3)
    for place in rest:
        until(lambda place=place: three.topics(place) == names("after", "before"), what="both topics")
        until(
            lambda place=place: three.life(leader, seen_by=place) == "FAILED", what="its failure in the log"
        )
        assert three.placed(place, "before") == before, "no live owner moves (F18)"
    members = [[(node["node"], node["life"]) for node in three.listed(place)["nodes"]] for place in rest]
    assert members[0] == members[1], "equal member lists (J1)"
    three.nodes[leader].restart()
    until(lambda: three.topics(leader) == names("after", "before"), what="both topics after the restart")


def test_all_killed_and_restarted_keep_their_metadata(three: ThreeNodes) -> None:
    for number in range(5):
        three.create(number % 3, f"t{number}", partitions=2)
    before = [three.placed(0, f"t{number}") for number in range(5)]
    with ringfence.connect(three.nodes[0].address) as client, client.producer("t0") as producer:
        producer.send(batch(0, 300)).result(30)
    three.kill_all()
    three.restart_all()
    for place in range(3):
        until(lambda place=place: len(three.topics(place)) == 5, what=f"topics on node {place}")
        for number, placed in enumerate(before):
            now = three.placed(place, f"t{number}")
            assert {part: owner for part, (owner, _) in now.items()} == {
                part: owner for part, (owner, _) in placed.items()
            }, "owners are durable (J3)"
            assert all(now[part][1] > epoch for part, (_, epoch) in placed.items()), "under new epochs"
    with ringfence.connect(three.nodes[2].address, timeout_s=30) as client:
        check_identity(read_ids(client, "t0"), {0: range(300)}, {0: 300})
    three.create(2, "more", partitions=1)


def test_a_node_that_was_alone_becomes_the_first_of_a_cluster(tmp_path: Path) -> None:
    """Its directory, with what it has; rows that come in at the other node go on behind them."""
    alone = NodeProcess(tmp_path / "a")
    with alone, ringfence.connect(alone.address) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=4)
        with client.producer("t") as producer:
            producer.send(batch(0, 1_000)).result(30)
    before, control = alone.ready, f"tcp://127.0.0.1:{free_port()}"
    alone.options = ("--control", control)
    with alone, NodeProcess(tmp_path / "b", options=("--join", control)) as second:
        for kept in ("cluster", "history", "store", "node"):
            assert alone.ready[kept] == before[kept], kept
        assert (second.ready["cluster"], second.ready["history"]) == (before["cluster"], before["history"])
        with ringfence.connect(second.address, timeout_s=30) as client:
            with client.producer("t") as producer:
                producer.send(batch(1_000, 1_000)).result(30)
            check_identity(read_ids(client, "t"), {0: range(2_000)}, {0: 2_000})

            def in_ring() -> list[bool]:
                listed = json.loads(cli("node", "list", "--control", control, "--json").stdout)
                return [node["in_ring"] for node in listed["nodes"]]

            until(lambda: in_ring() == [True, True], what="both in the ring")
            created = client.create_topic("both", schema=SCHEMA, key=["id"], partitions=2)
        assert {part.owner for part in created.partitions} == {before["node"], second.ready["node"]}


def test_one_alone_of_three_neither_leads_nor_takes_commands(three: ThreeNodes) -> None:
    for place in (1, 2):
        three.nodes[place].kill()
    until(lambda: three.listed(0)["leader"] == 0, what="no leader for the one that is left")
    with (
        ringfence.connect(three.nodes[0].address, timeout_s=2) as client,
        pytest.raises(ringfence.RingfenceError),
    ):
        client.create_topic("lonely", schema=SCHEMA, key=["id"])
    for place in (1, 2):
        three.nodes[place].start()
    until(lambda: three.listed(0)["leader"] != 0, what="a leader again")


def test_a_node_is_demoted_promoted_and_removed(three: ThreeNodes) -> None:
    node = three.nodes[2].ready["node"]
    assert cli("node", "demote", str(node), "--control", three.controls[0]).returncode == 0
    until(lambda: "learner" in three.roles(0), what="a learner")
    three.create(0, "t", partitions=1)
    until(lambda: three.topics(2) == names("t"), what="the learner serves what is committed")
    with ringfence.connect(three.nodes[2].address) as client:
        client.delete_topic("t")
    assert cli("node", "promote", str(node), "--control", three.controls[1]).returncode == 0
    until(lambda: three.roles(0) == THREE_VOTERS, what="a voter again")
    assert cli("node", "remove", str(node), "--control", three.controls[0]).returncode == 0
    until(lambda: len(three.listed(0)["nodes"]) == 2, what="two members")

    def health() -> int:
        return cli("status", "--address", three.nodes[0].address).returncode

    until(lambda: health() == Exit.DEGRADED, what="it goes on, which its former cluster tells")
    said = cli("status", "--address", three.nodes[2].address)
    assert said.returncode == Exit.DEGRADED
    assert f"! node {node} was removed from the cluster by entry " in said.stdout
    assert "stop this process" in said.stdout
    three.nodes[2].stop()
    until(lambda: health() == 0, what="and tells no more when it is stopped")
    assert cli("node", "remove", "77", "--control", three.controls[0]).returncode == Exit.REFUSED


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    """Two nodes, of which the second was removed, runs still, and says so."""
    controls = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    first = NodeProcess(tmp_path / "a", options=("--control", controls[0], *MEMORY))
    second = NodeProcess(tmp_path / "b", options=("--control", controls[1], "--join", controls[0], *MEMORY))
    with first, second:
        number = str(second.ready["node"])
        drained = cli("node", "drain", number, "--wait", "--control", controls[0])
        assert drained.returncode == 0, drained.stderr
        removed = cli("node", "remove", number, "--control", controls[0])
        assert removed.returncode == 0, removed.stderr
        until(lambda: REMOVED in cli("status", "--address", second.address).stdout, what="it knows")
        yield first, second


def test_a_removed_node_that_is_started_again_says_so_and_ends(two: tuple[NodeProcess, NodeProcess]) -> None:
    first, second = two
    said = next(
        line for line in cli("status", "--address", second.address).stdout.splitlines() if REMOVED in line
    ).removeprefix("! ")
    second.stop()
    serve = ("serve", "--data", str(second.data), "--listen", second.address)
    for options in (second.options, second.options[:2], ()):
        again = cli(*serve, *options, timeout_s=20)
        assert (again.returncode, again.stdout) == (Exit.STORAGE, "")
        assert said in again.stderr
    first.kill()  # nobody is left who can tell whether the entry was committed
    with second.log.open("wb") as log, subprocess.Popen([PROGRAM, *serve], stderr=log) as waiting:
        # What it knows to be committed lags; where it reaches that entry, it needs nobody else.
        until(lambda: WAITS in second.log.read_text() or waiting.poll() is not None, what="why it waits")
        first.start()
        assert waiting.wait(30) == Exit.STORAGE
    assert said in second.log.read_text()


def test_a_node_of_another_cluster_is_refused(three: ThreeNodes, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "foreign"):
        pass
    done = cli(
        "serve",
        "--data",
        str(tmp_path / "foreign"),
        "--listen",
        "tcp://127.0.0.1:0",
        "--join",
        three.controls[0],
    )
    assert done.returncode == Exit.STORAGE, done.stderr
    assert "belongs to cluster" in done.stderr


def test_garbage_on_the_control_socket_hurts_nobody(three: ThreeNodes) -> None:
    leader = three.leader()
    cluster = bytes.fromhex(three.nodes[0].ready["cluster"])
    me = three.nodes[leader].ready["node"]
    deep = b"\x91" * 100_000
    good = Envelope(envelope.VERSION, Kind.RAFT, cluster, 4_711, me, "", 0, b"")

    def frame(**changes: Any) -> bytes:
        return envelope.encode(msgspec.structs.replace(good, **changes))

    frames = [
        b"",
        b"\0",
        b"garbage" * 1_000,
        deep,
        bytes(1 << 20),
        frame(version=99),
        frame(cluster=b"x" * 16),
        frame(to=me + 1),
        frame(body=deep),
        frame(body=b"\xc1"),
        frame(kind=Kind.BEAT, body=deep),
        frame(kind=Kind.CHUNK, body=b"\x94\x01\x00\x01\xc4\x02xx"),
        frame(kind=Kind.CHUNK, body=deep),
        frame(kind=Kind.ASK, cluster=b"", body=deep),
        frame(kind=Kind.ASK, body=b"\x80"),
        frame(kind=Kind.ANSWER),
        frame(kind=Kind.FOREIGN),
        frame(kind=Kind.BEAT, body=b""),
    ]
    with zmq.Context() as context, context.socket(zmq.DEALER) as place:
        place.setsockopt(zmq.LINGER, 1_000)
        place.connect(three.controls[leader])
        for _ in range(20):
            for data in frames:
                place.send(data)
            place.send_multipart([b"two", b"frames"])
    with zmq.Context() as context, context.socket(zmq.DEALER) as place:
        place.setsockopt(zmq.LINGER, 1_000)
        place.connect(three.controls[leader])
        place.send(bytes(envelope.ENVELOPE_BYTES_MAX + 1))  # libzmq ends the connection
        time.sleep(0.2)
    three.create(leader, "afterwards")
    assert all(three.alive(place) for place in range(3))
    for number in range(3):
        until(lambda number=number: three.topics(number) == names("afterwards"), what="the topic")


def test_dev_runs_a_cluster_until_it_is_told_to_stop(tmp_path: Path) -> None:
    import signal
    import subprocess

    from tests.harness.processes import PROGRAM

    for round_number in range(2):
        command = [str(PROGRAM), "dev", "--nodes", "3", "--data", str(tmp_path / "dev"), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            with ringfence.connect(told["nodes"][2]["address"]) as client:
                if round_number == 0:
                    client.create_topic("kept", schema=SCHEMA, key=["id"], partitions=3)
                assert [topic.name for topic in client.topics()] == names("kept")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        for node in told["nodes"]:
            assert not Path(f"/proc/{node['pid']}").exists()


@pytest.mark.timeout(120)
def test_the_demo_of_a_cluster_loses_neither_rows_nor_commands() -> None:
    done = cli("dev", "--nodes", "3", "--demo", "--scale", "0.005", "--json", timeout_s=110)
    assert done.returncode == 0, done.stderr
    scenes = {scene["scene"]: scene["seen"] for scene in map(json.loads, done.stdout.splitlines())}
    assert scenes["a topic is placed on all nodes"] == "6 partitions on 3 nodes"
    assert "no error" in scenes["the rest to partitions of live nodes, immediately"]
    assert scenes["kill -9 of the leader"] != scenes["a new leader accepts commands"]
    assert len({seen for scene, seen in scenes.items() if scene.startswith("all rows through")}) == 1


def with_a_dead_owner(three: ThreeNodes, topic: str, folder: Path) -> tuple[Path, NodeProcess, NodeProcess]:
    """A file of 1,000 rows for a topic over all nodes; one that serves, and one that does not any more."""
    three.create(0, topic, partitions=6)
    file = folder / "rows.parquet"
    pq.write_table(pa.Table.from_batches([batch(0, 1_000)]), file)
    three.nodes[2].kill()
    return file, three.nodes[0], three.nodes[2]


def test_a_file_that_is_stored_in_part_is_not_said_to_be_worth_another_try(
    three: ThreeNodes, tmp_path: Path
) -> None:
    """The rows of partitions whose owner is gone are not stored; the same command would double the others."""
    file, alive, dead = with_a_dead_owner(three, "torn", tmp_path)
    done = cli("publish", "torn", str(file), "--timeout", "4", address=alive.address)
    assert done.returncode == Exit.PARTLY, done.stderr
    with ringfence.connect(alive.address) as client:
        parts = [part for part in client.topic("torn").partitions if part.owner != dead.ready["node"]]
        stored = client.count("torn", partition=[part.partition for part in parts])
    assert 0 < stored < 1000
    told, why = done.stderr.strip().splitlines()[-2:]
    assert told == f"torn: at least {stored} rows are on disk"
    assert f"{stored} rows in {len(parts)} partitions are on disk, the other rows are not" in why
    assert "would store these rows twice" in why
    # Of which nothing is stored is worth another try; and its time-out is that of its beginning, too.
    began = time.monotonic()
    done = cli("publish", "torn", str(file), "--timeout", "4", address="tcp://127.0.0.1:9")
    assert (done.returncode, time.monotonic() - began < 20) == (Exit.UNREACHABLE, True), done.stderr
    dead.restart()
    three.until_whole()


def test_a_file_of_a_scope_is_stored_whole_or_not_at_all_and_once_however_often_it_is_sent(
    three: ThreeNodes, tmp_path: Path
) -> None:
    file, alive, dead = with_a_dead_owner(three, "whole", tmp_path)

    def publish() -> subprocess.CompletedProcess[str]:
        scope = ("--scope", "nightly", "--epoch", "7", "--timeout", "4")
        return cli("publish", "whole", str(file), *scope, address=alive.address)

    done = publish()
    assert done.returncode == Exit.UNREACHABLE, done.stderr
    dead.restart()
    until(lambda: publish().returncode == 0, what="the same command, with all owners back")
    assert publish().returncode == 0
    with ringfence.connect(alive.address, timeout_s=30) as client:
        rows = pa.Table.from_batches(client.read("whole"))
        assert sorted(rows["id"].to_pylist()) == list(range(1_000))
