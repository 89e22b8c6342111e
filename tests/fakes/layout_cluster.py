"""The runtime of layout changes in one loop: the product's leader, participants and executors of all nodes.

One metadata log, applied at once where it is proposed; native nodes are `layout_natives`. Orders between
leader and nodes, and questions between nodes, may be lost, late or repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, Self

from msgspec.structs import replace

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import LAYOUT_LEVEL, Transition
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.results import ChangesPrepared, Refused
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.runtime.data_plane.cleanup_confirmations import CleanupConfirmations
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import OrderError, OrderWithdrawnError
from ringfence.control.runtime.layout.engine import NativeEngine, Permit, Place, SourceSlots, TablePart
from ringfence.control.runtime.layout.inheritance import Inheritance, SourceReader
from ringfence.control.runtime.layout.late_inheritance import LateInheritance
from ringfence.control.runtime.layout.leader import LayoutLeader
from ringfence.control.runtime.layout.participant import LayoutParticipant
from ringfence.control.runtime.layout.sources import SourceAnswers
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.reassignment.leader_loop import ReassignmentLeader
from ringfence.control.runtime.reassignment.participant import Participant
from ringfence.control.runtime.rpc.layout_messages import GatesOf, SealedLogs, TableOf, TellSealed
from ringfence.control.state_machines.layout import plan
from ringfence.control.state_machines.layout.messages import LayoutAnswer, LayoutOrder
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder
from ringfence.control.state_machines.rebalance.loads import LoadBoard
from ringfence.native.wire import Code
from tests.fakes.layout_natives import NativeLayoutNode, Natives, Part
from tests.fakes.metadata_commands import cluster, create, entry, restart
from tests.fakes.reassignment_cluster import Metadata

TABLE_PAGE = 4
"""Producers of one page of a table."""


class Driver:
    """Orders of one modelled node. `gates` hold orders back by name, before the node gets them."""

    storage_failed = False
    settled_index = 0

    def __init__(self, node: NativeLayoutNode) -> None:
        self.node = node
        self.gates: dict[str, asyncio.Event] = {}
        self.is_dead = False
        self.quorum_gate: asyncio.Event | None = None
        self.under_way = self.most_under_way = 0

    def settled(self, index: int) -> None:
        assert index >= self.settled_index, "generations never go back"
        self.settled_index = index

    async def order(
        self, order: Any, *, holds_slot: bool = True, permit: Callable[[], bool] = lambda: True
    ) -> dict[str, Any]:
        del holds_slot
        await asyncio.sleep(0)
        gate = self.gates.get(order.name)
        if gate is not None:
            await gate.wait()
        if self.is_dead:
            await asyncio.Event().wait()  # the process is gone
        if not permit():
            raise OrderWithdrawnError("withdrawn")
        try:
            result = self.node.carry_out(order.name, order.arguments)
        except (RuntimeError, KeyError) as error:
            raise OrderError(str(error)) from error
        if order.name in {"open", "hold", "table_in"}:
            await self.until_on_quorum(order.arguments[0], order.arguments[1])
        return result

    async def until_on_quorum(self, topic: int, partition: int) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.quorum_gate is not None:
                await self.quorum_gate.wait()
            while not self.node.natives.on_quorum(self.node.id, (topic, partition)):
                if (topic, partition) not in self.node.parts:
                    raise OrderError(f"partition {partition} was dropped")
                await asyncio.sleep(0.002)
        finally:
            self.under_way -= 1


class Engine(NativeEngine):
    """The product's calls over a modelled node; tables and gates are the model's."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self._driver: Driver = driver

    def on_table_out(self, source: int, after: int) -> None:
        """A test may write before a page is read."""

    def _part(self, place: Place) -> Part:
        part = self._driver.node.parts.get(place)
        if part is None:
            raise OrderError(f"partition {place[1]} is not here")
        return part

    async def table_out(self, source: SourceSlots, since: int, after: int) -> TablePart:
        await asyncio.sleep(0)
        self.on_table_out(source.source, after)
        part = self._part((source.topic, source.source))
        due = sorted(one for one, record in part.table.items() if one > after and record >= since)
        page = due[:TABLE_PAGE]
        body = b",".join(b"%d" % one for one in page)
        return TablePart(body, len(part.records), max(page, default=0), len(due) > len(page))

    async def table_in(
        self,
        child: PartitionId,
        source: SourceSlots,
        number: int,
        part: TablePart,
        *,
        is_final: bool,
        permit: Permit,
    ) -> None:
        await asyncio.sleep(0)
        if not permit():
            raise OrderWithdrawnError("withdrawn")
        if "table_in" in self._driver.node.fails:
            raise OrderError(self._driver.node.fails["table_in"])
        log = self._part((source.topic, child))
        if log.epoch != number:
            raise OrderError(f"partition {child} is not owned under {number}")
        log.records.append((number, 0))
        for one in filter(None, part.page.split(b",")):
            log.table[int(one)] = len(log.records)
        if is_final:
            log.last_pages.add(source.source)
        if not part.page and not part.records:
            log.forgets = True
        await self._driver.until_on_quorum(source.topic, child)

    async def gates_out(
        self, place: Place, number: int, records: int, partitions: Sequence[int] | None = None
    ) -> bytes:
        del number, records, partitions
        await asyncio.sleep(0)
        return self._part(place).gates.get(place[1], b"")

    async def gates_in(
        self, child: Place, source: PartitionId, number: int, gates: bytes, permit: Permit
    ) -> None:
        del number
        if not permit():
            raise OrderWithdrawnError("withdrawn")
        part = self._part(child)
        assert source not in part.last_pages or part.gates.get(source) == gates, "gates after the last page"
        part.gates[source] = gates


