"""A small world around one partition: nodes with logs, a client, a leader, messages that stay for ever.

A message that was sent may arrive at any time, again and again, or never: so loss, repetition and reordering
need no steps of their own, and a cut is a node that nothing arrives at. The leader is the product's
coordinator, the metadata log its machine; nodes obey `evaluate_order` and carry out `node_orders.between` and
`change_steps`. What is modelled is only a node's own log, as the contract of replication has it.

    node        applied prefix | up | records (epoch, value) | fence | open epoch | staged | syncing | match
    record      (owner epoch, value); value 0 is an epoch record, 1 and 2 are the client's rows
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import (
    AbortChange,
    ConfirmLeft,
    FailOver,
    PrepareChange,
    ReleaseKept,
)
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.reassignment.cleanup import Adopt, Discard, Release
from ringfence.control.state_machines.reassignment.messages import OrderVerdict
from tests.fakes.metadata_commands import cluster, create, entry, restart
from tests.search.explore import Step
from tests.search.log import Log, Numbers
from tests.search.nodes import Node, NodeRules, Record


class State(NamedTuple):
    """`seen` is what the leader has heard, by number; `spent` counts faults and intents."""

    log: int
    nodes: tuple[Node, ...]
    messages: frozenset[tuple[Any, ...]]
    seen: int
    acked: frozenset[int]
    spent: tuple[int, ...]


CRASH, FAIL, LEADER, ABORT, PREPARE, WIPE, CUT = range(7)


class Plan(NamedTuple):
    """How large a world is. `targets` are the replicas (owner first) that the changes ask for, one by one.

    Nodes that are not `lagging` apply an entry as soon as it is committed, while they are up.
    """

    nodes: int
    replication: int = 1
    targets: tuple[tuple[int, ...], ...] = ()
    rows: int = 2
    lagging: tuple[int, ...] = (0, 1)
    crashes: int = 0
    crashing: tuple[int, ...] = (0, 1)
    fails: int = 0
    leaders: int = 0
    aborts: int = 0
    wipes: int = 0
    cuts: int = 0
    keeps: bool = False
    """Who left keeps its rows, until the leader's timer ends that: at any moment."""


