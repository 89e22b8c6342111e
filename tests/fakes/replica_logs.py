"""Native nodes by a pure model of replica logs: the methods and shapes of the contract, and nothing else.

Logs are shared memory of one `Disks`: what an owner appends is at once with its followers and its learners,
unless they are cut off. Orders end at once. `fails` has reasons for methods that shall fail.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ringfence.native._node import Order
from tests.fakes.partition_lists import PartitionList

Place = tuple[int, int]
"""(topic, partition)"""


@dataclass(slots=True)
class Log:
    records: list[tuple[int, int]] = field(default_factory=list)
    fence: int = 0
    epoch: int = 0
    role: str = "none"
    others: tuple[int, ...] = ()
    first_us: int = 0

    @property
    def chain(self) -> int:
        return hash(tuple(self.records)) & ((1 << 63) - 1)

    def figures(self) -> dict[str, Any]:
        rows = sum(1 for _, value in self.records if value)
        return {
            "epoch": self.records[-1][0] if self.records else 0,
            "records": len(self.records),
            "end_offset": rows,
            "chain": self.chain,
            "cut": False,
        }


class Disks:
    """All native nodes of a cluster, by node id."""

    def __init__(self) -> None:
        self.nodes: dict[int, NativeModel] = {}
        self.cut: set[int] = set()


class NativeModel(PartitionList):
    """One node. `append` is a client's; everything else is as `ringfence.native._node.Node` has it."""

    def __init__(self, disks: Disks, node: int) -> None:
        self.disks, self.id = disks, node
        disks.nodes[node] = self
        self.logs: dict[Place, Log] = {}
        self.received: dict[tuple[int, int], tuple[Place, Log]] = {}
        self.sync: dict[tuple[int, int], tuple[Place, int]] = {}
        """Place and attempt by change and target."""
        self.rates: list[int] = []
        self.fails: dict[str, str] = {}
        self.calls: list[str] = []
        self.outcomes: list[tuple[Any, ...]] = []
        self._number = 0
        self.tells_times = True
        self.is_writing = False  # what it has appended is not on disk yet

    # ---- orders --------------------------------------------------------------------------------------

    def order(self, order: Order) -> int:
        number: int = getattr(self, order.name)(*order.arguments)
        return number

    def open(
        self,
        topic: int,
        partition: int,
        _lo: int,
        _hi: int,
        epoch: int,
        replicas: tuple[tuple[int, bytes], ...] = (),
        _quorum: int = 1,
    ) -> int:
        log = self.logs.setdefault((topic, partition), Log())
        if epoch < log.fence:
            return self._done("open", f"fenced at {log.fence}")
        log.first_us = 0
        log.epoch, log.role, log.others = epoch, "owner", tuple(node for node, _ in replicas)
        log.records.append((epoch, 0))
        self._spread((topic, partition))
        return self._done("open")

    def follow(
        self, topic: int, partition: int, _lo: int, _hi: int, epoch: int, owner: int, _forced: int = 0
    ) -> int:
        log = self.logs.setdefault((topic, partition), Log())
        log.role, log.epoch, log.fence = "follower", 0, max(log.fence, epoch)
        known = self.disks.nodes.get(owner)
        if known is not None and known.logs.get((topic, partition), log).role == "owner":
            known._spread((topic, partition))
        return self._done("follow")

    def fence(self, topic: int, partition: int, epoch: int) -> int:
        log = self.logs.setdefault((topic, partition), Log())
        if log.fence > epoch:
            return self._done("fence", f"fenced at {log.fence}")
        log.fence = epoch
        if log.epoch < epoch:
            log.epoch = 0
        return self._done("fence", result=log.figures())

    def hold(self, topic: int, partition: int, epoch: int) -> int:
        number = self.fence(topic, partition, epoch)
        if self.tells_times:
            kind, _, error, told = self.outcomes.pop()
            self.outcomes.append((kind, number, error, {**told, "stopped_us": _now_us()}))
        return number

    def await_records(self, topic: int, partition: int, records: int, _timeout_ms: int) -> int:
        known = [*self.logs.items(), *self.received.values()]
        log = next((log for place, log in known if place == (topic, partition)), Log())
        if self.is_writing or len(log.records) < records:
            return self._done("await_records", "not there yet")
        return self._done("await_records", result=log.figures())

    def set_peer(self, _node: int, _addresses: list[str]) -> int:
        return self._done("set_peer")

    def sync_start(
        self,
        topic: int,
        partition: int,
        change: int,
        attempt: int,
        node: int,
        _store: bytes,
        _bytes_per_s: int = 0,
    ) -> int:
        self.sync[change, node] = ((topic, partition), attempt)
        self._spread((topic, partition))
        return self._done("sync_start")

    def sync_rate(self, _change: int, bytes_per_s: int) -> int:
        self.rates.append(bytes_per_s)
        return self._done("sync_rate")

    def sync_stop(self, change: int) -> int:
        self.sync = {key: known for key, known in self.sync.items() if key[0] != change}
        return self._done("sync_stop")

    def receive_start(
        self,
        topic: int,
        partition: int,
        _lo: int,
        _hi: int,
        change: int,
        attempt: int,
        _epoch: int,
        _owner: int,
        _forced: int = 0,
    ) -> int:
        # A partition has one log on a store: an old copy that was kept is gone on with.
        kept = self.logs.pop((topic, partition), Log())
        kept.role, kept.epoch = "learner", 0
        self.received[change, attempt] = ((topic, partition), kept)
        return self._done("receive_start")

    def adopt(self, change: int, attempt: int) -> int:
        if (change, attempt) not in self.received:
            return self._done("adopt", "nothing was received for it")
        place, log = self.received.pop((change, attempt))
        self.logs[place] = log
        return self._done("adopt")

    def discard(self, change: int, attempt: int) -> int:
        self.received.pop((change, attempt), None)
        return self._done("discard")

    def drop(self, topic: int, partition: int) -> int:
        del self.logs[topic, partition]
        return self._done("drop")

    def close(self, topic: int, partition: int) -> int:
        self.logs[topic, partition].epoch = 0
        return self._done("close")

    def __getattr__(self, name: str) -> Any:
        """Tables and topics: nothing of changes depends on them."""
        if name in {"install_topic", "install_table", "remove_topic", "truncate", "set_level"}:
            return lambda *_: self._done(name)
        raise AttributeError(name)

    # ---- figures -------------------------------------------------------------------------------------

    def partitions(self) -> list[dict[str, Any]]:
        known = [*self.logs.items(), *(held for held in self.received.values())]
        return [
            {
                "topic": place[0],
                "partition": place[1],
                "open": log.epoch > 0,
                "owner_epoch": log.epoch,
                "durable": not self.is_writing,
                "role": log.role,
                "first_acknowledged_us": log.first_us if self.tells_times else 0,
                **log.figures(),
            }
            for place, log in known
        ]

    def syncs(self) -> list[dict[str, Any]]:
        shown = []
        for (change, node), (place, attempt) in self.sync.items():
            target = self.disks.nodes[node].received.get((change, attempt))
            has = 0 if target is None else len(target[1].records)
            gap = len(self.logs[place].records) - has
            state = "copying" if target is None or gap else "contiguous"
            why = self.fails.get("sync", "")
            shown.append(
                {
                    "change": change,
                    "attempt": attempt,
                    "node": node,
                    "gap": gap,
                    "rows": has,
                    "bytes": 100 * has,
                    "state": "failed" if why else state,
                    "why": why,
                }
            )
        return shown

    # ---- a client, the wire ----------------------------------------------------------------------------

    def append(self, place: Place, value: int) -> bool:
        """A row; True if it is on a majority, which is what an acknowledgement needs."""
        log = self.logs.get(place)
        if log is None or log.epoch == 0 or log.epoch < log.fence or self.id in self.disks.cut:
            return False
        if all(known != value for _, known in log.records):
            log.records.append((log.epoch, value))
        acknowledged = self._spread(place)
        if acknowledged and not log.first_us:
            log.first_us = _now_us()
        return acknowledged

    def _spread(self, place: Place) -> bool:
        log, count = self.logs[place], 1
        if self.id in self.disks.cut:
            return not log.others
        for node in log.others:
            other = self.disks.nodes[node].logs.get(place)
            if other is None or node in self.disks.cut or other.fence > log.epoch or other.role == "owner":
                continue
            other.records = list(log.records)
            count += 1
        for (change, node), (synced, attempt) in self.sync.items():
            held = self.disks.nodes[node].received.get((change, attempt))
            if synced == place and held is not None and not self.fails.get("sync"):
                held[1].records = list(log.records)
        return count > (len(log.others) + 1) // 2

    def _done(self, name: str, error: str | None = None, result: dict[str, Any] | None = None) -> int:
        self._number += 1
        self.calls.append(name)
        self.outcomes.append(("order", self._number, self.fails.get(name, error), result or {}))
        return self._number


def _now_us() -> int:
    return time.time_ns() // 1_000
