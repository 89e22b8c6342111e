"""Committed commands a second of the core alone: three nodes in one process, no disk, no network.

`python -m tests.consensus.speed [--codec]`. What is measured is the Python of three nodes on one core, so a
node of its own has up to three times that. `--codec` puts every message through MessagePack. A line for each
number of proposals between two Readies.
"""

from __future__ import annotations

import random
import sys
import time

from ringfence.control.consensus import codec, events
from ringfence.control.consensus.events import Received
from ringfence.control.consensus.messages import ConfigurationState, HardState, Message, Snapshot
from ringfence.control.consensus.options import Options
from ringfence.control.consensus.raft_node import Node
from ringfence.control.consensus.storage import MemoryStorage

COMMAND = b"x" * 200
"""About as long as a metadata command."""


class Trio:
    """Three nodes; everything is delivered at once and in order."""

    def __init__(self, *, with_codec: bool) -> None:
        self.with_codec = with_codec
        self.disks = [MemoryStorage() for _ in range(3)]
        for disk in self.disks:
            disk.hard_state = HardState(1)
            disk.install(Snapshot(1, 1, ConfigurationState((1, 2, 3))))
        draw = random.Random(1).randrange
        self.nodes = [Node(Options(id=at), disk, draw=draw) for at, disk in enumerate(self.disks, 1)]
        self.network: list[Message] = []
        self.messages = self.bytes = 0
        self.applied = 0
        self.nodes[0].step(events.Campaign())
        self.settle()
        assert self.nodes[0].core.role.name == "LEADER"

    def settle(self) -> None:
        while True:
            for node, disk in zip(self.nodes, self.disks, strict=True):
                while node.has_ready():
                    ready = node.ready()
                    if ready.hard_state is not None:
                        disk.hard_state = ready.hard_state
                    disk.append(ready.entries)
                    if node is self.nodes[0]:
                        self.applied += len(ready.committed)
                    self.network += ready.messages
                    node.advance()
            if not self.network:
                return
            under_way, self.network = self.network, []
            for message in under_way:
                self.messages += 1
                self._deliver(message)

    def _deliver(self, message: Message) -> None:
        if self.with_codec:
            data = codec.encode(message)
            self.bytes += len(data)
            message = codec.decode(data)
        self.nodes[message.to - 1].step(Received(message))


def measure(*, together: int, grouped: bool, with_codec: bool, seconds: float = 1.0) -> tuple[float, float]:
    """Committed commands a second, and messages a command.

    `grouped`: the commands of a round are one proposal; else each is one.
    """
    trio = Trio(with_codec=with_codec)
    leader = trio.nodes[0]
    trio.applied = trio.messages = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        if grouped:
            leader.step(events.Propose((COMMAND,) * together))
        else:
            for _ in range(together):
                leader.step(events.Propose((COMMAND,)))
        trio.settle()
        for disk, node in zip(trio.disks, trio.nodes, strict=True):
            if disk.last_index() - disk.first_index() > 10_000:
                disk.compact(node.core.log.applied)
    return trio.applied / elapsed, trio.messages / trio.applied


def main(arguments: list[str]) -> None:
    with_codec = "--codec" in arguments
    for together in (1, 16, 64, 256):
        for grouped in (False, True):
            rate, messages = measure(together=together, grouped=grouped, with_codec=with_codec)
            how = "as one proposal" if grouped else "one by one"
            print(f"{together:4} commands {how:16} {rate:10,.0f} committed/s  {messages:5.2f} messages each")


if __name__ == "__main__":
    main(sys.argv[1:])
