"""Nodes of unequal weight: what each gets, at a join and behind a restart with another weight."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from tests.harness.cluster import MEMORY
from tests.harness.processes import SCHEMA, NodeProcess, cli, free_port, until

PARTITIONS = 40


class Three:
    """The second node joins with twice the weight of the others, which name none."""

    def __init__(self, folder: Path) -> None:
        self.controls = [f"tcp://127.0.0.1:{free_port()}" for _ in "abc"]
        self.nodes = [
            NodeProcess(folder / name, options=self.options(place)) for place, name in enumerate("abc")
        ]

    def options(self, place: int, *more: str) -> tuple[str, ...]:
        join = ("--join", self.controls[0]) if place else ()
        weight = ("--weight", "200") if place == 1 and not more else more
        return ("--control", self.controls[place], *join, *weight, *MEMORY)

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        until(lambda: [node["in_ring"] for node in self.listed()] == [True] * 3, what="all in the ring")

    def restart(self, place: int, *options: str) -> None:
        self.nodes[place].stop()
        self.nodes[place].options = self.options(place, *options)
        self.nodes[place].start()

    def listed(self) -> list[dict[str, Any]]:
        """Members in the order of their starts."""
        shown = cli("node", "list", "--json", "--control", self.controls[0])
        assert shown.returncode == Exit.OK, shown.stderr
        nodes = {node["node"]: node for node in json.loads(shown.stdout)["nodes"]}
        return [nodes[node.ready["node"]] for node in self.nodes]

    def owned(self) -> list[int]:
        with ringfence.connect(self.nodes[0].address, timeout_s=30) as client:
            owners = Counter(part.owner for part in client.topic("t").partitions)
        return [owners[node.ready["node"]] for node in self.nodes]

    def balance(self) -> None:
        done = cli("rebalance", "start", "balance", "--wait", "--control", self.controls[0], timeout_s=120)
        assert done.returncode == Exit.OK, done.stderr


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    made = Three(tmp_path)
    try:
        made.start()
        yield made
    finally:
        for node in made.nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()


@pytest.mark.timeout(240)
def test_a_node_gets_partitions_by_its_weight_also_when_a_restart_changed_it(three: Three) -> None:
    assert [node["weight"] for node in three.listed()] == [100, 200, 100]
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=PARTITIONS)
    assert three.owned() == [10, 20, 10]
    three.restart(2)
    three.restart(0, "--weight", "600")
    assert [node["weight"] for node in three.listed()] == [600, 200, 100]
    until(lambda: {str(node["life"]) for node in three.listed()} == {"LIVE"}, what="all live")
    assert three.owned() == [10, 20, 10], "a start moves nothing"
    three.balance()
    assert sum(three.owned()) == PARTITIONS
    assert all(
        abs(owned - 40 * weight / 900) < 1
        for owned, weight in zip(three.owned(), (600, 200, 100), strict=True)
    )
    three.restart(1, "--log-level", "info")
    assert [node["weight"] for node in three.listed()] == [600, 200, 100], "one that names none has its last"
