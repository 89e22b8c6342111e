"""Lead one change of a partition through its phases: observations in, orders and the next entry out.

    PREPARED   Receive at each target, Sync at the owner    `hold_decision` -> HoldChange
    HELD       Fence at the owner: S; Prove at the others   a majority of the new set at S -> CommitChange
    COMMITTED  LookOpen at the new owner                    -> ConfirmOpened
    OPENED     LookOpen, until the first acknowledgement    -> CleanChange
    FAILOVER   Fence at every replica                       a majority: the most advanced -> CommitChange

Pure: `advance(state, change, observed, now_ms)`. Observations are soft state: a new leader begins
without any and asks again, since every order may be repeated.

A try that fails or exceeds its time limit is aborted by an entry, never by a timer of one node alone
(I13). After its COMMIT a change only goes forward. `Coordinator` keeps the observations of all
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import (
    AbortChange,
    ChangeCommand,
    CleanChange,
    CommitChange,
    ConfirmOpened,
    HoldChange,
)
from ringfence.control.model.reassignments import Change, ChangeId, ChangeKind, ChangePhase, Proof
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Replica, Seal
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.reassignment_rules import assignment_of, forced_epoch, quorum
from ringfence.control.state_machines.reassignment.hold_decision import Lags, may_hold, with_lag
from ringfence.control.state_machines.reassignment.messages import (
    Ended,
    Failed,
    Fence,
    LookOpen,
    OrderDone,
    Prove,
    ReassignmentAnswer,
    ReassignmentOrder,
    Receive,
    Sync,
    Synced,
    SyncState,
)
from ringfence.control.state_machines.rebalance.loads import NO_PRESSURE, Pressure

# Time that the end of a change waits for the new owner's first acknowledgement, which ends the measured
# gap.
GAP_WAIT_MS: Final = 1_000
# Characters of the reasons for a slow copy in the entry that aborts it: room for two reasons. Every
# snapshot carries them.
SLOW_REASONS_MAX: Final = 600
# Time that a failover with a majority waits for the other live replicas: the former owner may be among
# them.
ANSWERS_GRACE_MS: Final = 200


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Observations of one leader about one change in one phase.

    `since_ms` is the time of the first observation in `phase`, `begun_ms` that of the first one of the
    change, both by the leader's monotonic clock. `syncs` holds the newest progress of each target.
    """

    change: ChangeId
    phase: ChangePhase
    since_ms: int
    begun_ms: int
    ready_targets: frozenset[Replica] = frozenset()
    syncs: tuple[tuple[Replica, Synced], ...] = ()
    lags: Lags = ()
    owner_end: LogEnd | None = None
    stopped_us: int = 0
    first_us: int = 0
    proofs: tuple[Proof, ...] = ()
    lacks: tuple[tuple[Replica, tuple[PartitionId, ...]], ...] = ()
    open_epoch: Epoch = Epoch(0)
    failure: str = ""


class Decision(NamedTuple):
    """Orders that nodes should have now, and an entry to propose."""

    orders: tuple[ReassignmentOrder, ...] = ()
    entry: ChangeCommand | None = None


def begin_phase(change: Change, now_ms: int, previous: Observed | None = None) -> Observed:
    """The observations for the change's present phase: `previous` if it is of this phase, else new ones.

    A new phase of the same change keeps the progress of copies and the time at which the change was
    first observed.
    """
    if previous is not None and (previous.change, previous.phase) == (change.change, change.phase):
        return previous
    begun_ms = previous.begun_ms if previous is not None and previous.change == change.change else now_ms
    syncs = previous.syncs if previous is not None and previous.change == change.change else ()
    return Observed(change=change.change, phase=change.phase, since_ms=now_ms, begun_ms=begun_ms, syncs=syncs)


def observe(observed: Observed, order: ReassignmentOrder, answer: ReassignmentAnswer) -> Observed:
    """The observations after a node's answer. An answer about another change or another phase changes
    nothing.
    """
    if order.change != observed.change:
        return observed
    if isinstance(answer, Failed):
        return replace(observed, failure=f"node {order.to.node}: {answer.why}")
    match order, answer:
        case Receive(to=to), OrderDone():
            return replace(observed, ready_targets=observed.ready_targets | {to})
        case Sync(target=target), Synced():
            others = tuple(sync for sync in observed.syncs if sync[0] != target)
            failure = f"node {order.to.node}: {answer.why}" if answer.state is SyncState.FAILED else ""
            lags = with_lag(observed.lags, target, answer)
            return replace(
                observed, syncs=(*others, (target, answer)), lags=lags, failure=failure or observed.failure
            )
        case Fence(to=to), Ended(end=end, cut=cut, stopped_us=stopped_us):
            if observed.phase is ChangePhase.HELD:
                return replace(observed, owner_end=end, stopped_us=stopped_us)
            lacks = tuple(told for told in observed.lacks if told[0] != to)
            if answer.lacks is not UNSET:
                lacks = (*lacks, (to, answer.lacks))
            return replace(observed, proofs=_with_proof(observed.proofs, Proof(to, end, cut)), lacks=lacks)
        case Prove(to=to), Ended(end=end, cut=cut):
            return replace(observed, proofs=_with_proof(observed.proofs, Proof(to, end, cut)))
        case LookOpen(epoch=epoch), OrderDone(first_us=first_us):
            return replace(observed, open_epoch=epoch, first_us=first_us)
        case _:
            return observed


