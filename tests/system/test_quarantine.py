"""F26: a damaged partition is quarantined, others serve, and a command ends that once the bytes are sound."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.native import wire
from tests.harness import segment_files
from tests.harness.admin_http import ask
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, NodeProcess, batch, cli, free_port, until

ROWS = 6_000
"""12 MB in two partitions and segments of 4 MiB: the oldest file is written to no more."""


class Node(NamedTuple):
    process: NodeProcess
    http: str
    victim: int
    sound: int

    def read(self, partition: int) -> int:
        with ringfence.connect(self.process.address, timeout_s=30) as client:
            return sum(part.num_rows for part in client.read("t", partition=partition))

    def readiness(self) -> tuple[str, list[str]]:
        """State and reasons; the node serves in either case."""
        told = ask(self.http, "GET", "/health/ready")
        assert told.status == 200, told
        return told.body["state"], told.body["reasons"]

    def release(self, *door: str) -> Any:
        return cli("partition", "release", str(self.victim), *(door or ("--http", self.http)))

    def flip(self) -> None:
        """A bit of a row's body in the oldest file: once it is damaged, twice it is sound again."""
        oldest = segment_files.segments(self.process.data)[0]
        found = [one for one in segment_files.rows_of(self.process.data, self.victim) if one.path == oldest]
        position = found[3].position + wire.RECORD_HEADER_BYTES + 5_000
        segment_files.flip(oldest, position)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    port, control = free_port(), f"tcp://127.0.0.1:{free_port()}"
    options = ("--http", f"127.0.0.1:{port}", "--control", control, "--segment-bytes", "4MiB")
    # Without the background nothing but a reader, a start and the command looks at the files.
    process = NodeProcess(tmp_path / "data", options=(*options, "--scrub-bytes-s", "0"))
    with process, ringfence.connect(process.address, timeout_s=30) as client:
        parts = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2).partitions
        with client.producer("t") as producer:
            for start in range(0, ROWS, 500):
                producer.send(batch(start, 500, text="x" * 2_000)).result(30)
        yield Node(process, f"http://127.0.0.1:{port}", parts[0].partition, parts[1].partition)


def check_quarantined(node: Node, rows: dict[int, int]) -> None:
    """One partition is neither read nor written, the other one is; readiness and status name it."""
    state, reasons = node.readiness()
    assert state == "degraded"
    assert any(f"partition {node.victim} of topic" in why and "is quarantined" in why for why in reasons)
    told = cli("status", "--json", address=node.process.address)
    assert told.returncode == Exit.DEGRADED
    with pytest.raises(ringfence.QuarantinedError):
        node.read(node.victim)
    assert node.read(node.sound) == rows[node.sound]
    with ringfence.connect(node.process.address, timeout_s=30) as client, client.producer("t") as producer:
        outcomes = [producer.send(batch(row, 1)).exception(20) for row in range(10_000, 10_016)]
        assert None in outcomes, "the sound partition takes rows"
        assert {type(error) for error in outcomes if error is not None} == {ringfence.QuarantinedError}
        rows[node.sound] += outcomes.count(None)
        with contextlib.suppress(ringfence.RingfenceError):
            producer.flush()


def check_served(node: Node, rows: dict[int, int]) -> None:
    """Readiness says so, every row is read, and new ones are taken: now, and after a restart."""
    until(lambda: node.readiness() == ("serving", []), what="readiness")
    assert cli("status", address=node.process.address).returncode == 0
    with ringfence.connect(node.process.address, timeout_s=30) as client, client.producer("t") as producer:
        for row in range(20_000, 20_016):
            [appended] = producer.send(batch(row, 1)).result(20)
            rows[appended.partition] += 1
    assert {part: node.read(part) for part in rows} == rows
    assert node.process.stop() == 0
    node.process.start()
    assert {part: node.read(part) for part in rows} == rows


@pytest.mark.parametrize("met_by", ["reader", "start"])
def test_a_command_releases_a_partition_once_its_bytes_are_sound_again(node: Node, met_by: str) -> None:
    """F26: one replica, which nothing repairs; a reader meets the damage, or a start of the node."""
    rows = {part: node.read(part) for part in (node.victim, node.sound)}
    if met_by == "start":
        assert node.process.stop() == 0
    node.flip()
    if met_by == "start":
        node.process.start()
    else:
        with pytest.raises(ringfence.QuarantinedError):
            node.read(node.victim)
    check_quarantined(node, rows)

    refused = node.release()
    assert refused.returncode == Exit.REFUSED, refused
    oldest = segment_files.segments(node.process.data)[0].name
    assert oldest in refused.stderr, refused.stderr
    assert ask(node.http, "POST", f"/admin/partitions/{node.victim}/release").status == 409
    check_quarantined(node, rows)

    node.flip()
    check_quarantined(node, rows)
    released = node.release("--control", str(node.process.ready["control"]))
    assert released.returncode == 0, released
    check_served(node, rows)
    # Of one that is not quarantined it is true already; of none it is refused.
    assert node.release().returncode == 0
    assert ask(node.http, "POST", f"/admin/partitions/{node.victim}/release").status == 200
    assert ask(node.http, "POST", "/admin/partitions/77/release").status == 404
    log = (node.process.data / "audit" / "audit.log").read_text().splitlines()
    told = [(line["action"], line["status"]) for line in map(json.loads, log) if "release" in line["action"]]
    name = f"partition {node.victim} release"
    assert told == [
        *[(name, status) for status in (409, 409, 200, 200, 200)],
        ("partition 77 release", 404),
    ], told


def test_a_release_names_the_node_whose_replica_is_damaged(tmp_path: Path) -> None:
    """F26: with replicas every one is read again; one that nobody can repair is named, by any node."""
    three = ThreeNodes(tmp_path, options=("--segment-bytes", "4MiB", "--scrub-bytes-s", "0"))
    try:
        three.start()
        topic = three.create(0, "t", partitions=1, replication=3)
        [part] = topic.partitions
        with (
            ringfence.connect(three.nodes[0].address, timeout_s=30) as client,
            client.producer("t") as producer,
        ):
            for start in range(0, ROWS, 500):
                producer.send(batch(start, 500, text="x" * 2_000)).result(30)
        asked = ("partition", "release", str(part.partition), "--control", three.controls[1])
        assert cli(*asked).returncode == 0, "all three are sound"
        owner = next(place for place in range(3) if three.id(place) == part.owner)
        hurt = (owner + 1) % 3
        three.nodes[hurt].kill()
        refused = cli("partition", "release", str(part.partition), "--control", three.controls[owner])
        assert refused.returncode == Exit.REFUSED, refused
        assert f"node {three.id(hurt)}: " in refused.stderr, refused.stderr
        three.nodes[hurt].start()
        until(lambda: cli(*asked).returncode == 0, what="all three again")
    finally:
        three.kill_all()