class ChangeWorld(NodeRules):
    """The world of one plan. Planted bugs override its methods."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        state, at = cluster(plan.nodes), 3 * plan.nodes + 1
        self.numbers = sorted(state.nodes)
        nodes = (tuple(self.numbers[: plan.replication]),)
        state, _ = apply(state, entry(at, create(partitions=1, nodes=nodes)))
        state = replace(state, config={**state.config, "hold_timeout_ms": 600_000})
        state = replace(state, config={**state.config, "reverse_hold_s": 300 if plan.keeps else 0})
        self.topic, self.partition = TopicId(at), PartitionId(at << 16)
        self.places = [Replica(node=NodeId(n), store=state.nodes[NodeId(n)].store) for n in self.numbers]
        self.log = Log(state, at, self.partition)
        self.known = Numbers()
        self.chains = Numbers()
        self.replication = plan.replication

    # ---- the world's door ----------------------------------------------------------------------------

    def first(self) -> State:
        nodes = []
        for place in range(self.plan.nodes):
            node = Node(applied=0)
            nodes.append(self.carry(node, place, -1, 0)[0])
        for place in range(1, self.plan.replication):
            nodes[place] = nodes[place]._replace(records=nodes[0].records, fence=nodes[0].epoch)
        match = tuple((place, 1) for place in range(1, self.plan.replication))
        nodes[0] = nodes[0]._replace(match=match)
        return State(0, tuple(nodes), frozenset(), 0, frozenset(), (0,) * 7)

    def steps(self, state: Any) -> Iterator[Step]:
        for steps in (
            self.leader_steps,
            self.message_steps,
            self.node_steps,
            self.client_steps,
            self.fault_steps,
        ):
            for label, after, is_fault in steps(state):
                yield Step(label, self.pruned(after), is_fault)

    def pruned(self, state: Any) -> State:
        """Without messages that can never do anything again, so that states which differ in them are one."""
        kept = frozenset(message for message in state.messages if self.matters(state, message))
        pruned: State = state if len(kept) == len(state.messages) else state._replace(messages=kept)
        return pruned

    def matters(self, state: State, message: tuple[Any, ...]) -> bool:
        change = self.log.states[state.log].changes.get(self.partition)
        number = 0 if change is None else change.change
        match message:
            case ("order", order):
                known = self.known[order]
                node = state.nodes[self.places.index(known.to)]
                return node.wiped or self.stands(node, known) is not OrderVerdict.NEVER
            case ("answer", order, _):
                return bool(self.known[order].change == number)
            case ("data", of, target, place, record):
                staged = dict(state.nodes[target].staged)
                return (place, record) not in staged[of] if of in staged else of == number
            case ("match", owner, epoch, replica, count):
                node = state.nodes[owner]
                return bool(node.epoch == epoch and dict(node.match).get(replica, 0) < count)
        raise AssertionError(message)

    def is_end(self, state: Any) -> bool:
        """Nothing is under way or left behind, and every row is taken and acknowledged."""
        meta = self.log.states[state.log]
        return (
            not meta.changes
            and not meta.leftovers
            and not meta.kept
            and len(state.acked) == self.plan.rows
            and all(node.up and node.applied == state.log for node in state.nodes)
            and not any(node.staged or node.syncing for node in state.nodes)
        )

    def wrong(self, state: Any) -> str | None:
        meta = self.log.states[state.log]
        assignment = meta.topics[self.topic].assignments[self.partition]
        writers = [place for place, node in enumerate(state.nodes) if node.admits]
        if self.plan.replication == 1 and len(writers) > 1:
            return f"I4: nodes {writers} admit appends at once"
        for place, node in enumerate(state.nodes):
            values = [value for _, value in node.records if value]
            if len(set(values)) != len(values):
                return f"I6: node {place} holds a row twice: {node.records}"
            if node.epoch == assignment.epoch and self.places[place] == assignment.owner:
                lost = state.acked - set(values)
                if lost:
                    return f"I5: owner {place} opened without acknowledged rows {sorted(lost)}"
        for row in state.acked:
            if not any((value == row) for node in state.nodes for _, value in node.records):
                return f"I5: acknowledged row {row} is nowhere"
        return None

    # ---- the leader ----------------------------------------------------------------------------------

    def leader_steps(self, state: State) -> Iterator[Step]:
        _, todo = self.log.advance(state.log, self.known[state.seen])
        if todo.entry is not None:
            yield from self.proposed(state, todo.entry, f"leader: {type(todo.entry).__name__}")
        meta = self.log.states[state.log]
        change = meta.changes.get(self.partition)
        if change is not None and change.may_abort and self.left(state, ABORT, self.plan.aborts):
            abort = AbortChange(partition=self.partition, change=change.change, why="at any time")
            yield from self.proposed(self.spend(state, ABORT), abort, "leader: abort")
        used = state.spent[PREPARE]
        if change is None and used < len(self.plan.targets):
            wanted = tuple(NodeId(self.numbers[place]) for place in self.plan.targets[used])
            epoch = meta.topics[self.topic].assignments[self.partition].epoch
            prepare = PrepareChange(
                topic=self.topic, partition=self.partition, epoch=epoch, owner=wanted[0], replicas=wanted
            )
            yield from self.proposed(
                self.spend(state, PREPARE), prepare, f"prepare {self.plan.targets[used]}"
            )
        for kept in meta.kept.values():
            release = ReleaseKept(kept=((self.partition, kept.change),))
            yield from self.proposed(state, release, "leader: the hold time is over")
        for number, node in meta.nodes.items():
            if node.life is Life.FAILED:
                command = FailOver(node=number, changed=node.changed)
                yield from self.proposed(state, command, f"leader: fail over {number}")
        if change is not None and state.seen and self.left(state, LEADER, self.plan.leaders):
            yield Step("another leader", self.told(self.spend(state, LEADER)._replace(seen=0)), is_fault=True)

    def proposed(self, state: State, command: Any, label: str) -> Iterator[Step]:
        after = self.log.propose(state.log, command)
        if after is not None:
            yield Step(label, self.told(state._replace(log=after)))

    def told(self, state: State) -> State:
        """The leader asks for what it wants to know as soon as it wants it: later is a late message."""
        state = self.settled(state)
        seen, todo = self.log.advance(state.log, self.known[state.seen])
        orders = frozenset(("order", self.known.of(order)) for order in todo.orders)
        return state._replace(seen=self.known.of(seen), messages=state.messages | orders)

    def settled(self, state: State) -> State:
        for place in range(self.plan.nodes):
            while place not in self.plan.lagging and state.nodes[place].up:
                node = state.nodes[place]
                following = self.log.next_of(node.applied, state.log)
                if following is None:
                    break
                after, log = self.carry(node, place, node.applied, following, state.log)
                state = self.with_node(state, place, after)._replace(log=log)
        return state

    # ---- messages ------------------------------------------------------------------------------------

    def message_steps(self, state: State) -> Iterator[Step]:
        for message in sorted(state.messages):
            match message:
                case ("order", number):
                    yield from self.obeyed(state, number)
                case ("answer", number, answer):
                    order = self.known[number]
                    seen = self.log.observe(self.known[state.seen], order, self.known[answer])
                    after = self.told(state._replace(seen=self.known.of(seen)))
                    if after != state:
                        yield Step(f"leader hears {type(order).__name__} of {order.to.node}", after)
                case ("data", change, target, place, record):
                    yield from self.received(state, change, target, place, record)
                case ("match", owner, epoch, replica, count):
                    node = state.nodes[owner]
                    known = dict(node.match)
                    if node.up and node.epoch == epoch and known.get(replica, 0) < count:
                        match = tuple(sorted({**known, replica: count}.items()))
                        after = self.with_node(state, owner, node._replace(match=match))
                        yield Step(f"{owner} learns that {replica} has {count}", after)

    def received(self, state: State, change: int, target: int, place: int, record: Record) -> Iterator[Step]:
        node = state.nodes[target]
        staged = dict(node.staged)
        if node.up and change in staged and (place, record) not in staged[change]:
            staged[change] |= {(place, record)}
            after = node._replace(staged=tuple(sorted(staged.items(), key=lambda item: item[0])))
            yield Step(f"{target} receives record {place}", self.with_node(state, target, after))

    def obeyed(self, state: State, number: int) -> Iterator[Step]:
        order = self.known[number]
        place = self.places.index(order.to)
        node = state.nodes[place]
        if not node.up or self.stands(node, order) is not OrderVerdict.EXECUTE:
            return
        after, answer, sent = self.obey(state.nodes, node, order)
        if answer is not None:
            sent |= {("answer", number, self.known.of(answer))}
        state2 = self.with_node(state, place, after)._replace(messages=state.messages | sent)
        if state2 != state:
            yield Step(f"{place}: {type(order).__name__}", state2)

    def stands(self, node: Node, order: Any) -> OrderVerdict:
        return self.log.standing(node.applied, order, self.here(node, self.places.index(order.to)))

    def here(self, node: Node, place: int) -> Replica:
        """A wiped store has another id."""
        place_of = self.places[place]
        return replace(place_of, store=b"wiped" + bytes(11)) if node.wiped else place_of

    # ---- nodes ---------------------------------------------------------------------------------------

    def node_steps(self, state: State) -> Iterator[Step]:
        for place, node in enumerate(state.nodes):
            if not node.up:
                yield from self.started(state, node, place)
                continue
            following = self.log.next_of(node.applied, state.log)
            if following is not None:
                after, log = self.carry(node, place, node.applied, following, state.log)
                changed = self.told(self.with_node(state, place, after)._replace(log=log))
                yield Step(f"{place} applies entry {self.log.indexes[following]}", changed)
            if self.plan.replication > 1 and node.epoch:
                yield from self.replicated(state, node, place)

    def started(self, state: State, node: Node, place: int) -> Iterator[Step]:
        """A start draws new epochs by an entry, and carries out all that its log says."""
        if node.wiped:
            yield Step(f"{place} starts empty", self.with_node(state, place, node._replace(up=True)))
            return
        command = restart(self.log.states[state.log], self.numbers[place])
        log = self.log.propose(state.log, command)
        assert log is not None
        after, log = self.carry(node._replace(up=True), place, -1, log, log)
        yield Step(f"{place} starts", self.told(self.with_node(state, place, after)._replace(log=log)))

    def carry(self, node: Node, place: int, before: int, to: int, log: int = 0) -> tuple[Node, int]:
        """The node once it has done what the entry says; the log with what it confirmed."""
        node = node._replace(applied=to)
        for order in self.log.carried(before, to, self.here(node, place)):
            node = self.perform(node, order)
            if isinstance(order, Adopt | Discard | Release):
                confirm = ConfirmLeft(
                    partition=self.partition, change=order.change, store=self.places[place].store
                )
                log = self.log.propose(log, confirm) or log
        return node, log

    def replicated(self, state: State, node: Node, owner: int) -> Iterator[Step]:
        """The owner's log reaches a replica record by record; what differs there is cut by (epoch, end)."""
        meta = self.log.states[node.applied]
        assignment = meta.topics[self.topic].assignments[self.partition]
        for replica, other in enumerate(state.nodes):
            is_replica = self.here(other, replica) in assignment.replicas
            if replica == owner or not other.up or not is_replica or other.fence > node.epoch:
                continue
            common = 0
            for mine, its in zip(node.records, other.records, strict=False):
                if mine != its:
                    break
                common += 1
            records = node.records[: common + 1]
            if len(other.records) > common or common == len(node.records):
                records = other.records[:common]
            after = other._replace(records=records, fence=node.epoch, epoch=0, match=())
            message = ("match", owner, node.epoch, replica, len(records))
            changed = self.with_node(state, replica, after)
            changed = changed._replace(messages=changed.messages | {message})
            if changed != state:
                yield Step(f"{owner} replicates to {replica}", changed)

    # ---- client, faults ------------------------------------------------------------------------------

    def client_steps(self, state: State) -> Iterator[Step]:
        for place, node in enumerate(state.nodes):
            held = {value: at for at, (_, value) in enumerate(node.records) if value}
            for row in range(1, self.plan.rows + 1):
                if row in state.acked:
                    continue
                if row not in held and node.admits:
                    yield Step(f"row {row} is appended at {place}", self.appended(state, node, place, row))
                if row in held and node.up and node.epoch and held[row] < self.mark(node):
                    yield Step(f"{place} acknowledges row {row}", state._replace(acked=state.acked | {row}))

    def appended(self, state: State, node: Node, place: int, row: int) -> State:
        record = (node.epoch, row)
        sent = frozenset(
            ("data", change, target, len(node.records), record) for change, target in node.syncing
        )
        after = node._replace(records=(*node.records, record))
        return self.with_node(state, place, after)._replace(messages=state.messages | sent)

    def fault_steps(self, state: State) -> Iterator[Step]:
        for place, node in enumerate(state.nodes):
            if node.up and place in self.plan.crashing:
                down = node._replace(up=False, epoch=0, syncing=frozenset(), match=())
                if self.left(state, CRASH, self.plan.crashes):
                    after = self.with_node(self.spend(state, CRASH), place, down)
                    yield Step(f"{place} crashes", after, is_fault=True)
                if self.left(state, WIPE, self.plan.wipes):
                    gone = Node(applied=node.applied, up=False, wiped=True)
                    yield Step(
                        f"{place} is wiped",
                        self.with_node(self.spend(state, WIPE), place, gone),
                        is_fault=True,
                    )
                last = node.records[-1][1] if node.records else 0
                if last and last not in state.acked and self.left(state, CUT, self.plan.cuts):
                    cut = down._replace(records=node.records[:-1])
                    after = self.with_node(self.spend(state, CUT), place, cut)
                    yield Step(f"{place} crashes and loses row {last}", after, is_fault=True)
            if self.left(state, FAIL, self.plan.fails):
                number = NodeId(self.numbers[place])
                known = self.log.states[state.log].nodes[number]
                if place in self.plan.crashing and known.life is Life.LIVE:
                    command = FailNode(node=number, changed=known.changed)
                    for step in self.proposed(self.spend(state, FAIL), command, f"{place} counts as failed"):
                        yield step._replace(is_fault=True)

    # ---- small things --------------------------------------------------------------------------------

    def left(self, state: State, which: int, budget: int) -> bool:
        return state.spent[which] < budget

    def spend(self, state: State, which: int) -> State:
        spent = list(state.spent)
        spent[which] += 1
        return state._replace(spent=tuple(spent))

    def with_node(self, state: State, place: int, node: Node) -> State:
        nodes = list(state.nodes)
        nodes[place] = node
        return state._replace(nodes=tuple(nodes))
