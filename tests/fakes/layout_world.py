"""A cluster of modelled nodes under a leader's layout coordinator: faults first, then a quiet end.

The log, the orders that follow from it and the coordinator are the product's. Modelled are engines (records,
fences, what was inherited), messages (lost, late, repeated), crashes, starts, another leader, and failovers.

- Nothing acknowledged is outside of its lineage: a source's end in the layout is the number of its
acknowledged records (L1, L5), and each child has inherited its sources up to there.
- At most one partition takes rows of a slot (L2).
- After the quiet end each slot takes rows (L6, I13), nothing is open, and no store has what the metadata does
not name (D1).
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.layout_commands import AbortLayout, CommitLayout, ConfirmLayout
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import CleanChange, CommitChange, ConfirmOpened, FailOver
from ringfence.control.model.reassignments import ChangeId, ChangeKind, ChangePhase, Proof
from ringfence.control.model.results import Refused
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.state_machines.layout import messages, plan
from ringfence.control.state_machines.layout.coordinator import LayoutCoordinator
from ringfence.control.state_machines.layout.messages import (
    CreateChild,
    Inherit,
    LayoutAnswer,
    LayoutOrder,
    LookLayout,
    Seal,
)
from ringfence.control.state_machines.node_orders import between
from ringfence.control.state_machines.reassignment.messages import OrderDone, OrderVerdict
from tests.fakes.layout_log import LayoutLog
from tests.fakes.layout_nodes import Node, Stores

# Rounds of the quiet end. Time-outs of the product run in them: a round is a second of the leader's clock.
QUIET_ROUNDS = 120


class LayoutWorld(LayoutLog):
    """One run. `states[i]` is the state after entry i."""

    def __init__(
        self, seed: int, *, replication: int | None = None, partitions: int | None = None, nodes: int = 4
    ) -> None:
        self.draw = draw = random.Random(seed)
        self.states: dict[int, MetadataState] = {}
        self.prepared: dict[ChangeId, Transition] = {}
        super().__init__(
            nodes,
            replication=replication or draw.choice([1, 3]),
            partitions=partitions or draw.choice([1, 2, 4]),
        )
        self.nodes_by_id = {number: Node(self.place(int(number))) for number in self.nodes}
        self.stores = Stores(self.nodes_by_id)
        self.leader, self.now_ms, self.seen = LayoutCoordinator(), 1_000, Counter[str]()
        self.orders: list[LayoutOrder] = []
        self.answers: list[tuple[LayoutOrder, LayoutAnswer]] = []
        self.proposals: list[Command] = []
        self.acknowledged: Counter[PartitionId] = Counter()
        self.quiet = False
        # In some runs no leader learns before the quiet end that children take rows.
        self.looks_are_lost = draw.random() < 0.4
        for node in self.nodes_by_id.values():
            self._catch_up(node)

    # ---- the log --------------------------------------------------------------------------------------

    def do(self, command: Command) -> Any:
        before = self.state
        result = super().do(command)
        self.states[self.at] = self.state
        name = f"{type(command).__name__} {'refused' if isinstance(result, Refused) else 'taken'}"
        if self.states and hasattr(self, "seen"):
            self.seen[name] += 1
            if isinstance(command, CommitLayout) and not isinstance(result, Refused):
                self._check_commit(before, command)
            if isinstance(command, ConfirmLayout) and not isinstance(result, Refused):
                self._check_opened(before.transitions[command.change])
        self.prepared |= {
            number: transition
            for number, transition in self.state.transitions.items()
            if transition.may_abort
        }
        return result

    def _propose(self, command: Command) -> None:
        if isinstance(self.do(command), Refused):
            self.leader.note_refusal(command)

    def _check_commit(self, before: MetadataState, command: CommitLayout) -> None:
        transition = before.transitions[command.change]
        ends = dict(command.ends)
        for source, end in ends.items():
            assert end.records == self.acknowledged[source], (
                f"L1: source {source} has {self.acknowledged[source]} acknowledged records, its end is {end}"
            )
        for child in transition.children:
            parts = before.topics[transition.topic].layout.by_id()
            parents = [
                source
                for source in transition.sources
                if parts[source].slots.lo <= child.slots.hi and child.slots.lo <= parts[source].slots.hi
            ]
            holders = [
                place
                for place in child.replicas
                if (part := self.nodes_by_id[place.node].parts.get(child.partition)) is not None
                and all(part.inherited.get(parent) == ends[parent].records for parent in parents)
            ]
            assert len(holders) > len(child.replicas) // 2, (
                f"L3: child {child.partition} has inherited on {len(holders)} of its stores"
            )

    def _check_opened(self, transition: Transition) -> None:
        for child in transition.children:
            assignment = self.now.assignments[child.partition]
            node = self.nodes_by_id[assignment.owner.node]
            if assignment.epoch != Epoch(transition.change):
                continue  # another owner since: it opens by a later entry
            assert not node.alive or node.applied >= transition.adoption_generation, (
                f"child {child.partition} counts as open at a node that has not applied the COMMIT"
            )

    # ---- nodes ----------------------------------------------------------------------------------------

    def _state_of(self, node: Node) -> MetadataState:
        at = node.applied
        while at and at not in self.states:
            at -= 1
        return self.states.get(at, EMPTY)

    def _apply_next(self, node: Node) -> None:
        """Apply one more entry, and carry out the orders that follow from it."""
        before = self._state_of(node)
        node.applied += 1
        self._carry_out(node, before, self._state_of(node))

    def _catch_up(self, node: Node) -> None:
        """A start: from nothing to the newest state in one step."""
        for part in node.parts.values():
            part.open_epoch, part.sealed = 0, None
        node.applied = self.at
        self._carry_out(node, EMPTY, self.state)

    def _carry_out(self, node: Node, before: MetadataState, after: MetadataState) -> None:
        for phase in between(before, after, node.here):
            for order in phase:
                confirm = self.stores.carry_out(node, order)
                if confirm is not None:
                    self.proposals.append(confirm)

    # ---- orders of the leader -------------------------------------------------------------------------

    def _execute(self, order: LayoutOrder) -> LayoutAnswer | None:
        node = self.nodes_by_id[order.to.node]
        if not node.alive:
            return None
        state = self._state_of(node)
        if messages.evaluate_order(state, node.applied, order, node.here) is not OrderVerdict.EXECUTE:
            return None
        if isinstance(order, LookLayout):
            return OrderDone() if messages.is_settled(state, order, node.here, node) else None
        if isinstance(order, CreateChild):
            return self.stores.create(node, self.prepared[order.change])
        transition = state.transitions[order.change]
        match order:
            case Inherit(ends=ends):
                return self.stores.inherit(node, state, transition, None if ends is None else dict(ends))
            case Seal():
                return self.stores.seal(node, state, transition, self.now_ms)

    # ---- clients --------------------------------------------------------------------------------------

    def takers(self) -> dict[PartitionId, Node]:
        """Partitions that take rows now, by the node that does."""
        found = {}
        for node in self.nodes_by_id.values():
            state = self._state_of(node)
            topic = state.topics.get(self.topic)
            if not node.alive or topic is None:
                continue
            for part in topic.layout.active():  # the gate: what the installed table gives to this node
                number, assignment = part.partition, topic.assignments[part.partition]
                if assignment.owner == node.here and node.is_open(number, assignment.epoch):
                    copies = [
                        other
                        for place in assignment.replicas
                        if (other := self.nodes_by_id[place.node]).alive and number in other.parts
                    ]
                    fenced = any(other.parts[number].fence > assignment.epoch for other in copies)
                    if len(copies) > len(assignment.replicas) // 2 and not fenced:
                        assert number not in found, f"L2: two nodes take rows of partition {number}"
                        found[number] = node
        return found

    def _write(self) -> None:
        takers = self.takers()
        ranges = sorted(
            part.slots
            for node in self.nodes_by_id.values()
            for part in self._state_of(node).topics[self.topic].layout.partitions
            if takers.get(part.partition) is node
        )
        for one, other in pairwise(ranges):
            assert one.hi < other.lo, f"L2: partitions with slots {one} and {other} both take rows"
        if takers:
            number = self.draw.choice(sorted(takers))
            takers[number].parts[number].records += 1
            self.acknowledged[number] += 1
            self.stores.copy(number)

    # ---- steps ----------------------------------------------------------------------------------------

    def step(self) -> None:
        draw = self.draw
        choices = [
            (self._write, 5),
            (self._ask, 1),
            (self._lead, 8),
            (self._deliver, 12),
            (self._answer, 12),
            (self._apply, 14),
            (self._propose_next, 8),
            (self._tick, 3),
            (self._crash, 0.2),
            (self._start, 2),
            (self._other_leader, 0.3),
            (self._give_up, 0.2),
            (self._stage, 1),
            (self._drive_failovers, 4),
            (self._hurt, 0.1),
        ]
        draw.choices([step for step, _ in choices], [weight for _, weight in choices])[0]()

    def _ask(self) -> None:
        """An operator asks for a change, as planned by the product."""
        topic, part = self.now, self.draw.choice(self.active)
        fresh = [
            part
            for part in self.active
            if any(
                part.created_version == transition.version for transition in self.state.transitions.values()
            )
        ]
        if fresh and self.draw.random() < 0.5:
            part = self.draw.choice(fresh)  # a child whose change is still open
        kind, place = self.draw.choice(["split", "merge", "repartition"]), self.active.index(part)
        made: Any
        if kind == "split" and len(self.active) < 8:
            made = plan.split(self.state, topic, part.partition, into=self.draw.choice([2, 2, 3]))
        elif kind == "merge" and place + 1 < len(self.active):
            made = plan.merge(self.state, topic, part.partition, self.active[place + 1].partition)
        else:
            made = plan.repartition(self.state, topic, self.draw.randint(1, 6))
        if isinstance(made, msgspec.Struct) and not isinstance(made, Refused):
            self.do(made)  # type: ignore[arg-type]

    def _lead(self) -> None:
        orders, entries = self.leader.step(self.state, self.now_ms, self.time_ms)
        self.orders += [order for order in orders if order not in self.orders]
        self.proposals += entries
        for number, node in self.state.nodes.items():
            if node.life is Life.LIVE and not self.nodes_by_id[number].alive and self.draw.random() < 0.1:
                self._propose(FailNode(node=number, changed=node.changed))
                if self.now.replication > 1:
                    self._propose(FailOver(node=number, changed=Index(self.at)))

    def _deliver(self) -> None:
        """Some orders are lost, some are repeated, and their order is any."""
        if self.orders:
            place = self.draw.randrange(len(self.orders))
            order = self.orders[place]
            if self.quiet or self.draw.random() < 0.8:
                del self.orders[place]  # else it comes a second time
            is_lost = (
                not self.quiet
                and self.looks_are_lost
                and isinstance(order, LookLayout)
                and order.is_committed
            )
            answer = None if is_lost else self._execute(order)
            if answer is not None and (self.quiet or self.draw.random() < 0.9):
                self.answers.append((order, answer))

    def _answer(self) -> None:
        if self.answers:
            self.leader.observe_answer(*self.answers.pop(self.draw.randrange(len(self.answers))))

    def _apply(self) -> None:
        behind = [node for node in self.nodes_by_id.values() if node.alive and node.applied < self.at]
        if behind:
            self._apply_next(self.draw.choice(behind))

    def _propose_next(self) -> None:
        if self.proposals:
            self._propose(self.proposals.pop(self.draw.randrange(len(self.proposals))))

    def _tick(self) -> None:
        self.now_ms += self.draw.choice([50, 200, 1_000])
        self.time_ms += 100

    def _crash(self) -> None:
        alive = [node for node in self.nodes_by_id.values() if node.alive]
        if len(alive) == len(self.nodes_by_id):
            node = self.draw.choice(alive)
            node.alive = False
            node.staged.clear()

    def _start(self) -> None:
        down = [node for node in self.nodes_by_id.values() if not node.alive]
        if down:
            node = self.draw.choice(down)
            self._propose(self.restart(int(node.here.node)))
            node.alive = True
            self._catch_up(node)

    def _other_leader(self) -> None:
        """Its answers are lost; orders and proposals of the former leader still arrive."""
        self.leader.begin()
        self.answers.clear()

    def _give_up(self) -> None:
        open_ones = [number for number, one in self.state.transitions.items() if one.may_abort]
        if open_ones:
            self.do(AbortLayout(change=self.draw.choice(open_ones), why="an operator"))

    def _stage(self) -> None:
        node = self.draw.choice([*self.nodes_by_id.values()])
        if node.staged:
            node.staged.clear()
        elif node.alive and node.parts:
            node.staged.add(self.draw.choice(sorted(node.parts)))

    def _hurt(self) -> None:
        """A child is damaged: its owner quarantines it."""
        for transition in self.state.transitions.values():
            if transition.phase is ChangePhase.COMMITTED and not self.quiet:
                child = self.draw.choice(transition.children).partition
                assignment = self.now.assignments.get(child)
                if assignment is not None and child in self.nodes_by_id[assignment.owner.node].parts:
                    self.nodes_by_id[assignment.owner.node].parts[child].quarantined = True

    def _drive_failovers(self) -> None:
        for number, change in list(self.state.changes.items()):
            if change.kind is not ChangeKind.FAILOVER:
                continue
            epoch = self.epoch(number)
            which: dict[str, Any] = {"partition": number, "change": change.change}
            if change.phase is ChangePhase.COMMITTED:
                self._propose(ConfirmOpened(**which, epoch=epoch))
            elif change.phase is ChangePhase.OPENED:
                self._propose(CleanChange(**which))
            else:
                self._choose_owner(number, change, which)

    def _choose_owner(self, number: PartitionId, change: Any, which: dict[str, Any]) -> None:
        proofs = []
        for place in change.replicas:
            node = self.nodes_by_id[place.node]
            part = node.parts.get(number)
            if node.alive and part is not None:
                part.fence = max(part.fence, change.change)
                proofs.append(Proof(place, LogEnd(Epoch(part.epoch), part.records, part.records * 10, 7)))
        if len(proofs) <= len(change.replicas) // 2:
            return
        best = max(proofs, key=lambda proof: (proof.end.epoch, proof.end.records))
        self._propose(
            CommitChange(
                **which, epoch=change.epoch, owner=best.place.node, end=best.end, proofs=tuple(proofs)
            )
        )

    # ---- the end --------------------------------------------------------------------------------------

    def settle(self, *, gone: NodeId | None = None) -> None:
        """No more faults. One node may stay away for good."""
        self.quiet = True
        for node in self.nodes_by_id.values():
            node.staged.clear()
            if node.here.node == gone:
                node.alive = False
            elif not node.alive:
                self._propose(self.restart(int(node.here.node)))
                node.alive = True
                self._catch_up(node)
        for _ in range(QUIET_ROUNDS):
            self.now_ms += 1_000
            self._lead()
            self._drive_failovers()
            while self.orders or self.answers or self.proposals:
                self._deliver()
                self._answer()
                self._propose_next()
            while any(node.alive and node.applied < self.at for node in self.nodes_by_id.values()):
                self._apply()
        self._check_end(gone)

    def _check_end(self, gone: NodeId | None) -> None:
        assert not self.state.transitions, f"I13: {self.state.transitions} does not end"
        takers = {*self.takers()}
        for part in self.active:
            assignment = self.now.assignments[part.partition]
            is_away = gone is not None and assignment.owner.node == gone
            owner = self.nodes_by_id[assignment.owner.node]
            if not is_away and not owner.is_quarantined(part.partition):
                assert part.partition in takers, f"L6: partition {part.name} takes no rows"
        for node in self.nodes_by_id.values():
            if node.here.node == gone:
                continue
            known = {
                number
                for number, assignment in self.now.assignments.items()
                if node.here in assignment.replicas
            }
            orphans = {*node.parts} - known
            assert not orphans, f"D1: node {node.here.node} has {sorted(orphans)}, which nothing names"
            missing = known - {*node.parts}
            assert not missing, f"L9: node {node.here.node} lacks {sorted(missing)}"
        for number, seal in (self.now.seals or {}).items():
            assert seal.end.records == self.acknowledged[number], f"L1: the end of partition {number}"
            for place in self.now.assignments[number].replicas:
                copy = self.nodes_by_id[place.node].parts.get(number)
                assert place.node == gone or (copy is not None and copy.sealed == seal.end), (
                    f"L1: node {place.node} does not serve SEALED partition {number}"
                )


def run(seed: int, steps: int = 800, *, replication: int | None = None) -> LayoutWorld:
    """One run; AssertionError names what is wrong."""
    world = LayoutWorld(seed, replication=replication)
    for _ in range(steps):
        world.step()
    gone = world.draw.choice(world.nodes) if world.draw.random() < 0.2 else None
    for transition in world.state.transitions.values():
        if gone is not None and transition.phase is ChangePhase.COMMITTED:
            child = world.now.assignments.get(transition.children[0].partition)
            gone = gone if child is None else child.owner.node
    world.settle(gone=gone)
    world.agree()
    return world
