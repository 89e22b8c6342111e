"""Bugs planted in the protocol, each a world of its own, with a plan that finds it and what is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ringfence.control.model.reassignment_commands import CommitChange
from ringfence.control.model.reassignments import ChangePhase, Proof
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.reassignment.messages import (
    Ended,
    Fence,
    OrderVerdict,
    Prove,
    Sync,
    Synced,
    SyncState,
)
from tests.search.explore import Step
from tests.search.nodes import Node, Record
from tests.search.world import ChangeWorld, Plan, State

MOVE = Plan(2, 1, ((1,),), rows=2)


class DualWriteStops(ChangeWorld):
    """Rows that come after the copy has caught up are not sent: a move of a busy partition never ends."""

    def appended(self, state: State, node: Node, place: int, row: int) -> State:
        return super().appended(state, node._replace(syncing=frozenset()), place, row)


class CopyMissesOne(ChangeWorld):
    """The copy ends one record before the live stream begins."""

    def copied(self, change: int, target: int, records: tuple[Record, ...]) -> frozenset[Any]:
        return super().copied(change, target, records[:-1])


class OpensBeforeTheHold(ChangeWorld):
    """COMMIT as soon as the target has everything, without a fence of the source."""

    def leader_steps(self, state: State) -> Iterator[Step]:
        change = self.log.states[state.log].changes.get(self.partition)
        if change is not None and change.phase is ChangePhase.HELD:
            end = self.end(self.contiguous(state.nodes[1], change.change))
            commit = CommitChange(
                partition=self.partition,
                change=change.change,
                epoch=change.epoch,
                owner=change.owner.node,
                end=end,
                proofs=(Proof(change.owner, end),),
            )
            yield from self.proposed(state, commit, "leader commits without a fence")
        yield from super().leader_steps(state)


class TimerEndsTheHold(ChangeWorld):
    """A source that was held for long takes appends again by itself."""

    def node_steps(self, state: State) -> Iterator[Step]:
        yield from super().node_steps(state)
        for place, node in enumerate(state.nodes):
            change = self.log.states[node.applied].changes.get(self.partition)
            if node.up and change is not None and node.fence == change.change and not node.epoch:
                again = node._replace(fence=0, epoch=change.epoch)
                yield Step(f"{place} waits no longer", self.with_node(state, place, again))


class WipedStoreAnswers(ChangeWorld):
    """A store that lost everything answers under its old id."""

    def here(self, node: Node, place: int) -> Replica:
        return super().here(node._replace(wiped=False), place)


class RestartKeepsTheEpoch(ChangeWorld):
    """A restarted owner draws no epoch and fences nobody: it opens as what it was."""

    def started(self, state: State, node: Node, place: int) -> Iterator[Step]:
        epoch = self.log.states[node.applied].topics[self.topic].assignments[self.partition].epoch
        again = node._replace(up=True, epoch=epoch if epoch >= node.fence else 0)
        yield Step(f"{place} starts as it was", self.with_node(state, place, again))


class DiscardByMessage(ChangeWorld):
    """An ABORT is told to the target by a message, which may come when a later try has succeeded."""

    def leader_steps(self, state: State) -> Iterator[Step]:
        change = self.log.states[state.log].changes.get(self.partition)
        for step in super().leader_steps(state):
            if step.label == "leader: abort" and change is not None:
                after: Any = step.after
                places = {self.places.index(place) for place in change.adds}
                more = frozenset(("discard", place) for place in places)
                yield step._replace(after=after._replace(messages=after.messages | more))
            else:
                yield step

    def message_steps(self, state: State) -> Iterator[Step]:
        for message in sorted(message for message in state.messages if message[0] == "discard"):
            node = state.nodes[message[1]]
            if node.up:
                gone = node._replace(records=(), staged=(), epoch=0)
                after = self.with_node(state, message[1], gone)
                after = after._replace(messages=after.messages - {message})
                yield Step(f"{message[1]} discards", after)
        others = frozenset(message for message in state.messages if message[0] != "discard")
        told = state.messages - others
        for step in super().message_steps(state._replace(messages=others)):
            after = step.after  # type: ignore[assignment]
            yield step._replace(after=after._replace(messages=after.messages | told))

    def matters(self, state: State, message: tuple[Any, ...]) -> bool:
        return message[0] == "discard" or super().matters(state, message)


class OldCopyCountsAsWhole(ChangeWorld):
    """A reversal makes the former owner the owner again as it is: what came since then is lost."""

    def obey(self, nodes: tuple[Node, ...], node: Node, order: Any) -> tuple[Node, Any, frozenset[Any]]:
        if isinstance(order, Sync) and nodes[self.places.index(order.target)].records:
            return node, Synced(state=SyncState.CONTIGUOUS), frozenset()
        if isinstance(order, Prove) and node.records:
            owner = max(nodes, key=lambda other: other.fence)
            return node, Ended(end=self.end(owner.records)), frozenset()
        return super().obey(nodes, node, order)


class ReleaseByTimer(DiscardByMessage):
    """The end of the hold time is told to the store by a message, not by an entry: it may come too late."""

    def leader_steps(self, state: State) -> Iterator[Step]:
        yield from super().leader_steps(state)
        for kept in self.log.states[state.log].kept.values():
            more = frozenset(("discard", self.places.index(place)) for place in kept.stores)
            if not more <= state.messages:
                yield Step("the timer tells the store", state._replace(messages=state.messages | more))


class LateDataMakesItsPlace(ChangeWorld):
    """A record of the dual-write that comes after the rollback brings back what was deleted."""

    def received(self, state: State, change: int, target: int, place: int, record: Record) -> Iterator[Step]:
        node = state.nodes[target]
        if node.up and change not in dict(node.staged):
            opened = node._replace(staged=(*node.staged, (change, frozenset())))
            state = self.with_node(state, target, opened)
        yield from super().received(state, change, target, place, record)

    def matters(self, state: State, message: tuple[Any, ...]) -> bool:
        return message[0] == "data" or super().matters(state, message)


class HoldIsNotLogged(ChangeWorld):
    """The source is fenced while the log says PREPARED: whoever leads next goes back without an epoch."""

    def stands(self, node: Node, order: Any) -> OrderVerdict:
        if isinstance(order, Fence):
            known = self.log.states[node.applied].changes.get(self.partition)
            return (
                OrderVerdict.EXECUTE
                if known is not None and known.change == order.change
                else OrderVerdict.NEVER
            )
        return super().stands(node, order)

    def told(self, state: State) -> State:
        state = super().told(state)
        change = self.log.states[state.log].changes.get(self.partition)
        if change is None or change.phase is not ChangePhase.PREPARED:
            return state
        fence = Fence(to=self.places[0], topic=self.topic, partition=self.partition, change=change.change)
        return state._replace(messages=state.messages | {("order", self.known.of(fence))})


class CommitOfOne(ChangeWorld):
    """A set of replicas changes although only its owner has all rows."""

    def leader_steps(self, state: State) -> Iterator[Step]:
        change = self.log.states[state.log].changes.get(self.partition)
        if change is not None and change.phase is ChangePhase.HELD:
            end = self.end(state.nodes[0].records)
            if state.nodes[0].fence == change.change:
                # Proofs that nobody gave: the machine checks what it is told.
                commit = CommitChange(
                    partition=self.partition,
                    change=change.change,
                    epoch=change.epoch,
                    owner=change.owner.node,
                    end=end,
                    proofs=tuple(Proof(place, end) for place in change.replicas),
                )
                yield from self.proposed(state, commit, "leader commits with one replica")
        yield from super().leader_steps(state)


class Planted(NamedTuple):
    """`finds` is a word of what must be found."""

    world: type[ChangeWorld]
    plan: Plan
    finds: str


REVERSAL: Final = Plan(2, 1, ((1,), (0,)), rows=1, lagging=(), keeps=True)
FAILOVER: Final = Plan(3, 3, (), rows=1, lagging=(0,), crashing=(0,))
PLANTED: Final = (
    Planted(DualWriteStops, MOVE, "I13"),
    Planted(CopyMissesOne, MOVE, "I13"),
    Planted(OpensBeforeTheHold, MOVE, "I4"),
    Planted(TimerEndsTheHold, MOVE, "I"),
    Planted(HoldIsNotLogged, MOVE._replace(rows=1, aborts=1), "I13"),
    Planted(DiscardByMessage, Plan(2, 1, ((1,), (1,)), rows=1, aborts=1), "I5"),
    Planted(OldCopyCountsAsWhole, REVERSAL, "I5"),
    Planted(ReleaseByTimer, REVERSAL, "I5"),
    Planted(LateDataMakesItsPlace, MOVE._replace(rows=1, aborts=1), "I13"),
    Planted(RestartKeepsTheEpoch, FAILOVER._replace(rows=2, cuts=1, fails=1, lagging=()), "I5"),
    Planted(WipedStoreAnswers, FAILOVER._replace(wipes=1, fails=1, crashing=(0, 1)), "I5"),
    Planted(CommitOfOne, Plan(4, 3, ((0, 1, 3),), rows=1, lagging=(), fails=1, crashing=(0,)), "I5"),
)
