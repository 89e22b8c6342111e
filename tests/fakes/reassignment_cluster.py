"""The runtime of changes in one loop: the product's leader, nodes and followers over modelled native nodes.

One metadata log for all, applied at once where it is proposed; native nodes are `fake_native`. Tests kill the
leader by beginning another term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

from msgspec.structs import replace

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.reassignment_commands import PrepareChange
from ringfence.control.model.results import Refused
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.model.topics import Assignment, Replica
from ringfence.control.runtime.data_plane.cleanup_confirmations import CleanupConfirmations
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.raft.proposer_interface import Applied
from ringfence.control.runtime.reassignment.leader_loop import ReassignmentLeader
from ringfence.control.runtime.reassignment.order_batches import OrderBatches
from ringfence.control.runtime.reassignment.participant import Participant
from ringfence.control.state_machines.metadata.state_machine import apply, validate
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder
from ringfence.control.state_machines.rebalance.loads import LoadBoard
from ringfence.native._node import Order
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import cluster, create, entry
from tests.fakes.replica_logs import Disks, NativeModel


class Metadata:  # the parts of `RaftProposer` that changes use
    """A proposer whose entries are committed at once."""

    def __init__(self, state: MetadataState, index: int) -> None:
        self.state, self.index = state, index
        self.time_ms = 0
        self.commands: list[Command] = []
        self.listeners: list[Callable[[MetadataState, MetadataState, int], None]] = []
        self._reaching: list[asyncio.Event] = []
        self.replica: Any = SimpleNamespace(
            leads=True,
            term=1,
            applied=SimpleNamespace(index=index, term=1),
            leader=1,
            supervise=lambda _: None,
        )

    @property
    def applied(self) -> Any:
        return self.replica.applied

    async def propose(self, command: Command) -> Applied:
        await asyncio.sleep(0)
        refusal = validate(replace(self.state, time_ms=max(self.state.time_ms, self.time_ms)), command)
        if refusal is not None:
            raise RequestRefused(refusal.code, refusal.message)
        self.index += 1
        before = self.state
        self.state, result = apply(before, entry(self.index, command, time_ms=self.time_ms))
        assert not isinstance(result, Refused), result
        self.replica.applied.index = self.index
        self.commands.append(command)
        for listener in self.listeners:
            listener(before, self.state, self.index)
        for event in self._reaching:
            event.set()
        self._reaching.clear()
        return Applied(self.index, result)

    async def until_applied(self, index: int) -> None:
        while self.index < index:
            event = asyncio.Event()
            self._reaching.append(event)
            await event.wait()

    async def read_barrier(self) -> None:
        await asyncio.sleep(0)


class FakeDriver:
    """Orders of a modelled node, which end at once."""

    storage_failed = False
    settled_index = 0

    def __init__(self, node: NativeModel) -> None:
        self.node = node

    def settled(self, index: int) -> None:
        assert index >= self.settled_index, "generations never go back"
        self.settled_index = index

    async def order(self, order: Order, **_: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        number = self.node.order(order)
        _, known, error, result = self.node.outcomes.pop()
        assert known == number
        if error is not None:
            raise OrderError(error)
        return dict(result)


class ReassignmentCluster:
    """Nodes 1, 2, 5, 8 and a topic of `partitions`. `async with` starts and ends it."""

    def __init__(
        self, nodes: int = 3, *, replication: int = 1, partitions: int = 1, hold_s: int = 0, level: int = 0
    ) -> None:
        state, at = cluster(nodes), 3 * nodes + 1
        state = replace(state, config={**state.config, "reverse_hold_s": hold_s}, level=level)
        numbers = sorted(state.nodes)
        placed = (tuple(int(node) for node in numbers[:replication]),) * partitions
        state, result = apply(state, entry(at, create(partitions=partitions, nodes=placed)))
        assert not isinstance(result, Refused), result
        log: Any = Metadata(state, at)
        self.log = log
        self.topic = TopicId(at)
        self.partitions = [PartitionId(at << 16 | number) for number in range(partitions)]
        self.disks = Disks()
        self.dead: set[int] = set()
        self.obeys: dict[int, Participant] = {}
        self.followers: dict[int, OrderExecutor] = {}
        self.lefts: list[CleanupConfirmations] = []
        for number in numbers:
            NativeModel(self.disks, number)
        self.board = LoadBoard()
        self.batches = OrderBatches(level=lambda: log.state.level, one=self.ask, many=self.ask_many)
        self.leader = ReassignmentLeader(log, self.batches.ask, self.board)

    async def __aenter__(self) -> Self:
        for number in self.disks.nodes:
            here = Replica(node=NodeId(number), store=self.log.state.nodes[number].store)
            driver: Any = FakeDriver(self.disks.nodes[number])
            left = CleanupConfirmations(self.log, here.store)
            follower = OrderExecutor(
                driver,
                here,
                Health(),
                on_dropped=lambda _: None,
                on_cleaned_up=left.confirm,
                on_failed=_raise,
            )
            follower.start()
            follower.enqueue(EMPTY, self.log.state, self.log.index)
            self.log.listeners.append(follower.enqueue)
            self.obeys[number] = Participant(self.log, follower, driver, here)
            self.followers[number] = follower
            self.lefts.append(left)
        self.log.listeners.append(lambda *_: self.leader.wake())
        await self.settled()
        self.leader.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leader.close()
        self.batches.close()
        for left in self.lefts:
            left.close()
        for follower in self.followers.values():
            await follower.close()

    async def settled(self) -> None:
        for follower in self.followers.values():
            await follower.until_executed(self.log.index)

    def another_leader(self) -> None:
        """The one before is gone with all that it had heard."""
        self.log.replica.term += 1
        self.log.replica.applied.term += 1
        self.leader.wake()

    async def until(self, what: Callable[[], bool], seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not what():  # noqa: ASYNC110 - many things may make it true
                await asyncio.sleep(0.005)

    def now(self, partition: int = 0) -> Assignment:
        assignment: Assignment = self.log.state.topics[self.topic].assignments[self.partitions[partition]]
        return assignment

    def owner(self, partition: int = 0) -> NativeModel:
        return self.disks.nodes[self.now(partition).owner.node]

    def append(self, value: int, partition: int = 0) -> bool:
        """A client that finds the owner by the metadata."""
        return self.owner(partition).append((self.topic, self.partitions[partition]), value)

    def rows(self, node: int, partition: int = 0) -> list[int]:
        log = self.disks.nodes[node].logs.get((self.topic, self.partitions[partition]))
        return [] if log is None else [value for _, value in log.records if value]

    async def ask(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        return await (await self.reached(order.to.node)).execute(term, order)

    async def ask_many(
        self, term: int, orders: tuple[ReassignmentOrder, ...]
    ) -> tuple[ReassignmentAnswer | None, ...]:
        return await (await self.reached(orders[0].to.node)).execute_many(term, orders)

    async def reached(self, node: int) -> Participant:
        await asyncio.sleep(0)
        if node in self.dead or node in self.disks.cut:
            raise RequestRefused(Code.INTERNAL, f"node {node} does not answer")
        return self.obeys[node]


def _raise(error: Exception) -> None:
    raise error


def prepare(small: ReassignmentCluster, *nodes: int) -> PrepareChange:
    return PrepareChange(
        topic=small.topic,
        partition=small.partitions[0],
        epoch=small.now().epoch,
        owner=NodeId(nodes[0]),
        replicas=tuple(NodeId(node) for node in nodes),
    )


def idle(small: ReassignmentCluster) -> bool:
    state = small.log.state
    return not state.changes and not state.leftovers and not state.rebalance.is_active


async def publish(small: ReassignmentCluster, sent: list[int], stop: asyncio.Event) -> None:
    """A producer: each row until it is acknowledged, one after the other."""
    value = 0
    while not stop.is_set():
        value += 1
        while not small.append(value):
            await asyncio.sleep(0.001)
            if stop.is_set():
                return
        sent.append(value)
        await asyncio.sleep(0.001)


async def moved(nodes: int, replication: int, *after: int) -> None:
    async with ReassignmentCluster(nodes, replication=replication) as small:
        sent: list[int] = []
        stop = asyncio.Event()
        producer = asyncio.create_task(publish(small, sent, stop))
        await small.until(lambda: len(sent) > 5)
        await small.log.propose(prepare(small, *after))
        await small.until(lambda: idle(small))
        count = len(sent)
        await small.until(lambda: len(sent) > count + 5)
        stop.set()
        await producer
        assert small.now().owner.node == after[0]
        assert small.rows(after[0])[: len(sent)] == sent
        for node, native in small.disks.nodes.items():
            assert native.received == {}
            assert native.sync == {}
            assert bool(native.logs) == (node in after), "who left has given its rows back"
