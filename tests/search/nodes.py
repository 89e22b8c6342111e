"""What one node of a searched world does: orders, steps that follow from its log, where its log ends."""

from __future__ import annotations

from typing import Any, NamedTuple

from ringfence.control.model.ids import Epoch
from ringfence.control.model.reassignments import LogEnd
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.reassignment_rules import quorum
from ringfence.control.state_machines.node_orders import ClosePartition, FencePartition, OpenPartition
from ringfence.control.state_machines.reassignment.cleanup import Adopt, Discard, Release, StopSync
from ringfence.control.state_machines.reassignment.messages import (
    Ended,
    Fence,
    LookOpen,
    OrderDone,
    Prove,
    Receive,
    Sync,
    Synced,
    SyncState,
)
from tests.search.log import Numbers

Record = tuple[int, int]


class Node(NamedTuple):
    """`staged`: what was received for each change, by place; volatile: `epoch`, `syncing`, `match`."""

    applied: int
    up: bool = True
    records: tuple[Record, ...] = ()
    fence: int = 0
    epoch: int = 0
    staged: tuple[tuple[int, frozenset[tuple[int, Record]]], ...] = ()
    syncing: frozenset[tuple[int, int]] = frozenset()
    match: tuple[tuple[int, int], ...] = ()
    wiped: bool = False

    @property
    def admits(self) -> bool:
        return self.up and self.epoch > 0 and self.epoch >= self.fence


class NodeRules:
    """The rules of a node's own log; `places` are the replicas by place, `chains` the numbers of logs."""

    places: list[Replica]
    chains: Numbers
    replication: int

    def obey(self, nodes: tuple[Node, ...], node: Node, order: Any) -> tuple[Node, Any, frozenset[Any]]:
        none: frozenset[Any] = frozenset()
        match order:
            case Receive(change=change):
                staged = dict(node.staged)
                staged.setdefault(change, self.taken_up(nodes[self.places.index(order.owner)], node))
                return (
                    node._replace(staged=tuple(sorted(staged.items(), key=lambda item: item[0]))),
                    OrderDone(),
                    none,
                )
            case Sync(change=change, target=to):
                target = self.places.index(to)
                if (change, target) not in node.syncing and node.epoch:
                    node = node._replace(syncing=node.syncing | {(change, target)})
                    sent = self.copied(change, target, node.records)
                    return node, None, sent
                has = len(self.contiguous(nodes[target], change))
                if has < len(node.records) or (change, target) not in node.syncing:
                    return node, None, none
                return node, Synced(state=SyncState.CONTIGUOUS), none
            case Fence(change=change):
                if node.fence > change:
                    return node, None, none
                fenced = node._replace(fence=change, epoch=node.epoch if node.epoch >= change else 0)
                return fenced, Ended(end=self.end(fenced.records)), none
            case Prove(change=change, records=records):
                log = self.contiguous(node, change) if change in dict(node.staged) else node.records
                return node, Ended(end=self.end(log)) if len(log) >= records else None, none
            case LookOpen(epoch=epoch):
                return node, OrderDone() if self.is_open(node, epoch) else None, none
        raise AssertionError(order)

    def taken_up(self, owner: Node, node: Node) -> frozenset[tuple[int, Record]]:
        """Of an old copy that was kept, what the owner has too: both ends are compared by epochs."""
        common = 0
        for mine, its in zip(node.records, owner.records, strict=False):
            if mine != its:
                break
            common += 1
        return frozenset(enumerate(node.records[:common]))

    def copied(self, change: int, target: int, records: tuple[Record, ...]) -> frozenset[Any]:
        return frozenset(("data", change, target, place, record) for place, record in enumerate(records))

    def is_open(self, node: Node, epoch: int) -> bool:
        if node.epoch != epoch:
            return False
        return self.mark(node) > node.records.index((epoch, 0))

    def mark(self, node: Node) -> int:
        """Records on a quorum, its own epoch's first among them; else 0 (3.7)."""
        held = sorted([len(node.records), *(count for _, count in node.match)], reverse=True)
        needed = quorum(self.replication)
        mark = held[needed - 1] if len(held) >= needed else 0
        if (node.epoch, 0) not in node.records or mark <= node.records.index((node.epoch, 0)):
            return 0
        return mark

    def contiguous(self, node: Node, change: int) -> tuple[Record, ...]:
        held = dict(dict(node.staged).get(change, ()))
        records: list[Record] = []
        while len(records) in held:
            records.append(held[len(records)])
        return tuple(records)

    def end(self, records: tuple[Record, ...]) -> LogEnd:
        epoch = Epoch(records[-1][0] if records else 0)
        return LogEnd(epoch, len(records), len(records), self.chains.of(records))

    def perform(self, node: Node, order: Any) -> Node:
        match order:
            case OpenPartition(epoch=epoch):
                if epoch < node.fence or epoch <= node.epoch:
                    return node
                return node._replace(epoch=epoch, match=(), records=(*node.records, (epoch, 0)))
            case FencePartition(epoch=epoch):
                return node._replace(fence=max(node.fence, epoch))
            case ClosePartition():
                return node._replace(epoch=0, match=())
            case StopSync(change=change):
                return node._replace(syncing=frozenset(one for one in node.syncing if one[0] != change))
            case Adopt(change=change):
                if change not in dict(node.staged):
                    return node
                return self.without(node, change)._replace(records=self.contiguous(node, change))
            case Discard(change=change):
                return self.without(node, change)
            case Release():
                return node._replace(records=(), epoch=0, match=())
            case _:
                return node

    def without(self, node: Node, change: int) -> Node:
        return node._replace(staged=tuple(one for one in node.staged if one[0] != change))
