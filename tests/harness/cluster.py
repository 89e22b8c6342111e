"""Three real processes as one cluster, whose state tests ask for at the control addresses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

import ringfence
from tests.harness.control import list_nodes
from tests.harness.processes import SCHEMA, NodeProcess, free_port, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ringfence.native.messages import TopicInfo

THREE_VOTERS = ["leader", "voter", "voter"]
NOBODY: dict[str, Any] = {"nodes": (), "leader": 0, "term": 0, "index": 0, "hash": ""}
LOOPBACK = ("127.0.0.1",) * 3
MEMORY = ("--budget-bytes", "160MiB")
"""A node touches all of it at each start. The largest body of the default has room: any node may join.

Options of a cluster's own come behind it, and hold.
"""


class ThreeNodes:
    """A cluster of three; `nodes[0]` began it, the others joined."""

    def __init__(
        self,
        root: Path,
        *,
        hosts: Sequence[str] = LOOPBACK,
        prefixes: Sequence[tuple[str, ...]] = ((), (), ()),
        options: tuple[str, ...] = (),
    ) -> None:
        """`hosts` are the nodes' addresses, `prefixes` the commands that the program is run by."""
        self.controls = [f"tcp://{host}:{free_port()}" for host in hosts]
        self.nodes = [
            NodeProcess(
                root / name,
                options=("--control", control, *self.join(place), *MEMORY, *options),
                host=host,
                prefix=prefix,
            )
            for place, (name, control, host, prefix) in enumerate(
                zip("abc", self.controls, hosts, prefixes, strict=True)
            )
        ]

    @property
    def addresses(self) -> str:
        """Of all nodes, for clients."""
        return ",".join(node.address for node in self.nodes)

    def join(self, place: int) -> tuple[str, ...]:
        return ("--join", self.controls[0]) if place else ()

    def start(self) -> ThreeNodes:
        self.nodes[0].start()
        self.start_at_once([1, 2])
        self.until_whole()
        return self

    def until_whole(self) -> None:
        """Three live voters, all in the ring."""
        until(lambda: self.roles(0) == THREE_VOTERS, what="three voters")
        until(
            lambda: all(node["in_ring"] and node["life"] == "LIVE" for node in self.listed(0)["nodes"]),
            what="all in the ring",
        )

    def listed(self, place: int) -> dict[str, Any]:
        """What the node at `place` says of the cluster; nobody and nothing if it does not answer."""
        known = list_nodes(self.controls[place], 2.0)
        if known is None:
            return NOBODY
        nodes = [msgspec.structs.asdict(node) for node in known.nodes]
        return {**msgspec.structs.asdict(known), "nodes": nodes}

    def roles(self, place: int) -> list[str]:
        return sorted(node["role"] for node in self.listed(place)["nodes"])

    def life(self, of: int, *, seen_by: int) -> str:
        """LIVE, FAILED or JOINING; empty if it is no member."""
        nodes = self.listed(seen_by)["nodes"]
        return next((node["life"] for node in nodes if node["node"] == self.id(of)), "")

    def id(self, place: int) -> int:
        return int(self.nodes[place].ready["node"])

    def leader(self) -> int:
        """The place of the node that leads."""
        for place in range(3):
            if self.alive(place):
                leads = self.listed(place)["leader"]
                for other, node in enumerate(self.nodes):
                    if leads and node.ready.get("node") == leads:
                        return other
        raise AssertionError("no node leads")

    def led_by_one_of(self, places: Sequence[int]) -> bool:
        """Whether these nodes know one leader, one of them."""
        told = {self.listed(place)["leader"] for place in places}
        return len(told) == 1 and told <= {self.id(place) for place in places}

    def alive(self, place: int) -> bool:
        process = self.nodes[place].process
        return process is not None and process.poll() is None

    def create(self, place: int, name: str, partitions: int = 6, replication: int = 1) -> TopicInfo:
        with ringfence.connect(self.nodes[place].address, timeout_s=30) as client:
            return client.create_topic(
                name, schema=SCHEMA, key=["id"], partitions=partitions, replication=replication
            )

    def placed(self, place: int, topic: str) -> dict[int, tuple[int, int]]:
        """Owner and epoch of each partition, as the node at `place` has them."""
        with ringfence.connect(self.nodes[place].address, timeout_s=10) as client:
            return {part.partition: (part.owner, part.epoch) for part in client.topic(topic).partitions}

    def topics(self, place: int) -> list[str]:
        with ringfence.connect(self.nodes[place].address, timeout_s=10) as client:
            return [topic.name for topic in client.topics()]

    def topics_known(self, place: int) -> list[str]:
        """What a node answers at once, whether or not it hears of a majority."""
        with ringfence.connect(self.nodes[place].address, timeout_s=3) as client:
            return [topic.name for topic in client.topics()]

    def kill_all(self) -> None:
        for place in range(3):
            if self.alive(place):
                self.nodes[place].kill()

    def restart_all(self) -> None:
        """At once: one alone has no majority, and does not serve before it has."""
        self.start_at_once(range(3))

    def until_equal(self) -> None:
        """All have applied the same entries, and have the same state."""

        def equal() -> bool:
            told = [self.listed(place) for place in range(3)]
            return all(node["hash"] for node in told) and len({(n["index"], n["hash"]) for n in told}) == 1

        until(equal, what="equal hashes at equal indexes")

    def start_at_once(self, places: Sequence[int]) -> None:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda place: self.nodes[place].start(), places))


def names(*short: str) -> list[str]:
    return [f"public/default/{name}" for name in short]