class LayoutNode:
    """One process of a node. A restart makes another one over the same native node's disk."""

    def __init__(self, world: LayoutCluster, number: int) -> None:
        self.number = NodeId(number)
        self.here = Replica(node=self.number, store=world.log.state.nodes[number].store)
        driver: Any = Driver(world.natives.add(number))
        self.driver: Driver = driver
        self.left = CleanupConfirmations(world.log, self.here.store)
        self.executor = OrderExecutor(
            driver,
            self.here,
            Health(),
            on_dropped=lambda _: None,
            on_cleaned_up=self.left.confirm,
            on_failed=_raise,
        )
        engine = Engine(driver)
        self.answers = SourceAnswers(world.log, self.executor, engine, self.here)
        peers: Any = SimpleNamespace(here=self.number, ask=world.ask)
        reader = SourceReader(peers, self.answers)
        self.late_inheritance = LateInheritance(world.log, self.executor, engine, reader, self.here)
        self.participant = LayoutParticipant(
            world.log, self.executor, engine, Inheritance(engine, reader), self.here
        )
        self.reassignments = Participant(world.log, self.executor, driver, self.here)
        self.is_started = False

    def start(self, state: MetadataState, index: int) -> None:
        self.executor.start()
        self.executor.enqueue(EMPTY, state, index)
        self.is_started = True

    def applied(self, before: MetadataState, after: MetadataState, index: int) -> None:
        if self.is_started:
            self.executor.enqueue(before, after, index)
            self.participant.apply(after)

    async def close(self) -> None:
        self.is_started, self.driver.is_dead = False, True
        self.left.close()
        await self.participant.close()
        await self.executor.close()


