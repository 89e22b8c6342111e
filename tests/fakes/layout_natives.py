"""Native nodes for layout changes: replica logs, producer tables, seals. Orders end at once, in their order.

Copies follow at once, as in `replica_logs`: replication is not the subject. A child's log is created by
`open` and `follow`, so a call that comes after the drop makes it again, as the real engine does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringfence.control.model.ids import Epoch
from ringfence.control.model.log_end import LogEnd
from tests.fakes.partition_lists import PartitionList

Place = tuple[int, int]


@dataclass(slots=True)
class Part:
    """One partition of one store. A record is (epoch, row); rows are 0 for records without one."""

    records: list[tuple[int, int]] = field(default_factory=list)
    fence: int = 0
    epoch: int = 0  # of its own ownership; 0: it does not own the partition
    owner: int = 0  # the node it follows
    others: tuple[int, ...] = ()
    table: dict[int, int] = field(default_factory=dict)  # producer id: record that touched it
    last_pages: set[int] = field(default_factory=set)
    gates: dict[int, bytes] = field(default_factory=dict)
    sealed: LogEnd | None = None
    is_named: bool = False  # a table names it
    ancestors: frozenset[int] = frozenset()  # as the table has them
    stages: int = 0
    forgets: bool = False  # a pruned source: unknown producers count as forgotten
    start: int = 0

    @property
    def is_served(self) -> bool:
        """Whether a table names it, and the log has everything that it inherits."""
        return self.is_named and self.ancestors <= self.last_pages

    @property
    def end(self) -> LogEnd:
        epoch = self.records[-1][0] if self.records else 0
        rows = sum(1 for _, row in self.records if row)
        chain = hash(tuple(self.records)) & (1 << 62) - 1
        return LogEnd(Epoch(epoch), len(self.records), rows, chain)


class Natives:
    """The native nodes of a cluster; `located` are the addresses that each knows, `cut` do not answer."""

    def __init__(self) -> None:
        self.parts: dict[int, dict[Place, Part]] = {}
        self.located: dict[int, set[int]] = {}
        self.cut: set[int] = set()

    def add(self, node: int) -> NativeLayoutNode:
        self.parts.setdefault(node, {})
        self.located.setdefault(node, set())
        return NativeLayoutNode(self, node)

    def spread(self, node: int, place: Place) -> None:
        """What the owner has is with the followers that it can reach."""
        owner = self.parts[node][place]
        for other in owner.others:
            part = self.parts[other].get(place)
            if part is None or other in self.cut or node in self.cut or other not in self.located[node]:
                continue
            if part.fence <= owner.epoch and not part.epoch:
                part.records, part.table = list(owner.records), dict(owner.table)
                part.last_pages, part.gates = set(owner.last_pages), dict(owner.gates)

    def on_quorum(self, node: int, place: Place) -> bool:
        part = self.parts[node].get(place)
        if part is None or node in self.cut:
            return False
        self.spread(node, place)
        copies = [self.parts[other].get(place) for other in part.others]
        same = sum(copy is not None and copy.records == part.records for copy in copies)
        return same + 1 > (len(part.others) + 1) // 2

    def append(self, node: int, place: Place, row: int, producer: int = 0) -> bool:
        """A client's row; True if it is acknowledged."""
        part = self.parts[node].get(place)
        if part is None or not part.epoch or part.epoch < part.fence or part.sealed is not None:
            return False
        if not part.is_served:
            return False
        if all(known != row for _, known in part.records):
            part.records.append((part.epoch, row))
            part.table[producer or row] = len(part.records)
        return self.on_quorum(node, place)


