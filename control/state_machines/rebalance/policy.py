"""Decide whether the leader moves partitions without an operator, and which ones. Off by default.

    decide(state, loads, now_ms, memory) -> (Decision, memory)

Loads are soft state from heartbeats: one number for each partition, in any one unit (bytes per second
appended); their source can be replaced. The decision is about owners' loads. Its moves make the greatest and
the smallest load of a node more even, and never empty a healthy node. Each decision has a reason.

From the level of layout changes on each partition counts as `policy_partition_bytes_s` more. So an idle
cluster is judged by numbers of partitions, and a node that joins gets some. One sum judges both: two
judgements could undo each other's moves.

The ratio is max / min over nodes that take partitions, and must be *above* the limit. A minimum of 0
counts as infinite if the maximum is above 0, and as 1 without any load.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.rebalance_commands import StartRebalance
from ringfence.control.model.rebalances import Action, PlannedMove
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.control.state_machines.placement.zones import PlacementRole, members_of

# Moves of one decision. After a cool-down the next decision knows their effect.
MOVES_MAX: Final = 16
PERCENT: Final = 100


class Memory(msgspec.Struct, frozen=True):
    """A leader's memory between decisions; a new leader begins with the grace period.

    Times are ms of the leader's monotonic clock: the start of its leadership, its last check, its last
    start of a run.
    """

    began_ms: int
    checked_ms: int | None = None
    moved_ms: int | None = None


class Decision(NamedTuple):
    """`start` is a rebalance to begin, or None; `why` is the reason in both cases."""

    start: StartRebalance | None
    why: str


def decide(
    state: MetadataState,
    loads: Mapping[PartitionId, float],
    now_ms: int,
    memory: Memory,
    unlisted: Mapping[NodeId, float] = MappingProxyType({}),
) -> tuple[Decision | None, Memory]:
    """A decision, or None before the next one is due."""
    if not limit(state, "policy_enabled"):
        return None, memory
    if now_ms - memory.began_ms < limit(state, "policy_grace_s") * 1_000:
        return None, memory
    if memory.checked_ms is not None and (
        now_ms - memory.checked_ms < limit(state, "policy_check_interval_s") * 1_000
    ):
        return None, memory
    memory = msgspec.structs.replace(memory, checked_ms=now_ms)
    if state.rebalance.is_active:
        return Decision(None, f"rebalance {state.rebalance.run} is {state.rebalance.state}"), memory
    cooldown_ms = limit(state, "policy_cooldown_s") * 1_000
    if memory.moved_ms is not None and now_ms - memory.moved_ms < cooldown_ms:
        left_s = (cooldown_ms - (now_ms - memory.moved_ms)) // 1_000
        return Decision(None, f"in the cool-down for {left_s} s more"), memory
    decision = evaluate(state, loads, unlisted)
    if decision.start is not None:
        memory = msgspec.structs.replace(memory, moved_ms=now_ms)
    return decision, memory


def evaluate(
    state: MetadataState,
    loads: Mapping[PartitionId, float],
    unlisted: Mapping[NodeId, float] = MappingProxyType({}),
) -> Decision:
    """The decision for these loads, regardless of the time.

    `unlisted` is a node's load of partitions that are not in `loads`: it counts for the node and cannot
    move.
    """
    eligible = [member.node for member in members_of(state) if member.role is PlacementRole.TAKES]
    if len(eligible) < 2:
        return Decision(None, f"{len(eligible)} nodes take partitions; two are needed to balance loads")
    by_owner = _loads_by_owner(state, eligible, loads)
    totals = {
        node: sum(load for _, _, load in parts) + unlisted.get(node, 0.0) for node, parts in by_owner.items()
    }
    ratio = ratio_of(totals)
    top = limit(state, "policy_imbalance_percent") / PERCENT
    shown = listed([f"node {node}: {total:g} B/s" for node, total in sorted(totals.items())], 20)
    if not ratio > top:
        return Decision(None, f"loads {shown}: max/min {ratio:g} is not above {top:g}")
    moves = _moves(state, by_owner, totals, top)
    if not moves:
        return Decision(None, f"loads {shown}: max/min {ratio:g} is above {top:g}, but no move balances them")
    why = f"policy: loads {shown}: max/min {ratio:g} is above {top:g}"
    start = StartRebalance(action=Action.MOVE, moves=tuple(moves), why=why[:1_000])
    refusal = validate(state, start)
    if refusal is not None:
        return Decision(None, f"{why}; not now: {refusal.message}")
    return Decision(start, f"{why}; {len(moves)} moves make it {ratio_of(_after(totals, by_owner, moves)):g}")


def ratio_of(totals: Mapping[NodeId, float]) -> float:
    """Max / min; a minimum of 0 gives infinity if any node has load, else 1."""
    least, most = min(totals.values()), max(totals.values())
    if least > 0:
        return most / least
    return inf if most > 0 else 1.0


_Part = tuple[TopicId, PartitionId, float]


def _loads_by_owner(
    state: MetadataState, eligible: list[NodeId], loads: Mapping[PartitionId, float]
) -> dict[NodeId, list[_Part]]:
    each = limit(state, "policy_partition_bytes_s") if state.level >= LAYOUT_LEVEL else 0
    by_owner: dict[NodeId, list[_Part]] = {node: [] for node in eligible}
    for number, topic in sorted(state.topics.items()):
        for part in topic.layout.active():
            owner = topic.assignments[part.partition].owner.node
            if owner in by_owner and part.partition not in state.changes:
                load = max(0.0, loads.get(part.partition, 0.0)) + each
                by_owner[owner].append((number, part.partition, load))
    return by_owner


def _moves(
    state: MetadataState, by_owner: dict[NodeId, list[_Part]], totals: dict[NodeId, float], top: float
) -> list[PlannedMove]:
    """Move partitions from the fullest to the emptiest node, each time the one that leaves these two most
    even.

    Each partition moves once. A move is taken only if the fuller of the two nodes is then emptier than the
    fullest was. So each move narrows the loads, and a hot partition alone on its node stays there.
    """
    totals, parts_of = dict(totals), {node: list(parts) for node, parts in by_owner.items()}
    moved: set[PartitionId] = set()
    moves: list[PlannedMove] = []
    while len(moves) < MOVES_MAX and ratio_of(totals) > top:
        source = max(totals, key=lambda node: (totals[node], -node))
        target = min(totals, key=lambda node: (totals[node], node))
        best = None
        for topic, partition, load in parts_of[source]:
            after = max(totals[source] - load, totals[target] + load)
            fits = load > 0 and len(parts_of[source]) > 1 and after < totals[source]
            if fits and partition not in moved and (best is None or (after, partition) < best[:2]):
                best = (after, partition, topic, load)
        if best is None:
            break
        _, partition, topic, load = best
        moves.append(_planned(state, topic, partition, target))
        moved.add(partition)
        parts_of[source].remove((topic, partition, load))
        parts_of[target].append((topic, partition, load))
        totals[source] -= load
        totals[target] += load
    return moves


def _planned(state: MetadataState, topic: TopicId, partition: PartitionId, target: NodeId) -> PlannedMove:
    """Transfer the ownership to a replica if possible, which copies nothing. Otherwise the target replaces
    the owner.
    """
    assignment = state.topics[topic].assignments[partition]
    others = [place.node for place in assignment.replicas if place != assignment.owner]
    before = (assignment.owner.node, *others)
    after = (target, *[node for node in (before if target in others else others) if node != target])
    return PlannedMove(topic=topic, partition=partition, before=before, after=after)


def _after(
    totals: Mapping[NodeId, float], by_owner: Mapping[NodeId, list[_Part]], moves: list[PlannedMove]
) -> dict[NodeId, float]:
    loads = {partition: load for parts in by_owner.values() for _, partition, load in parts}
    result = dict(totals)
    for move in moves:
        result[move.before[0]] -= loads[move.partition]
        result[move.after[0]] += loads[move.partition]
    return result