class LayoutCluster:
    """Nodes and a topic. `async with` starts and ends it; `wire` decides about each message."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        replication: int = 1,
        partitions: int = 1,
        seed: int = 0,
        loss: float = 0.0,
        **config: int,
    ) -> None:
        state, at = replace(cluster(nodes), level=LAYOUT_LEVEL), 3 * nodes + 1
        state = replace(state, config={**state.config, "stage_wait_ms": 500, **config})
        numbers = [int(node) for node in sorted(state.nodes)]
        placed = tuple(
            tuple(numbers[(place + more) % nodes] for more in range(replication))
            for place in range(partitions)
        )
        state, result = apply(state, entry(at, create(partitions=partitions, nodes=placed)))
        assert not isinstance(result, Refused), result
        log: Any = Metadata(state, at)
        log.time_ms = 1_000
        log.now_ms = lambda: log.time_ms
        self.log = log
        self.topic = TopicId(at)
        self.natives = Natives()
        self.random, self.loss = random.Random(seed), loss
        self.dead: set[int] = set()
        self.sent: list[LayoutOrder] = []
        self.on_order: Callable[[LayoutOrder], None] = lambda _: None
        self.nodes: dict[int, LayoutNode] = {number: LayoutNode(self, number) for number in numbers}
        self.leader = LayoutLeader(log, self.send, self.ask_sealed)
        self.moves = ReassignmentLeader(log, self.send_move, LoadBoard())
        self._late: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        for node in self.nodes.values():
            node.start(self.log.state, self.log.index)
        self.log.listeners.append(self._applied)
        await self.settled()
        self.leader.start()
        self.moves.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leader.close()
        await self.moves.close()
        for task in self._late:
            task.cancel()
        for node in self.nodes.values():
            await node.close()

    def _applied(self, before: MetadataState, after: MetadataState, index: int) -> None:
        invariants.check_step(before, after, index)
        for node in self.nodes.values():
            node.applied(before, after, index)
        self.leader.wake()
        self.moves.wake()

    async def settled(self) -> None:
        for node in self.nodes.values():
            if node.is_started:
                await node.executor.until_executed(self.log.index)

    # ---- messages -----------------------------------------------------------------------------------

    async def send(self, term: int, order: LayoutOrder) -> LayoutAnswer:
        self.sent.append(order)
        self.on_order(order)
        await self._pass(order.to.node)
        if self.loss and self.random.random() < self.loss:
            # Late, too: it arrives a second time after its answer.
            self._later(self._execute(term, order))
        answer = await self._execute(term, order)
        await self._pass(order.to.node)
        return answer

    async def send_move(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        await self._pass(order.to.node)
        return await self.nodes[order.to.node].reassignments.execute(term, order)

    async def _execute(self, term: int, order: LayoutOrder) -> LayoutAnswer:
        return await self.nodes[order.to.node].participant.execute(term, order)

    def _later(self, work: Any) -> None:
        async def late() -> None:
            await asyncio.sleep(self.random.uniform(0.0, 0.3))
            try:
                await work
            except RequestRefused:
                return

        task = asyncio.get_running_loop().create_task(late())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def ask(self, node: int, call: Any, _timeout_s: float) -> Any:
        await self._pass(node)
        answers = self.nodes[node].answers
        if isinstance(call, TableOf):
            reply: Any = await answers.table_of(call)
        elif isinstance(call, GatesOf):
            reply = await answers.gates_of(call)
        else:
            reply = await answers.tell_sealed(call)
        await self._pass(node)
        return reply

    async def ask_sealed(self, node: NodeId, call: TellSealed) -> SealedLogs:
        reply: SealedLogs = await self.ask(node, call, 1.0)
        return reply

    async def _pass(self, node: int) -> None:
        await asyncio.sleep(0)
        is_lost = self.loss and self.random.random() < self.loss
        if is_lost or node in self.dead or not self.nodes[node].is_started:
            raise RequestRefused(Code.INTERNAL, f"node {node} does not answer")

    # ---- short ways ---------------------------------------------------------------------------------

    @property
    def state(self) -> MetadataState:
        state: MetadataState = self.log.state
        return state

    @property
    def now(self) -> Topic:
        return self.state.topics[self.topic]

    @property
    def active(self) -> tuple[Partition, ...]:
        return self.now.layout.active()

    @property
    def transition(self) -> Transition | None:
        return next(iter(self.state.transitions.values()), None)

    async def prepare(self, command: PrepareLayout | Refused | None) -> ChangeId:
        assert isinstance(command, PrepareLayout), command
        result = (await self.log.propose(command)).result
        assert isinstance(result, ChangesPrepared)
        return ChangeId(result.change)

    async def split(self, place: int = 0, into: int = 2) -> ChangeId:
        part = self.active[place].partition
        return await self.prepare(plan.split(self.state, self.now, part, into=into))

    async def merge(self, place: int = 0) -> ChangeId:
        one, other = self.active[place], self.active[place + 1]
        return await self.prepare(plan.merge(self.state, self.now, one.partition, other.partition))

    async def repartition(self, count: int) -> ChangeId:
        return await self.prepare(plan.repartition(self.state, self.now, count))

    async def until(self, what: Callable[[], bool], seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not what():  # noqa: ASYNC110 - many things may make it true
                await asyncio.sleep(0.005)

    async def until_over(self) -> None:
        """Until no change holds a partition, nothing is left over, and all orders are executed."""
        await self.until(
            lambda: (
                all(one.phase == "OPENED" for one in self.state.transitions.values())
                and not self.state.leftovers
                and not self.state.changes
            )
        )
        await self.settled()

    async def until_served(self) -> None:
        """Until each ACTIVE partition is open at its owner: openings of replicas go on after their entry."""

        def is_open(part: Partition) -> bool:
            assigned = self.now.assignments[part.partition]
            log = self.natives.parts[assigned.owner.node].get((self.topic, part.partition))
            return log is not None and log.epoch == assigned.epoch and log.is_served

        await self.until(lambda: all(map(is_open, self.active)))

    async def refused_or_done(self, command: Command) -> bool:
        """Whether the log refuses the command."""
        return await self.refuses(self.log.propose(command))

    async def refuses(self, work: Awaitable[Any]) -> bool:
        try:
            await work
        except RequestRefused:
            return True
        return False

    def another_leader(self) -> None:
        """The one before is gone with all that it had heard."""
        self.log.replica.term += 1
        self.log.replica.applied.term += 1
        self.leader.wake()

    async def restart_node(self, number: int) -> None:
        """Another process of the node over the same disk: it owns nothing before its start is applied."""
        await self.nodes[number].close()
        for part in self.natives.parts[number].values():
            part.epoch, part.is_named = 0, False
        self.natives.located[number].clear()
        self.nodes[number] = LayoutNode(self, number)
        await self.log.propose(replace(restart(self.state, number), level=LAYOUT_LEVEL))
        self.nodes[number].start(self.state, self.log.index)
        await self.settled()

    def append(self, row: int) -> bool:
        """A client's row into a slot, by the newest table."""
        part = self.active[row % len(self.active)]
        owner = self.now.assignments[part.partition].owner.node
        return self.natives.append(owner, (self.topic, part.partition), row)

    def check(self) -> None:
        """What must hold after all is over: every slot takes rows, ends are exact, nothing is an orphan."""
        named = {
            (self.topic, number): {place.node for place in (assigned.owner, *assigned.replicas)}
            for number, assigned in self.now.assignments.items()
        }
        for node, parts in self.natives.parts.items():
            for place, part in parts.items():
                assert place in named, f"node {node} has partition {place[1]}, which nothing names"
                assert node in named[place], f"node {node} has partition {place[1]}, it is no replica"
                seal = self.now.seal(PartitionId(place[1]))
                if seal is not None:
                    assert part.end.records <= seal.end.records, f"I3: partition {place[1]} has grown"
        for part_of in self.now.layout.partitions:
            owner = self.now.assignments[part_of.partition].owner.node
            part = self.natives.parts[owner][self.topic, part_of.partition]
            seal = self.now.seal(part_of.partition)
            if seal is not None:
                end: LogEnd = part.end
                assert end == seal.end, f"I3: partition {part_of.partition}: {end}, not {seal.end}"
                continue
            missing = {*part_of.parents} - part.last_pages
            assert not missing, f"partition {part_of.partition} lacks what {missing} had"
            for parent in part_of.parents:
                of = self.now.assignments[parent].owner.node
                table = self.natives.parts[of][self.topic, parent].table
                assert {*table} <= {*part.table}, f"producers of {parent} are unknown to {part_of.partition}"
        for row, part_of in enumerate(self.active):
            owner = self.now.assignments[part_of.partition].owner.node
            assert self.natives.append(owner, (self.topic, part_of.partition), 1_000_000 + row), (
                f"L6: partition {part_of.partition} takes no rows"
            )


def run(world: LayoutCluster, work: Callable[[LayoutCluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with world:
            await work(world)

    asyncio.run(whole())


def _raise(error: Exception) -> None:
    raise error
