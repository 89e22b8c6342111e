"""Five voters in three zones: replicas of one partition in different ones, and a zone that is lost."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from tests.harness.cluster import MEMORY
from tests.harness.control import list_nodes
from tests.harness.load import Load
from tests.harness.loaded_cluster import grown
from tests.harness.processes import SCHEMA, NodeProcess, check_identity, cli, free_port, read_ids, until

ZONES = ("red", "red", "green", "green", "blue")


class Five:
    """`nodes[0]` begins the cluster, the others join at once."""

    def __init__(self, root: Path) -> None:
        self.controls = [f"tcp://127.0.0.1:{free_port()}" for _ in ZONES]
        self.nodes = [
            NodeProcess(root / f"n{place}", options=("--control", control, "--zone", zone, *MEMORY))
            for place, (control, zone) in enumerate(zip(self.controls, ZONES, strict=True))
        ]
        for node in self.nodes[1:]:
            node.options = (*node.options, "--join", self.controls[0])

    def start(self) -> None:
        self.nodes[0].start()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda node: node.start(), self.nodes[1:]))

    def told(self, place: int) -> messages.Nodes | None:
        return list_nodes(self.controls[place], 2.0)

    def voters(self, place: int) -> int:
        told = self.told(place)
        return sum(node.role in {"leader", "voter"} for node in told.nodes) if told else 0

    def zone_of(self, node: int) -> str:
        return next(zone for zone, one in zip(ZONES, self.nodes, strict=True) if one.ready["node"] == node)

    def replicas(self, place: int, partition: int) -> list[int]:
        call = messages.encode(messages.ShowPartition(partition=partition))
        reply = messages.decode_reply(ask_address(self.controls[place], call, 10.0))
        assert isinstance(reply, messages.Document), reply
        shown: dict[str, Any] = reply.value
        return [replica["node"] for replica in shown["replicas"]]

    def kill_all(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()


def check_recording(five: Five, place: int) -> None:
    """What a node's consensus did in its life is run again, and comes to the same."""
    kept = cli("debug", "events", "--control", five.controls[place], "--json")
    assert kept.returncode == Exit.OK, kept.stderr
    again = cli("debug", "replay", json.loads(kept.stdout)["path"], "--quiet", "--json")
    end = json.loads(again.stdout.splitlines()[-1])["end"]
    assert (again.returncode, end["broken"], end["differs"]) == (Exit.OK, None, None), end
    assert end["steps"] > 100, end


@pytest.mark.timeout(180)
def test_replicas_stand_in_different_zones_and_the_loss_of_one_zone_is_survived(tmp_path: Path) -> None:
    five = Five(tmp_path)
    try:
        five.start()
        until(lambda: five.voters(0) == 5, what="five voters")
        lost, rest = [2, 3], [0, 1, 4]
        with ringfence.connect(five.nodes[0].address, timeout_s=30) as client:
            topic = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=10, replication=3)
        for part in topic.partitions:
            zones = [five.zone_of(node) for node in five.replicas(0, part.partition)]
            assert sorted(zones) == ["blue", "green", "red"], (part.partition, zones)
        load = Load(five.nodes[0].address, "t", 0).start()
        until(lambda: len(load.acknowledged) > 500, what="rows")
        for place in lost:
            five.nodes[place].kill()
        until(grown([load], 2_000), what="rows without a zone")
        with ringfence.connect(five.nodes[4].address, timeout_s=60) as client:
            client.create_topic("after", schema=SCHEMA, key=["id"], partitions=3, replication=3)
            owners = {part.owner for part in client.topic("t").partitions}
        assert owners <= {five.nodes[place].ready["node"] for place in rest}
        for place in lost:
            five.nodes[place].start()
        load.finish()
        assert load.errors == []
        with ringfence.connect(five.nodes[2].address, timeout_s=60) as client:
            check_identity(read_ids(client, "t"), {0: load.acknowledged}, {0: load.sent})
        for place in range(5):
            check_recording(five, place)
    finally:
        five.kill_all()
