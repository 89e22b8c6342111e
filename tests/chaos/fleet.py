"""Four nodes, each on a host and a disk of its own."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import ringfence
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import ConnectError, refusal
from tests.harness.clocks import ProcessClock
from tests.harness.control import list_nodes
from tests.harness.disk import Disk
from tests.harness.network import Network
from tests.harness.processes import NodeProcess, cli, until

NODES = 4
TOPIC = "chaos"
CONTROL_PORT = 7421
DISK_MB = 1_536
"""Of one node: three copies of some million short rows, and files that are made ahead."""
SMALL = (
    "--segment-bytes",
    "16MiB",
    "--reserve-bytes",
    "1MiB",
    "--budget-bytes",
    "128MiB",
    "--journal-bytes",
    "1MiB",
)
"""So that files are closed, recycled and given back, and journals compacted, within minutes."""
ASK_S = 5.0
PROVEN_S = 180.0
"""For all replicas to be level again, and for one run of `fsck --cluster`, which reads all logs."""


class Fleet:
    """The processes; each fault leaves them as whole as it found them."""

    def __init__(self, root: Path, network: Network) -> None:
        self.network, self.disks, self.root = network, list[Disk](), root
        # Each node runs in a copy of this process's mounts; an unmount here must reach those copies, or the
        # file system whose power was cut lives on in them.
        for command in (("--bind", str(root), str(root)), ("--make-shared", str(root))):
            subprocess.run(["mount", *command], check=True, capture_output=True)
        self.controls = [f"tcp://{host}:{CONTROL_PORT}" for host in network.hosts]
        self.nodes: list[NodeProcess] = []
        self.clocks: list[ProcessClock] = []
        self.favoured: int | None = None
        """The node that the next moves make an owner."""
        for place, (host, prefix) in enumerate(zip(network.hosts, network.prefixes, strict=True)):
            folder = self.folder(place)
            folder.mkdir(parents=True)
            self.disks.append(Disk(folder, DISK_MB))
            self.clocks.append(ProcessClock(folder / "clock"))
            join = ("--join", self.controls[0]) if place else ()
            options = ("--insecure", "--control", self.controls[place], *join, *SMALL)
            self.nodes.append(
                NodeProcess(
                    self.disks[place].mount_point / "data",
                    options=options,
                    host=host,
                    prefix=prefix,
                    port=7411,
                    log_folder=folder,
                    environment=self.clocks[place].environment,
                )
            )

    @contextmanager
    def favour(self, place: int) -> Iterator[None]:
        """Meanwhile moves make this node an owner."""
        self.favoured = self.id(place)
        try:
            yield
        finally:
            self.favoured = None

    def owns_for(self, place: int, so_long_s: float, within_s: float) -> bool:
        """Wait until it was the owner of one partition, in one epoch, for so long."""
        end, since = time.monotonic() + within_s, dict[tuple[int, int], float]()
        with ringfence.connect(self.addresses, timeout_s=within_s) as client:
            while (now := time.monotonic()) < end:
                layout = client.layout(TOPIC)
                own = {(one.partition, one.epoch) for one in layout.active if one.owner == self.id(place)}
                since = {one: since.get(one, now) for one in own}
                if any(now - begun >= so_long_s for begun in since.values()):
                    return True
                time.sleep(0.1)
        return False

    def __enter__(self) -> Self:
        try:
            self.nodes[0].start()
            with ThreadPoolExecutor(NODES) as pool:
                list(pool.map(lambda node: node.start(), self.nodes[1:]))
            self.until_whole()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.wake()
                node.kill()
        for disk in self.disks:
            disk.release()
        subprocess.run(["umount", "-l", str(self.root)], check=False, capture_output=True)

    @property
    def addresses(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def id(self, place: int) -> int:
        return int(self.nodes[place].ready["node"])

    def folder(self, place: int) -> Path:
        """For what a fault writes; not on the node's disk."""
        return self.root / f"node-{place}"

    def others(self, place: int) -> list[int]:
        return [other for other in range(NODES) if other != place]

    def alive(self, place: int) -> bool:
        process = self.nodes[place].process
        return process is not None and process.poll() is None

    def listed(self) -> messages.Nodes | None:
        """The cluster as the first node that answers knows it."""
        for control in self.controls:
            known = list_nodes(control, 1.0)
            if known is not None and known.leader:
                return known
        return None

    def is_whole(self) -> bool:
        """Everybody lives, is in the ring, and somebody leads."""
        told = self.listed()
        return (
            told is not None
            and len(told.nodes) == NODES
            and all(node.life == "LIVE" and node.in_ring for node in told.nodes)
        )

    def until_whole(self) -> None:
        until(self.is_whole, timeout_s=120, what="all nodes live, in the ring, and led")

    def last_words(self, most: int = 25) -> Iterator[str]:
        """What the nodes logged last of what is worse than usual: so many lines of each."""
        for node in self.nodes:
            lines = [line for line in node.log.read_text().splitlines() if '"level": "info"' not in line]
            yield from (f"{node.address}: {line[:1_000]}" for line in lines[-most:])

    def has_reported_clock(self) -> bool:
        """Whether a node has logged that its clock is wrong."""
        return any("the cluster's time, the median" in node.log.read_text() for node in self.nodes)

    def checked(self, forced: int | None = None) -> list[str]:
        """What `fsck --cluster` finds wrong, or cannot prove within PROVEN_S: metadata, fences, chains.

        Not of a `forced` partition: replicas that come back after its owner was forced keep what they have,
        and fsck tells it for as long as they do.
        """
        end, found = time.monotonic() + PROVEN_S, ["nothing was asked"]
        while found and time.monotonic() < end:
            done = cli("fsck", "--cluster", "--control", self.controls[0], "--json", timeout_s=PROVEN_S)
            report = json.loads(done.stdout) if done.stdout else {"findings": [done.stderr], "silent": []}
            told = [*report["findings"], *report.get("unproven", ())]
            found = [str(one) for one in told if not isinstance(one, dict) or one["partition"] != forced]
            found += [f"silent: {one}" for one in report["silent"]]
            found += [] if told or found or report["sound"] else [str(report)]
            time.sleep(0.5)
        return [f"fsck --cluster: {one}" for one in found]

    def told(self, call: messages.Call) -> messages.Reply:
        """The answer of the first node that gives one. RingfenceError: it refuses, or nobody does."""
        last: Exception | None = None
        for control in self.controls:
            try:
                reply = messages.decode_reply(ask_address(control, messages.encode(call), ASK_S))
            except ConnectError as error:
                last = error
                continue
            if isinstance(reply, messages.Refusal):
                raise refusal(reply.code, reply.message)
            return reply
        assert last is not None
        raise last

    def asked(self, call: messages.Call) -> dict[str, Any]:
        """As `told`, of what is shown to people."""
        reply = self.told(call)
        assert isinstance(reply, messages.Document), reply
        return reply.value
