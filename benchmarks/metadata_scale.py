"""What the cluster's metadata costs as it grows: up to 1,000 nodes and 100,000 partitions, in one process.

    python -m benchmarks.metadata_scale [--json FILE] [--quick]

For each size the state is built by the commands that a cluster uses, and each step is timed on the process's
CPU clock. The last column is the exponent of growth between the last two sizes: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import tracemalloc
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import layout_scale
from benchmarks.metadata_log import CLUSTER, COLUMN, ZONES, Log, applied, joined, seconds
from ringfence.control.model.commands import CreateTopic, InitCluster, RestartNode, SetConfig
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.node_commands import AddToRing, FailNode
from ringfence.control.model.ranges import tile
from ringfence.control.model.state import EMPTY, MetadataState, canonical_bytes, decode_state
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane import table_bodies
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.membership.liveness import Heartbeat, Liveness
from ringfence.control.state_machines.membership.voters import next_change
from ringfence.control.state_machines.metadata.state_hash import StateDigests
from ringfence.control.state_machines.placement.placement import place_in
from ringfence.control.state_machines.placement.planner import balance, clear, fill
from ringfence.control.state_machines.placement.zones import PlacementRole, members_of, placements_of
from ringfence.native import messages

TOPIC_PARTITIONS: Final = 100
SIZES: Final = ((10, 1_000), (100, 10_000), (300, 30_000), (1_000, 100_000))
QUICK_SIZES: Final = ((10, 1_000), (30, 3_000))
SNAPSHOT_BYTES_MAX: Final = 100_000_000
PLAN_S_MAX: Final = 1.0
# A step may take four times what n log n says: times vary, and caches end. A quadratic one takes eight times.
GROWTH_SLACK: Final = 4.0
# Not one step: commands of all nodes and topics, each of which counts what every node holds.
MANY_STEPS: Final = "all commands s"


def topic(log: Log, number: int, replication: int) -> CreateTopic:
    return CreateTopic(
        name=f"public/default/topic{number}",
        key=("id",),
        schema=b"s" * 400,
        columns=(COLUMN,),
        ranges=tile(TOPIC_PARTITIONS),
        nodes=place_in(log.state, TOPIC_PARTITIONS, replication),
    )


def cluster(nodes: int, partitions: int, replication: int) -> Log:
    log = Log()
    log.take(InitCluster(cluster=CLUSTER, history=b"h" * 16, node=NodeId(1), store=b"s" * 16))
    log.take(SetConfig(values={"partitions_max": 1_000_000, "nodes_max": 10_000}))
    for number in range(2, nodes + 1):
        node = joined(log, number)
        log.take(AddToRing(node=node, version=log.state.ring.version))
    for number in range(partitions // TOPIC_PARTITIONS):
        log.take(topic(log, number, replication))
    return log


def memory_bytes(packed: bytes) -> int:
    """What the state of a snapshot takes in memory."""
    tracemalloc.start()
    state = decode_state(packed)
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert state.cluster == CLUSTER
    return memory


def measured(nodes: int, partitions: int, replication: int) -> dict[str, float]:  # table
    began = time.process_time()
    log = cluster(nodes, partitions, replication)
    figures: dict[str, float] = {"all commands s": time.process_time() - began}
    state, last = log.state, max(log.state.nodes)
    packed = canonical_bytes(state)
    figures["state MB"] = memory_bytes(packed) / 1e6
    record = state.nodes[last]
    here = Replica(node=last, store=record.store)
    restart = RestartNode(node=last, store=record.store, addresses=record.addresses, program="")
    made = topic(log, 10**6, replication)
    figures["place a topic ms"] = 1e3 * seconds(lambda: topic(log, 10**6, replication))
    figures["apply create ms"] = 1e3 * seconds(applied(log, lambda: made))
    figures["apply restart ms"] = 1e3 * seconds(applied(log, lambda: restart))
    figures["apply fail ms"] = 1e3 * seconds(
        applied(log, lambda: FailNode(node=last, changed=record.changed))
    )
    figures["snapshot MB"] = len(packed) / 1e6
    figures["snapshot write s"] = seconds(lambda: canonical_bytes(state))
    figures["snapshot read s"] = seconds(lambda: decode_state(packed))
    digests = StateDigests()
    digests.of(state)
    after = Log()
    after.state, after.index = state, log.index
    after.take(made)
    figures["hash, whole s"] = seconds(lambda: StateDigests().of(state))
    states = [after.state, state]
    figures["hash, next ms"] = 1e3 * seconds(lambda: [digests.of(each) for each in states]) / 2
    members, placed = members_of(state), placements_of(state)
    figures["planner input s"] = seconds(lambda: (members_of(state), placements_of(state)))
    figures["plan: nothing to do s"] = seconds(lambda: balance(members, placed))
    joined(log, nodes + 1)
    more = [*members, members_of(log.state)[-1]._replace(role=PlacementRole.TAKES)]
    figures["plan: add a node s"] = seconds(lambda: fill(more, placed, more[-1].node))
    drained = [members[0]._replace(role=PlacementRole.LEAVES), *members[1:]]
    figures["plan: drain a node s"] = seconds(lambda: clear(drained, placed))
    crowd = [part._replace(nodes=tuple(sorted(state.nodes)[:replication])) for part in placed]
    figures["plan: all on one s"] = seconds(lambda: balance(members, crowd), repeat=1)
    some = next(iter(state.topics.values()))
    figures["a table ms"] = 1e3 * seconds(lambda: messages.encode(table_bodies.table(state, some, 1)))
    figures["orders, start s"] = seconds(lambda: node_orders.between(EMPTY, state, here))
    figures["orders, next ms"] = 1e3 * seconds(lambda: node_orders.between(state, after.state, here))
    figures |= leader_figures(state)
    figures |= layout_scale.figures(state, here, replication)
    return figures


def leader_figures(state: MetadataState) -> dict[str, float]:
    """A beat of every node, and a tick."""
    first = min(state.nodes)
    liveness = Liveness(first)
    liveness.begin(1, 0)
    beats = [Heartbeat(number, node.store, Index(1)) for number, node in state.nodes.items()]

    def beat() -> None:
        for heartbeat in beats:
            liveness.beat(state, heartbeat, 0)

    live = set(state.nodes)
    return {
        "beats of all nodes ms": 1e3 * seconds(beat),
        "tick ms": 1e3 * seconds(lambda: liveness.tick(state, 0)),
        "voters ms": 1e3
        * seconds(lambda: next_change(state, voters={first}, caught_up=live - {first}, leader=first)),
    }


def shown(console: Console, replication: int, columns: dict[str, dict[str, float]]) -> None:
    table = Table(
        title=f"metadata, replication {replication}, {TOPIC_PARTITIONS} partitions a topic, {ZONES} zones"
    )
    table.add_column("")
    for size in columns:
        table.add_column(size, justify="right")
    table.add_column("growth", justify="right")
    sizes = list(columns)
    partitions = [int(size.split("x")[1]) for size in sizes]
    for name in columns[sizes[0]]:
        values = [columns[size][name] for size in sizes]
        before, after = max(values[-2], 1e-9), max(values[-1], 1e-9)
        growth = math.log(after / before) / math.log(partitions[-1] / partitions[-2])
        table.add_row(name, *(f"{value:.3g}" for value in values), f"{growth:.1f}")
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metadata_scale", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="two small sizes")
    parser.add_argument("--replication", type=int, action="append", choices=(1, 3, 5))
    options = parser.parse_args()
    console = Console(width=110)
    record: dict[str, dict[str, dict[str, float]]] = {}
    for replication in options.replication or (1, 3):
        columns = {
            f"{nodes}x{partitions}": measured(nodes, partitions, replication)
            for nodes, partitions in (QUICK_SIZES if options.quick else SIZES)
        }
        shown(console, replication, columns)
        record[f"replication {replication}"] = columns
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    faults = [fault for columns in record.values() for fault in faults_of(columns)]
    console.print("\n".join(faults) or "all limits hold")
    return 1 if faults else 0


def faults_of(columns: dict[str, dict[str, float]]) -> list[str]:
    """The limits that do not hold for one replication, with their figures."""
    largest = list(columns.values())[-1]
    found = []
    slowest = max(value for name, value in largest.items() if name.startswith("plan:"))
    if slowest > PLAN_S_MAX:
        found.append(f"slowest plan {slowest:.2f} s, at most {PLAN_S_MAX}")
    if largest["snapshot MB"] * 1e6 > SNAPSHOT_BYTES_MAX:
        found.append(f"snapshot {largest['snapshot MB']:.1f} MB, at most {SNAPSHOT_BYTES_MAX / 1e6:.0f}")
    commit_ms = layout_scale.slowest_commit_ms(largest)
    if commit_ms > layout_scale.COMMIT_MS_MAX:
        found.append(f"COMMIT of a layout {commit_ms:.2f} ms, at most {layout_scale.COMMIT_MS_MAX:g}")
    return found + [f"{name} grows faster than n log n" for name in grow_too_fast(columns)]


def grow_too_fast(columns: dict[str, dict[str, float]]) -> list[str]:
    """Steps that grow faster than n log n from the second size to the last one. The first is too small."""
    sizes = list(columns)[1:]
    first, last = (int(size.split("x")[1]) for size in (sizes[0], sizes[-1]))
    most = GROWTH_SLACK * last * math.log(last) / (first * math.log(first))
    return [
        name
        for name, value in columns[sizes[-1]].items()
        if name != MANY_STEPS and value > most * columns[sizes[0]][name]
    ]


if __name__ == "__main__":
    raise SystemExit(main())
