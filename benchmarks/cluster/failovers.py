"""kill -9 of a partition's owner: how long until its rows are acknowledged again, by another node."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import ringfence
from benchmarks.cluster.nodes import Nodes, ServeProcess, until
from benchmarks.cluster.steady import SCHEMA, Steady
from benchmarks.paths import work_directory
from ringfence.control.cli.rebalance_api import ask_values
from ringfence.control.runtime.rpc import messages

KILLS = 20
WORST_S = 2.5
WORST_LEADER_S = 5.0
"""When the owner leads the metadata, too: an election comes first."""
BYTES_PER_S = 5e6
REST_S = 1.0


def measure(kills: int = KILLS) -> dict[str, Any]:
    """Seconds without an acknowledgement around each kill; every fourth one is of the leader."""
    plain: list[float] = []
    leading: list[float] = []
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Nodes(Path(folder)) as nodes:
        addresses = ",".join(node.address for node in nodes.all)
        with ringfence.connect(addresses) as client:
            made = client.create_topic("t", schema=SCHEMA, partitions=1, replication=3)
            partition = made.partitions[0].partition
            with Steady(addresses, "t", BYTES_PER_S) as steady:
                until(lambda: len(steady.acknowledged_s) > 100)
                for number in range(kills):
                    of_leader = kills_a_leader(number)
                    victim = _owner(nodes, client, partition, is_leader=of_leader)
                    began = time.perf_counter()
                    victim.kill()
                    until(lambda began=began: resumed(steady, began))
                    (leading if of_leader else plain).append(steady.longest_gap_s(began, time.perf_counter()))
                    victim.start()
                    nodes.until_whole()
                    time.sleep(REST_S)
    limits = {"worst_s": WORST_S, "worst_leader_s": WORST_LEADER_S}
    return {"limits": limits, "kills": kills, **figures(plain, leading)}


def figures(plain: list[float], leading: list[float]) -> dict[str, Any]:
    """Of seconds without an acknowledgement; a kind that was not tried has no line."""
    seen = {"resumed_s": plain, "resumed_leader_s": leading}
    told: dict[str, Any] = {
        name: {"median": round(median(s), 2), "worst": round(max(s), 2)} for name, s in seen.items() if s
    }
    return {**told, "all_s": [round(s, 2) for s in sorted(plain)]}


def kills_a_leader(number: int) -> bool:
    """Whether kill `number` is of an owner that leads the metadata, too: every fourth is."""
    return number % 4 == 3


def held(result: dict[str, Any]) -> bool:
    limits = {"resumed_s": WORST_S, "resumed_leader_s": WORST_LEADER_S}
    return all(result[name]["worst"] <= limit for name, limit in limits.items() if name in result)


def _owner(nodes: Nodes, client: ringfence.Client, partition: int, *, is_leader: bool) -> ServeProcess:
    """The owner, after a hand-over to or from the node that leads."""
    leader = nodes.leader()
    owner = client.topic("t").partitions[0].owner
    if (owner == leader.node) != is_leader:
        others = [node.node for node in nodes.all if node is not leader]
        target = (leader.node, *others) if is_leader else (others[0], leader.node, others[1])
        control = leader.control
        ask_values(
            control, messages.SteerRebalance(verb="start", action="move", moves=((partition, target),)), 10.0
        )
        until(lambda: ask_values(control, messages.SteerRebalance(verb="show"), 10.0)["state"] == "IDLE")
        owner = client.topic("t").partitions[0].owner
    return next(node for node in nodes.all if node.node == owner)


def resumed(steady: Steady, since_s: float) -> bool:
    """Some acknowledgements, and not only those that were on their way when the node died."""
    return len([at for at in steady.acknowledged_s[-50:] if at > since_s + 0.2]) >= 20
