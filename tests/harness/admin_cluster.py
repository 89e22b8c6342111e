"""Three nodes with their admin APIs: topics with rows, runs of moves, and what each node says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ringfence
from tests.harness.admin_http import ask, with_http
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, batch, check_identity, read_ids, until

CRAWL_BYTES_S, SLOW_BYTES_S, FAST_BYTES_S = 300_000, 1_000_000, 4_000_000
ROWS, STEP = 4_000, 100
TEXT = "x" * 1_000
"""4 MB in each topic, in records of 100 kB: a copy goes on by such steps."""


class AdminCluster:
    """A cluster of three with their admin APIs."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.three = ThreeNodes(folder, options=options)
        self.doors = [with_http(node) for node in self.three.nodes]

    def create(self, name: str, rows: int = ROWS) -> tuple[int, int, int]:
        """A topic of one partition with rows: partition, place of its owner, another place."""
        with ringfence.connect(self.three.nodes[0].address, timeout_s=60) as client:
            made = client.create_topic(name, schema=SCHEMA, key=["id"], partitions=1)
            with client.producer(name) as producer:
                for start in range(0, rows, STEP):
                    producer.send(batch(start, STEP, text=TEXT))
            [part] = made.partitions
        source = next(place for place in range(3) if self.three.id(place) == part.owner)
        return part.partition, source, (source + 1) % 3

    def owner(self, name: str) -> int:
        with ringfence.connect(self.three.nodes[0].address, timeout_s=30) as client:
            return client.topic(name).partitions[0].owner

    def check(self, name: str) -> None:
        with ringfence.connect(self.three.nodes[0].address, timeout_s=60) as client:
            check_identity(read_ids(client, name), {0: range(ROWS)}, {0: ROWS})

    def configure(self, place: int = 0, **values: int) -> None:
        changed = ask(self.doors[place], "PATCH", "/admin/config", {"values": values}, if_match="*")
        assert changed.status == 200, changed

    def start(self, place: int, *moves: tuple[int, int]) -> Any:
        """Moves of partitions to the nodes at places, asked for at the node at `place`."""
        given = [{"partition": number, "nodes": [self.three.id(to)]} for number, to in moves]
        return ask(self.doors[place], "POST", "/admin/rebalance", {"action": "move", "moves": given})

    def steer(self, place: int, verb: str) -> int:
        return ask(self.doors[place], "POST", f"/admin/rebalance/{verb}").status

    def shown(self, place: int = 0) -> dict[str, Any]:
        told: dict[str, Any] = ask(self.doors[place], "GET", "/admin/rebalance").body
        return told

    def ended(self) -> dict[str, Any]:
        until(lambda: self.shown()["state"] == "IDLE", what="the end of the run")
        return self.shown()

    def ring(self, place: int = 0) -> Any:
        return ask(self.doors[place], "GET", "/admin/ring?linearizable=true").body

    def counter(self, place: int, name: str) -> int:
        told = ask(self.doors[place], "GET", "/admin/status").body
        return int(told["counters"][name])

    def forwarded(self) -> list[int]:
        return [self.counter(place, "replicated_bytes") for place in range(3)]