def advance(
    state: MetadataState,
    change: Change,
    observed: Observed,
    now_ms: int,
    owned: Mapping[NodeId, int] | None = None,
    pressures: Mapping[NodeId, Pressure] = MappingProxyType({}),
) -> Decision:
    """Decide what to do for one change now. `owned` counts each node's partitions, to choose among equal
    replicas; `pressures` break ties.
    """
    assert (observed.change, observed.phase) == (change.change, change.phase), (
        "the observations are of another phase"
    )
    if change.phase is ChangePhase.COMMITTED:
        return _decide_committed(state, change, observed)
    if change.phase is ChangePhase.OPENED:
        return _decide_opened(state, change, observed, now_ms)
    if change.kind is ChangeKind.FAILOVER:
        return _decide_failover(state, change, observed, now_ms, owned or {}, pressures)
    why = _abort_reason(state, change, observed, now_ms)
    if why:
        return Decision(entry=AbortChange(partition=change.partition, change=change.change, why=why))
    return (
        _decide_prepared(state, change, observed)
        if change.phase is ChangePhase.PREPARED
        else _decide_held(state, change, observed)
    )


# ---- planned changes ----------------------------------------------------------------------------------


def _decide_prepared(state: MetadataState, change: Change, observed: Observed) -> Decision:
    owner, rate = assignment_of(state, change).owner, limit(state, "sync_bytes_per_s")
    # Repeat Receive while the change copies: a target that restarted within the failure time-out has lost
    # the order.
    orders: list[ReassignmentOrder] = [
        Receive(**_order_fields(change, target), owner=owner) for target in change.adds
    ]
    orders += [
        Sync(**_order_fields(change, owner), target=target, bytes_per_s=rate)
        for target in change.adds
        if target in observed.ready_targets
    ]
    if may_hold(change.adds, dict(observed.syncs), observed.lags):
        return Decision(tuple(orders), HoldChange(partition=change.partition, change=change.change))
    return Decision(tuple(orders))


def _decide_held(state: MetadataState, change: Change, observed: Observed) -> Decision:
    assignment = assignment_of(state, change)
    seal = state.topics[change.topic].seal(change.partition)
    if seal is not None:
        return _decide_sealed(change, observed, assignment, seal)
    if observed.owner_end is None:
        return Decision((Fence(**_order_fields(change, assignment.owner)),))
    end = observed.owner_end
    proofs = list(observed.proofs)
    if assignment.owner in change.replicas:
        proofs = [*_with_proof(observed.proofs, Proof(assignment.owner, end))]
    equal = [proof for proof in proofs if (proof.end.records, proof.end.chain) == (end.records, end.chain)]
    nodes = {proof.place.node for proof in equal}
    if len(equal) >= quorum(len(change.replicas)) and change.owner.node in nodes:
        commit = CommitChange(
            partition=change.partition,
            change=change.change,
            epoch=assignment.epoch,
            owner=change.owner.node,
            end=end,
            proofs=tuple(equal),
            rows=sum(sync.rows for _, sync in observed.syncs),
            bytes=sum(sync.bytes for _, sync in observed.syncs),
            stopped_us=observed.stopped_us,
        )
        return Decision((), commit)
    at_end = {proof.place for proof in proofs if proof.end.records >= end.records}
    unequal = [proof for proof in proofs if proof not in equal and proof.end.records >= end.records]
    if unequal and (change.owner == unequal[0].place or len(change.replicas) == 1):
        node = unequal[0].place.node
        why = f"node {node} has a chain that differs from the owner's at record {end.records} (I11)"
        return Decision((), AbortChange(partition=change.partition, change=change.change, why=why))
    return Decision(
        tuple(
            Prove(**_order_fields(change, place), records=end.records)
            for place in change.replicas
            if place not in at_end and place != assignment.owner
        )
    )


def _decide_sealed(change: Change, observed: Observed, assignment: Assignment, seal: Seal) -> Decision:
    """A SEALED log has an end already: its owner, which may lack records, is not asked for one."""
    end = seal.end
    equal = [
        proof for proof in observed.proofs if (proof.end.records, proof.end.chain) == (end.records, end.chain)
    ]
    needed = 1 if change.kind is ChangeKind.HAND_OVER else quorum(len(change.replicas))
    if len(equal) >= needed and change.owner in {proof.place for proof in equal}:
        commit = CommitChange(
            partition=change.partition,
            change=change.change,
            epoch=assignment.epoch,
            owner=change.owner.node,
            end=end,
            proofs=tuple(equal),
            rows=sum(sync.rows for _, sync in observed.syncs),
            bytes=sum(sync.bytes for _, sync in observed.syncs),
        )
        return Decision((), commit)
    proved = {proof.place for proof in equal}
    return Decision(
        tuple(
            Prove(**_order_fields(change, place), records=end.records)
            for place in change.replicas
            if place not in proved
        )
    )