class NativeLayoutNode(PartitionList):
    """One native node, with the methods of `ringfence.native._node.Node` that these orders need."""

    def __init__(self, natives: Natives, node: int) -> None:
        self.natives, self.id = natives, node
        self.names: list[str] = []
        self.fails: dict[str, str] = {}

    @property
    def parts(self) -> dict[Place, Part]:
        return self.natives.parts[self.id]

    def carry_out(self, name: str, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """Execute one order. RuntimeError: the engine refuses it."""
        self.names.append(name)
        if name in self.fails:
            raise RuntimeError(self.fails[name])
        known = getattr(self, f"_{name}", None)
        return (known(*arguments) or {}) if known is not None else {}

    def partitions(self) -> list[dict[str, Any]]:
        return [
            {
                "topic": topic,
                "partition": partition,
                "open": bool(part.epoch) and part.epoch >= part.fence and part.is_served,
                "owner_epoch": part.epoch,
                "fence": part.fence,
                "records": part.end.records,
                "start_offset": part.start,
                "end_offset": part.end.offset,
                "chain": part.end.chain,
                "stages": part.stages,
                "sources": [(source, 1) for source in sorted(part.last_pages)],
                "quarantined": None,
                "role": "owner" if part.epoch else "follower",
            }
            for (topic, partition), part in self.parts.items()
        ]

    def syncs(self) -> list[dict[str, Any]]:
        return []

    def _set_peer(self, node: int, _addresses: Any) -> None:
        self.natives.located[self.id].add(node)

    def _open(
        self, topic: int, partition: int, _lo: int, _hi: int, epoch: int, replicas: Any = (), _quorum: int = 1
    ) -> None:
        part = self.parts.setdefault((topic, partition), Part())
        assert part.sealed is None, f"I3: sealed partition {partition} gets an epoch record"
        if part.epoch == epoch:
            return  # under its own epoch again: done
        if epoch < part.fence:
            raise RuntimeError(f"fenced at {part.fence}")
        part.epoch, part.owner, part.others = epoch, 0, tuple(node for node, _ in replicas)
        part.records.append((epoch, 0))

    def _follow(
        self, topic: int, partition: int, _lo: int, _hi: int, epoch: int, owner: int, _forced: int = 0
    ) -> None:
        part = self.parts.setdefault((topic, partition), Part())
        part.epoch, part.owner, part.fence = 0, owner, max(part.fence, epoch)

    def _hold(self, topic: int, partition: int, epoch: int) -> dict[str, Any]:
        return self._fence(topic, partition, epoch) | {"stopped_us": 1_000}

    def _fence(self, topic: int, partition: int, epoch: int) -> dict[str, Any]:
        part = self.parts[topic, partition]
        if part.fence > epoch:
            raise RuntimeError(f"fenced at {part.fence}")
        part.fence = epoch
        end = part.end
        return {"epoch": end.epoch, "records": end.records, "end_offset": end.offset, "chain": end.chain}

    def _await_records(self, topic: int, partition: int, records: int, _timeout_ms: int) -> dict[str, Any]:
        end = self.parts[topic, partition].end
        if end.records < records:
            raise RuntimeError(f"{end.records} of {records} records")
        return {"epoch": end.epoch, "records": end.records, "end_offset": end.offset, "chain": end.chain}

    def _close(self, topic: int, partition: int) -> None:
        self.parts[topic, partition].epoch = 0

    def _drop(self, topic: int, partition: int) -> None:
        if (topic, partition) not in self.parts:
            raise RuntimeError(f"partition {partition} is not here")
        del self.parts[topic, partition]

    def _open_sealed(
        self, topic: int, partition: int, _lo: int, _hi: int, _epoch: int, end: tuple[int, ...], _: Any = ()
    ) -> None:
        self._seal(topic, partition, end)

    def _follow_sealed(
        self, topic: int, partition: int, _lo: int, _hi: int, _epoch: int, _: int, end: tuple[int, ...]
    ) -> None:
        self._seal(topic, partition, end)

    def _seal(self, topic: int, partition: int, end: tuple[int, ...]) -> None:
        part = self.parts.setdefault((topic, partition), Part())
        assert part.end.records <= end[1], f"I3: partition {partition} is longer than its end"
        part.sealed, part.epoch = LogEnd(*end[:4]), 0  # type: ignore[arg-type]

    def _install_table(
        self,
        topic: int,
        _generation: int,
        _version: int,
        _body: bytes,
        active: Any,
        _redirect: bytes,
        _redirects: Any,
        _sealed: Any = (),
        ancestors: Any = (),
    ) -> None:
        named = {partition for partition, *_ in active}
        lineage = dict(ancestors)
        for (other, partition), part in self.parts.items():
            if other == topic:
                part.is_named = partition in named
                part.ancestors = frozenset(lineage.get(partition, ()))
