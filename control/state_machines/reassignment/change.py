"""Coordinate one change of a partition: observations of the leader in, orders and the next entry out.

    PREPARED   Receive at each target, Sync at the owner    all targets contiguous -> HoldChange
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
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, NodeId
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignment_commands import (
    AbortChange,
    ChangeCommand,
    CleanChange,
    CommitChange,
    ConfirmOpened,
    HoldChange,
)
from ringfence.control.model.reassignments import Change, ChangeId, ChangeKind, ChangePhase, LogEnd, Proof
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.reassignment_rules import assignment_of, forced_epoch, quorum
from ringfence.control.state_machines.reassignment.messages import (
    Answer,
    Ended,
    Failed,
    Fence,
    LookOpen,
    Order,
    Prove,
    Ready,
    Receive,
    Sync,
    Synced,
    SyncState,
)

# Records that a target may lack when the leader proposes the HOLD: the size of a group commit, a few ms.
HOLD_GAP: Final = 64
# Answers in a row (half a second) without a smaller lag. The lag is then the load's own: one producer
# alone keeps 64 batches on their way. It disappears when the HOLD stops the load.
STEADY_LOOKS: Final = 10
# Time that the end of a change waits for the new owner's first acknowledgement, which ends the measured
# gap.
GAP_WAIT_MS: Final = 1_000
# Characters of the reasons for a slow copy in the entry that aborts it: room for two reasons. Every
# snapshot carries them.
HELD_UP_MAX: Final = 600
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
    receiving: frozenset[Replica] = frozenset()
    syncs: tuple[tuple[Replica, Synced], ...] = ()
    # Targets that lack more than HOLD_GAP: (target, its smallest lag in records, answers since the lag
    # shrank).
    lags: tuple[tuple[Replica, int, int], ...] = ()
    held: LogEnd | None = None
    stopped_us: int = 0
    first_us: int = 0
    proofs: tuple[Proof, ...] = ()
    opened: Epoch = Epoch(0)
    failed: str = ""


class Decision(NamedTuple):
    """Orders that nodes should have now, and an entry to propose."""

    orders: tuple[Order, ...] = ()
    entry: ChangeCommand | None = None


def fresh(change: Change, now_ms: int, known: Observed | None = None) -> Observed:
    """The observations for the change's present phase: `known` if it is of this phase, else new ones.

    A new phase of the same change keeps the progress of copies and the time at which the change was
    first observed.
    """
    if known is not None and (known.change, known.phase) == (change.change, change.phase):
        return known
    begun_ms = known.begun_ms if known is not None and known.change == change.change else now_ms
    syncs = known.syncs if known is not None and known.change == change.change else ()
    return Observed(change=change.change, phase=change.phase, since_ms=now_ms, begun_ms=begun_ms, syncs=syncs)


def heard(seen: Observed, order: Order, answer: Answer) -> Observed:
    """The observations after a node's answer. An answer about another change or another phase changes
    nothing.
    """
    if order.change != seen.change:
        return seen
    if isinstance(answer, Failed):
        return replace(seen, failed=f"node {order.to.node}: {answer.why}")
    match order, answer:
        case Receive(to=to), Ready():
            return replace(seen, receiving=seen.receiving | {to})
        case Sync(target=target), Synced():
            others = tuple(known for known in seen.syncs if known[0] != target)
            failed = f"node {order.to.node}: {answer.why}" if answer.state is SyncState.FAILED else ""
            lags = _with_lag(seen.lags, target, answer)
            return replace(seen, syncs=(*others, (target, answer)), lags=lags, failed=failed or seen.failed)
        case Fence(to=to), Ended(end=end, cut=cut, stopped_us=stopped_us):
            if seen.phase is ChangePhase.HELD:
                return replace(seen, held=end, stopped_us=stopped_us)
            return replace(seen, proofs=_with_proof(seen.proofs, Proof(to, end, cut)))
        case Prove(to=to), Ended(end=end, cut=cut):
            return replace(seen, proofs=_with_proof(seen.proofs, Proof(to, end, cut)))
        case LookOpen(epoch=epoch), Ready(first_us=first_us):
            return replace(seen, opened=epoch, first_us=first_us)
        case _:
            return seen


def advance(
    state: MetadataState,
    change: Change,
    seen: Observed,
    now_ms: int,
    owned: Mapping[NodeId, int] | None = None,
) -> Decision:
    """Decide what to do for one change now. `owned` counts each node's partitions, to choose among equal
    replicas.
    """
    assert (seen.change, seen.phase) == (change.change, change.phase), "the observations are of another phase"
    if change.phase is ChangePhase.COMMITTED:
        return _opening(state, change, seen)
    if change.phase is ChangePhase.OPENED:
        return _cleaning(state, change, seen, now_ms)
    if change.kind is ChangeKind.FAILOVER:
        return _failing_over(state, change, seen, now_ms, owned or {})
    why = _hopeless(state, change, seen, now_ms)
    if why:
        return Decision(entry=AbortChange(partition=change.partition, change=change.change, why=why))
    return (
        _copying(state, change, seen) if change.phase is ChangePhase.PREPARED else _held(state, change, seen)
    )


# ---- planned changes ----------------------------------------------------------------------------------


def _copying(state: MetadataState, change: Change, seen: Observed) -> Decision:
    owner, rate = assignment_of(state, change).owner, limit(state, "sync_bytes_per_s")
    # Repeat Receive while the change copies: a target that restarted within the failure time-out has lost
    # the order.
    orders: list[Order] = [Receive(**_of(change, target), owner=owner) for target in change.adds]
    orders += [
        Sync(**_of(change, owner), target=target, bytes_per_s=rate)
        for target in change.adds
        if target in seen.receiving
    ]
    if all(_is_level(seen, target) for target in change.adds):
        return Decision(tuple(orders), HoldChange(partition=change.partition, change=change.change))
    return Decision(tuple(orders))


def _is_level(seen: Observed, target: Replica) -> bool:
    """Whether the target would have all records soon after a HOLD."""
    sync = dict(seen.syncs).get(target)
    if sync is None or sync.state is not SyncState.CONTIGUOUS:
        return False
    is_steady = any(
        known == target and looks >= STEADY_LOOKS and sync.gap <= 2 * least
        for known, least, looks in seen.lags
    )
    return sync.gap <= HOLD_GAP or is_steady


def _with_lag(
    lags: tuple[tuple[Replica, int, int], ...], target: Replica, sync: Synced
) -> tuple[tuple[Replica, int, int], ...]:
    if sync.state is not SyncState.CONTIGUOUS or sync.gap <= HOLD_GAP:
        return lags
    others = tuple(known for known in lags if known[0] != target)
    least, looks = next(((least, looks) for known, least, looks in lags if known == target), (sync.gap, -1))
    shrank = sync.gap < least * 3 // 4
    return (*others, (target, min(least, sync.gap), 0 if shrank else looks + 1))


def _held(state: MetadataState, change: Change, seen: Observed) -> Decision:
    assignment = assignment_of(state, change)
    if seen.held is None:
        return Decision((Fence(**_of(change, assignment.owner)),))
    end = seen.held
    proofs = list(seen.proofs)
    if assignment.owner in change.replicas:
        proofs = [*_with_proof(seen.proofs, Proof(assignment.owner, end))]
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
            rows=sum(sync.rows for _, sync in seen.syncs),
            bytes=sum(sync.bytes for _, sync in seen.syncs),
            stopped_us=seen.stopped_us,
        )
        return Decision((), commit)
    told = {proof.place for proof in proofs if proof.end.records >= end.records}
    differing = [proof for proof in proofs if proof not in equal and proof.end.records >= end.records]
    if differing and (change.owner == differing[0].place or len(change.replicas) == 1):
        node = differing[0].place.node
        why = f"node {node} has a chain that differs from the owner's at record {end.records} (I11)"
        return Decision((), AbortChange(partition=change.partition, change=change.change, why=why))
    return Decision(
        tuple(
            Prove(**_of(change, place), records=end.records)
            for place in change.replicas
            if place not in told and place != assignment.owner
        )
    )


def _hopeless(state: MetadataState, change: Change, seen: Observed, now_ms: int) -> str:
    """The reason to abort this try; empty if the try goes on."""
    if seen.failed:
        return seen.failed
    owner = assignment_of(state, change).owner
    if change.phase is ChangePhase.HELD:
        held_ms = now_ms - seen.since_ms
        if held_ms >= limit(state, "hold_timeout_ms"):
            return f"held for {held_ms} ms, the limit `hold_timeout_ms`"
        return ""
    for place in dict.fromkeys((owner, change.owner, *change.adds)):
        if not _is_live(state, place):
            node = state.nodes.get(place.node)
            return f"node {place.node} is {'gone' if node is None else node.life}"
    ran_ms = now_ms - seen.begun_ms
    top = limit(state, "move_timeout_ms")
    if ran_ms < top:
        return ""
    held_up = "".join(f"; to node {place.node}: {sync.why}" for place, sync in seen.syncs if sync.why)
    return f"copying for {ran_ms} ms, the limit `move_timeout_ms`{held_up[:HELD_UP_MAX]}"


# ---- failovers, and phases after COMMIT ----------------------------------------------------------------


def _failing_over(
    state: MetadataState, change: Change, seen: Observed, now_ms: int, owned: Mapping[NodeId, int]
) -> Decision:
    told = {proof.place for proof in seen.proofs}
    orders = tuple(Fence(**_of(change, place)) for place in change.replicas if place not in told)
    everybody = not orders
    counted = [proof for proof in seen.proofs if everybody or not proof.cut]
    if len(counted) < quorum(len(change.replicas)):
        return Decision(orders)
    missing = any(_is_live(state, order.to) for order in orders)
    if missing and now_ms - seen.since_ms < ANSWERS_GRACE_MS:
        return Decision(orders)
    # Prefer live replicas: a failed node would be failed over again immediately if it became the owner.
    live = [proof for proof in counted if _is_live(state, proof.place) and not proof.cut]
    forced = forced_epoch(state, change)
    has_forced = any(proof.end.epoch >= forced for proof in live)
    counted = live if len(live) >= quorum(len(change.replicas)) and has_forced else counted
    greatest = max((proof.end.epoch, proof.end.records) for proof in counted)
    if greatest[0] < forced and not everybody:
        return Decision(orders)
    equal = [proof for proof in counted if (proof.end.epoch, proof.end.records) == greatest]
    chosen = min(
        equal,
        key=lambda proof: (proof.place != change.owner, owned.get(proof.place.node, 0), proof.place.node),
    )
    commit = CommitChange(
        partition=change.partition,
        change=change.change,
        epoch=change.epoch,
        owner=chosen.place.node,
        end=chosen.end,
        proofs=tuple(counted),
    )
    return Decision(orders, commit)


def _opening(state: MetadataState, change: Change, seen: Observed) -> Decision:
    assignment = assignment_of(state, change)
    if seen.opened == assignment.epoch:
        confirm = ConfirmOpened(partition=change.partition, change=change.change, epoch=assignment.epoch)
        return Decision((), confirm)
    return Decision((LookOpen(**_of(change, assignment.owner), epoch=assignment.epoch),))


def _cleaning(state: MetadataState, change: Change, seen: Observed, now_ms: int) -> Decision:
    """End the change. Its entry carries the gap between acknowledgements, if the new owner has
    acknowledged a batch.

    Without a batch the entry comes after GAP_WAIT_MS, and says that the gap is unknown.
    """
    gap_us = None
    if change.has_gap:
        if not seen.first_us and now_ms - seen.since_ms < GAP_WAIT_MS:
            assignment = assignment_of(state, change)
            return Decision((LookOpen(**_of(change, assignment.owner), epoch=assignment.epoch),))
        # Two wall clocks: a negative difference is the offset between them.
        gap_us = max(0, seen.first_us - change.stopped_us) if seen.first_us else None
    return Decision(entry=CleanChange(partition=change.partition, change=change.change, gap_us=gap_us))


def _is_live(state: MetadataState, place: Replica) -> bool:
    node = state.nodes.get(place.node)
    return node is not None and node.life is Life.LIVE


def _of(change: Change, to: Replica) -> dict[str, Any]:
    return {
        "to": to,
        "topic": change.topic,
        "partition": change.partition,
        "change": change.change,
        "attempt": change.attempt,
    }


def _with_proof(proofs: tuple[Proof, ...], proof: Proof) -> tuple[Proof, ...]:
    """Sorted by place, so that equal observations are equal values."""
    others = [known for known in proofs if known.place != proof.place]
    return tuple(sorted([*others, proof], key=lambda known: (known.place.node, known.place.store)))
