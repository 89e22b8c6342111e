"""What a layout change sends to clients, counted: frames and bytes of each connection, and the engine's time.

    python -m benchmarks.layout_pushes [--json FILE] [--quick]

One partition of a topic is split by the five entries of the product, which go through the product's orders to
a stepped engine. Half of the connections follow the topic, the others follow another one. `changed bytes` are
those of the partitions whose entries in the table differ: what a table of differences would send at least.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.metadata_log import CLUSTER, COLUMN, Log, committed, joined
from ringfence.common.codec import request_header
from ringfence.control.model.commands import Command, CreateTopic, InitCluster
from ringfence.control.model.ids import NodeId, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.layout_commands import ConfirmLayout, FinalizeLayout, HoldLayout, PrepareLayout
from ringfence.control.model.node_commands import AddToRing
from ringfence.control.model.ranges import tile
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.native_orders import table_order
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.layout import plan
from ringfence.control.state_machines.placement.placement import place_in
from ringfence.native import messages
from ringfence.native._node import Order, SimDisk, SimNode, schema_message
from ringfence.native.frame import open_answer
from ringfence.native.wire import Opcode

NODES: Final = 3
WIDTHS: Final = (10, 100, 4_000)
CONNECTIONS: Final = (100, 1_000, 10_000)
QUICK_WIDTHS: Final = (10, 100)
QUICK_CONNECTIONS: Final = (10, 100)
OTHER_PARTITIONS: Final = 1
SCHEMA: Final = schema_message(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
ENTRIES: Final = ("PREPARE", "HOLD", "COMMIT", "OPENED", "FINALIZED")
DELTA_BYTES_AIM: Final = 1_000
"""Of one pushed change, once tables are pushed as differences."""


class Cluster(Log):
    """A metadata log with three nodes, and two topics of which the first one is split."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.take(InitCluster(cluster=CLUSTER, history=b"h" * 16, node=NodeId(1), store=b"s" * 16))
        for number in range(2, NODES + 2):
            self.take(AddToRing(node=joined(self, number), version=self.state.ring.version))
        self.state = replace(self.state, level=LAYOUT_LEVEL)
        self.changed, self.other = (self._topic(count) for count in (partitions, OTHER_PARTITIONS))

    def _topic(self, partitions: int) -> TopicId:
        made = CreateTopic(
            name=f"public/default/topic{self.index}",
            key=("id",),
            schema=SCHEMA,
            columns=(COLUMN,),
            ranges=tile(partitions),
            nodes=place_in(self.state, partitions, 1),
        )
        self.take(made)
        return TopicId(self.index)

    @property
    def here(self) -> Replica:
        """The node whose engine is looked at."""
        number = max(self.state.nodes)
        return Replica(node=number, store=self.state.nodes[number].store)

    def split(self) -> Iterator[Command]:
        """The commands of a split of the first partition, each made when the one before is applied."""
        topic = self.state.topics[self.changed]
        prepare = plan.split(self.state, topic, topic.layout.partitions[0].partition)
        assert isinstance(prepare, PrepareLayout), prepare
        yield prepare
        number = ChangeId(self.index)
        yield HoldLayout(change=number)
        yield committed(self.state.transitions[number])
        yield ConfirmLayout(change=number)
        yield FinalizeLayout(change=number)


