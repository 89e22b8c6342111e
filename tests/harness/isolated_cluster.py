"""A cluster of three on hosts of their own, one of them on a small disk: what fault tests do harm to."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.disk import Disk
from tests.harness.network import Network
from tests.harness.processes import NodeProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = ("--segment-bytes", "16MiB", "--reserve-bytes", "1MiB", "--budget-bytes", "64MiB")


class IsolatedCluster:
    """A cluster, the network between its nodes, and the small disk that the third has its data on."""

    def __init__(self, network: Network, disk: Disk, three: ThreeNodes) -> None:
        self.network, self.disk, self.three = network, disk, three

    def others(self, place: int) -> list[int]:
        return [other for other in range(3) if other != place]


@contextmanager
def isolated_cluster(folder: Path) -> Iterator[IsolatedCluster]:
    """A running cluster with a topic `t` of six partitions; its journals are compacted early."""
    disk = Disk(folder, 256)
    with Network(3) as network:
        three = ThreeNodes(
            folder,
            hosts=network.hosts,
            prefixes=network.prefixes,
            options=("--insecure", "--journal-bytes", "64KiB", *SMALL),
        )
        three.nodes[2].data = disk.mount_point / "c"
        try:
            three.start()
            three.create(0, "t", partitions=6)
            yield IsolatedCluster(network, disk, three)
        finally:
            three.kill_all()
            disk.release()


def copied(world: IsolatedCluster, place: int, folder: Path) -> NodeProcess:
    """A node over a copy of another one's directory, on the same host."""
    original, host = world.three.nodes[place], world.network.hosts[place]
    shutil.copytree(original.data, folder / "copy")
    options = ("--control", f"tcp://{host}:{free_port()}", *original.options[2:])
    return NodeProcess(folder / "copy", options=options, host=host, prefix=world.network.prefixes[place])


def owned_by(world: IsolatedCluster, topic: str, place: int) -> list[int]:
    with ringfence.connect(world.three.nodes[place].address, timeout_s=10) as client:
        parts = client.topic(topic).partitions
        return [part.partition for part in parts if part.owner == world.three.id(place)]


def says(world: IsolatedCluster, place: int, reason: str) -> bool:
    with ringfence.connect(world.three.nodes[place].address, timeout_s=10) as client:
        return any(reason in why for why in client.status().reasons)


def epochs(world: IsolatedCluster, topic: str, place: int) -> dict[int, int]:
    with ringfence.connect(world.three.nodes[place].address, timeout_s=10) as client:
        return {part.partition: part.epoch for part in client.topic(topic).partitions}