def _abort_reason(state: MetadataState, change: Change, observed: Observed, now_ms: int) -> str:
    """The reason to abort this try; empty if the try goes on."""
    if observed.failure:
        return observed.failure
    owner = assignment_of(state, change).owner
    if change.phase is ChangePhase.HELD:
        held_ms = now_ms - observed.since_ms
        if held_ms >= limit(state, "hold_timeout_ms"):
            return f"held for {held_ms} ms, the limit `hold_timeout_ms`"
        return ""
    for place in dict.fromkeys((owner, change.owner, *change.adds)):
        if not _is_live(state, place):
            node = state.nodes.get(place.node)
            return f"node {place.node} is {'gone' if node is None else node.life}"
    ran_ms = now_ms - observed.begun_ms
    timeout_ms = limit(state, "move_timeout_ms")
    if ran_ms < timeout_ms:
        return ""
    reasons = "".join(f"; to node {place.node}: {sync.why}" for place, sync in observed.syncs if sync.why)
    return f"copying for {ran_ms} ms, the limit `move_timeout_ms`{reasons[:SLOW_REASONS_MAX]}"


# ---- failovers, and phases after COMMIT ----------------------------------------------------------------


def _decide_failover(
    state: MetadataState,
    change: Change,
    observed: Observed,
    now_ms: int,
    owned: Mapping[NodeId, int],
    pressures: Mapping[NodeId, Pressure],
) -> Decision:
    answered = {proof.place for proof in observed.proofs}
    orders = tuple(
        Fence(**_order_fields(change, place)) for place in change.replicas if place not in answered
    )
    all_answered = not orders
    countable = [proof for proof in observed.proofs if all_answered or not proof.cut]
    if len(countable) < quorum(len(change.replicas)):
        return Decision(orders)
    awaits_live = any(_is_live(state, order.to) for order in orders)
    if awaits_live and now_ms - observed.since_ms < ANSWERS_GRACE_MS:
        return Decision(orders)
    # Prefer live replicas: a failed node would be failed over again immediately if it became the owner.
    live = [proof for proof in countable if _is_live(state, proof.place) and not proof.cut]
    forced = forced_epoch(state, change)
    has_forced = any(proof.end.epoch >= forced for proof in live)
    countable = live if len(live) >= quorum(len(change.replicas)) and has_forced else countable
    greatest = max((proof.end.epoch, proof.end.records) for proof in countable)
    if greatest[0] < forced and not all_answered:
        return Decision(orders)
    equal = [proof for proof in countable if (proof.end.epoch, proof.end.records) == greatest]
    chosen = min(
        equal,
        key=lambda proof: (
            proof.place != change.owner,
            owned.get(proof.place.node, 0),
            pressures.get(proof.place.node, NO_PRESSURE),
            proof.place.node,
        ),
    )
    commit = CommitChange(
        partition=change.partition,
        change=change.change,
        epoch=change.epoch,
        owner=chosen.place.node,
        end=chosen.end,
        proofs=tuple(countable),
    )
    return Decision(orders, commit)


def _decide_committed(state: MetadataState, change: Change, observed: Observed) -> Decision:
    assignment = assignment_of(state, change)
    if observed.open_epoch == assignment.epoch:
        confirm = ConfirmOpened(partition=change.partition, change=change.change, epoch=assignment.epoch)
        return Decision((), confirm)
    return Decision((LookOpen(**_order_fields(change, assignment.owner), epoch=assignment.epoch),))


def _decide_opened(state: MetadataState, change: Change, observed: Observed, now_ms: int) -> Decision:
    """End the change. Its entry carries the gap between acknowledgements, if the new owner has
    acknowledged a batch.

    Without a batch the entry comes after GAP_WAIT_MS, and says that the gap is unknown.
    """
    gap_us = None
    if change.has_gap:
        if not observed.first_us and now_ms - observed.since_ms < GAP_WAIT_MS:
            assignment = assignment_of(state, change)
            return Decision((LookOpen(**_order_fields(change, assignment.owner), epoch=assignment.epoch),))
        # Two wall clocks: a negative difference is the offset between them.
        gap_us = max(0, observed.first_us - change.stopped_us) if observed.first_us else None
    return Decision(entry=CleanChange(partition=change.partition, change=change.change, gap_us=gap_us))


def _is_live(state: MetadataState, place: Replica) -> bool:
    node = state.nodes.get(place.node)
    return node is not None and node.life is Life.LIVE


def _order_fields(change: Change, to: Replica) -> dict[str, Any]:
    return {
        "to": to,
        "topic": change.topic,
        "partition": change.partition,
        "change": change.change,
        "attempt": change.attempt,
    }


def _with_proof(proofs: tuple[Proof, ...], proof: Proof) -> tuple[Proof, ...]:
    """Sorted by place, so that equal observations are equal values."""
    others = [other for other in proofs if other.place != proof.place]
    return tuple(sorted([*others, proof], key=lambda other: (other.place.node, other.place.store)))