class Engine:
    """A stepped engine with connections; what it sends is counted by connection."""

    def __init__(self, log: Cluster, connections: int) -> None:
        self._log, self._applied = log, log.state
        self._node = SimNode(
            SimDisk(1), cluster=CLUSTER, history=b"h" * 16, store=log.here.store, node=log.here.node
        )
        self._node.recover(1_000_000, 1_000)
        self._requests = 0
        self.frames: dict[int, int] = {}
        self.bytes: dict[int, int] = {}
        self.busy_s = 0.0
        for topic in (log.changed, log.other):
            self._node.order(Order.install_topic(topic, [SCHEMA], [0], 0, 0))
            self._install(log.state, topic)
        self.followers, self.others = (range(1 + at, 1 + connections, 2) for at in (0, 1))
        for topic, group in ((log.changed, self.followers), (log.other, self.others)):
            for connection in group:
                self._follow(connection, topic)
        self._forget()

    def apply(self) -> None:
        """Take the newest entry of the log as a node does: its tables, then the generation."""
        phases = node_orders.between(self._applied, self._log.state, self._log.here)
        for order in chain.from_iterable(phases):
            if isinstance(order, node_orders.InstallTable):
                self._install(self._log.state, order.topic.topic)
        self._node.set_generation(self._log.index)
        self._settle()
        self._applied = self._log.state

    def acknowledge(self) -> None:
        """All connections that got a table hold it."""
        for connection in list(self.frames):
            self._send(connection, Opcode.TABLE_ACK, self._log.changed, self._log.index)

    def taken(self) -> tuple[dict[int, int], dict[int, int], float]:
        """Frames and bytes by connection, and seconds of the engine, since the last call."""
        told = self.frames, self.bytes, self.busy_s
        self._forget()
        return told

    def _forget(self) -> None:
        self.frames, self.bytes, self.busy_s = {}, {}, 0.0

    def _install(self, state: MetadataState, topic: TopicId) -> None:
        table, install = table_order(state.topics[topic], state, self._log.index, self._log.here)
        self._node.order(install(messages.encode(table)))
        self._settle()

    def _follow(self, connection: int, topic: TopicId) -> None:
        self._node.connect(connection)
        self._send(connection, Opcode.TABLE, topic, 0)
        self._send(connection, Opcode.TABLE_ACK, topic, self._log.index)

    def _send(self, connection: int, opcode: Opcode, topic: TopicId, generation: int) -> None:
        self._requests += 1
        header = request_header(opcode, self._requests, topic=topic, sequence=generation, deadline_ms=5_000)
        self._node.request(connection, bytes(header), b"")
        self._settle()

    def _settle(self) -> None:
        """Until nobody is to be told any more."""
        while True:
            began = time.process_time()
            shards, tickets = self._node.turn()
            self.busy_s += time.process_time() - began
            for shard in shards:
                self._node.run_job(shard)
            for connection, header, body in self._node.take_answers():
                assert open_answer(header).opcode in (Opcode.TABLE, Opcode.TABLE_PUSH), "an unexpected frame"
                self.frames[connection] = self.frames.get(connection, 0) + 1
                self.bytes[connection] = self.bytes.get(connection, 0) + len(body)
            if not shards and not tickets and self._node.wakes_at() != 0:
                self._node.poll()
                return


def measured(partitions: int, connections: int) -> dict[str, Any]:
    """The figures of one split of a topic of so many partitions, at an engine with so many connections."""
    log = Cluster(partitions)
    engine = Engine(log, connections)
    before = entries_of(log)
    sent: dict[str, int] = {}
    pushed, unaffected, busy_s = 0, 0, 0.0
    first_index = log.index
    for name, command in zip(ENTRIES, log.split(), strict=True):
        log.take(command)
        engine.apply()
        frames, sizes, took_s = engine.taken()
        sent[name] = sum(frames.values())
        pushed += sum(sizes.values())
        unaffected += sum(frames.get(connection, 0) for connection in engine.others)
        busy_s += took_s
        if frames:
            engine.frames = frames
            engine.acknowledge()
            assert not any(engine.taken()[1].values()), "an acknowledgement is answered"
    followers = len(engine.followers)
    changed = entries_of(log) - before
    return {
        "entries": log.index - first_index,
        "frames by entry": sent,
        "frames a follower": sum(sent.values()) / followers,
        "frames of others": unaffected,
        "bytes a follower": round(pushed / followers),
        "changed bytes": sum(map(len, changed)),
        "engine us a follower": round(busy_s / followers * 1e6, 2),
    }


def entries_of(log: Cluster) -> set[bytes]:
    """The encoded partitions of the topic's table."""
    table, _ = table_order(log.state.topics[log.changed], log.state, log.index, log.here)
    return {messages.encode(entry) for entry in table.partitions}


def held(columns: dict[str, dict[str, Any]]) -> bool:
    """Five entries, one frame a follower, none for others; whatever the width and the connections."""
    wanted = {"entries": len(ENTRIES), "frames a follower": 1, "frames of others": 0}
    return all({name: figures[name] for name in wanted} == wanted for figures in columns.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layout_pushes", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    options = parser.parse_args()
    widths = QUICK_WIDTHS if options.quick else WIDTHS
    connections = QUICK_CONNECTIONS if options.quick else CONNECTIONS
    sizes = [(width, connections[0]) for width in widths] + [(widths[0], count) for count in connections[1:]]
    columns = {f"{width}, {count}": measured(width, count) for width, count in sizes}
    table = Table("partitions, connections", *columns, title="one partition is split")
    for name in next(iter(columns.values())):
        table.add_row(name, *(json.dumps(figures[name]).strip("{}") for figures in columns.values()))
    console = Console(width=160)
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(columns, indent=1) + "\n")
    holds = held(columns)
    console.print(
        f"five entries, a frame a follower, none for others: {'holds' if holds else 'does not hold'}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
