"""What a forwarded byte costs: bytes that a move sends against the least, CPU against that of a follower.

A move's target and a follower take one stream by one mechanism. The least that a move can send is what the
partition holds when it stops: bodies without headers. CPU is that of who takes and of who gives, each less
what the process uses without it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ringfence
from benchmarks.cluster.nodes import Nodes, ServeProcess, until
from benchmarks.cluster.rebalances import rebalanced
from benchmarks.cluster.steady import SCHEMA, Steady
from benchmarks.paths import work_directory
from benchmarks.process import usage

BYTES_PER_S = 60e6
BATCH_BYTES = 256 << 10
SECONDS = 10.0
STORED_BYTES = 500 << 20
COPY_BYTES_PER_S = 100_000_000
"""So that a copy lasts for some seconds, as a follower's stream does: 100 ticks of CPU time at least."""
SMALL_BYTES = 24 << 20
MOVES = 6
LIMITS = {"bytes_ratio": 1.05, "cpu_ratio": 1.1}


def measure() -> dict[str, Any]:
    """Two clusters: one whose partition is copied, one whose partition has followers."""
    target, owner_alone = _copied()
    follower = _followed(owner_alone)
    return {
        "limits": LIMITS,
        "bytes_per_s": BYTES_PER_S,
        "follower": follower,
        "target": target,
        "cpu_ratio": round(target["ns_a_byte"] / follower["ns_a_byte"], 2),
        "source_cpu_ratio": round(target["source_ns_a_byte"] / follower["source_ns_a_byte"], 2),
        **_bytes(),
    }


def held(result: dict[str, Any]) -> bool:
    return all(result[name] <= limit for name, limit in LIMITS.items())


# ---- CPU ----------------------------------------------------------------------------------------------


class _Sample:
    """What owner and takers of a stream have used, and what the takers took, since it was made."""

    def __init__(self, owner: ServeProcess, takers: list[ServeProcess]) -> None:
        self._owner, self._takers = owner, takers
        self._began, self._before = time.perf_counter(), self._now()

    def _now(self) -> tuple[int, int, int]:
        taken = sum(_counters(taker)["received_bytes"] for taker in self._takers)
        return _cpu_ns(self._owner), sum(_cpu_ns(taker) for taker in self._takers), taken

    def seen(self) -> tuple[float, int, int, int]:
        """Seconds, CPU of the owner and of the takers in ns, body bytes taken."""
        owner, takers, taken = (new - old for new, old in zip(self._now(), self._before, strict=True))
        return time.perf_counter() - self._began, owner, takers, taken


def _cost(sample: _Sample, idle: float, owner_alone: float) -> dict[str, float]:
    """`idle` of the takers, `owner_alone`: ns of CPU a second without the stream between them."""
    seconds, owner, takers, taken = sample.seen()
    if not taken:
        raise RuntimeError("nothing was forwarded: the replicas or the move did not stand")
    return {
        "seconds": round(seconds, 1),
        "taken_mb": round(taken / 1e6),
        "ns_a_byte": round((takers - idle * seconds) / taken, 3),
        "source_ns_a_byte": round((owner - owner_alone * seconds) / taken, 3),
    }


def _copied() -> tuple[dict[str, float], float]:
    """Of a move under load; and what the owner uses in a second without it."""
    with _cluster() as nodes:
        nodes.configure(sync_bytes_per_s=COPY_BYTES_PER_S)
        addresses = ",".join(node.address for node in nodes.all)
        part = _topic(addresses, "t", 1)
        owner, takers = _sides(nodes, part.owner)
        target = takers[:1]
        with Steady(addresses, "t", BYTES_PER_S, BATCH_BYTES) as steady:
            until(lambda: len(steady.acknowledged_s) > 100)
            calm = _Sample(owner, target)
            time.sleep(SECONDS)
            seconds, alone, idle, _ = calm.seen()
            until(lambda: len(steady.acknowledged_s) * BATCH_BYTES > STORED_BYTES, 300.0)
            sample = _Sample(owner, target)
            moves = ((part.partition, (target[0].node,)),)
            rebalanced(nodes.all[0].control, action="move", moves=moves)
            return _cost(sample, idle / seconds, alone / seconds), alone / seconds


def _followed(owner_alone: float) -> dict[str, float]:
    """Of two followers under the same load."""
    with _cluster() as nodes:
        addresses = ",".join(node.address for node in nodes.all)
        owner, takers = _sides(nodes, _topic(addresses, "t", 3).owner)
        calm = _Sample(owner, takers)
        time.sleep(SECONDS)
        seconds, _, idle, _ = calm.seen()
        with Steady(addresses, "t", BYTES_PER_S, BATCH_BYTES) as steady:
            until(lambda: len(steady.acknowledged_s) > 100)
            sample = _Sample(owner, takers)
            time.sleep(SECONDS)
            return _cost(sample, idle / seconds, owner_alone)


def _sides(nodes: Nodes, owner: int) -> tuple[ServeProcess, list[ServeProcess]]:
    return next(node for node in nodes.all if node.node == owner), [
        node for node in nodes.all if node.node != owner
    ]


def _cpu_ns(node: ServeProcess) -> int:
    assert node.process is not None
    used = usage(node.process.pid)
    return used["user_ns"] + used["system_ns"]


# ---- bytes --------------------------------------------------------------------------------------------


def _bytes(moves: int = MOVES) -> dict[str, Any]:
    """Bytes that sources sent over those that their partitions held when they stopped, all moves together."""
    sent = least = copied = 0
    with _cluster() as nodes:
        addresses = ",".join(node.address for node in nodes.all)
        for number in range(moves):
            before = {node.node: _counters(node) for node in nodes.all}
            part = _topic(addresses, f"t{number}", 1)
            with Steady(addresses, f"t{number}", 20e6) as steady:
                until(lambda: len(steady.acknowledged_s) * steady.batch_bytes > SMALL_BYTES)
                others = [node.node for node in nodes.all if node.node != part.owner]
                rebalanced(
                    nodes.all[0].control, action="move", moves=((part.partition, (others[number % 2],)),)
                )
            source = next(node for node in nodes.all if node.node == part.owner)
            after, known = _counters(source), before[source.node]
            sent += after["replicated_bytes"] - known["replicated_bytes"]
            copied += after["copied_bytes"] - known["copied_bytes"]
            least += after["bytes"] - known["bytes"]
    return {
        "moves": moves,
        "least_mb": round(least / 1e6, 2),
        "sent_mb": round(sent / 1e6, 2),
        "copied_from_disk_mb": round(copied / 1e6, 2),
        "bytes_ratio": round(sent / least, 4),
    }


@contextmanager
def _cluster() -> Iterator[Nodes]:
    with (
        tempfile.TemporaryDirectory(dir=work_directory()) as folder,
        Nodes(Path(folder), options=("--http", "127.0.0.1:0")) as nodes,
    ):
        yield nodes


def _topic(addresses: str, name: str, replication: int) -> Any:
    with ringfence.connect(addresses) as client:
        return client.create_topic(name, schema=SCHEMA, partitions=1, replication=replication).partitions[0]


def _counters(node: ServeProcess) -> dict[str, int]:
    with ringfence.connect(node.address) as client:
        return dict(client.status().counters)
