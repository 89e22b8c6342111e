"""Report possible losses of an owner that is chosen without a majority, before an operator chooses it.

A failover takes the most advanced replica of a fenced majority, and every acknowledged row is on one
of them. Without a majority an operator has to accept that rows may be lost: those that only silent
replicas have. When these replicas return, they truncate the rows that the new owner does not have, by
(epoch, end).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import Change, ChangeKind, Proof
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.reassignment_rules import quorum


class Candidate(NamedTuple):
    """One replica as the next owner. `end` is None before the replica has answered a fence.

    `lost_records` are the records of another replica that answered, which are certainly lost. None
    stands for an unknown number: the logs end in different epochs. `may_lose` is the whole statement
    for the operator. `lacks` are partitions that this one came from, and of which its log has not everything:
    as owner it inherits again before it takes rows.
    """

    node: NodeId
    life: str
    end: LogEnd | None
    cut: bool
    lost_records: int | None
    may_lose: str
    lacks: tuple[PartitionId, ...] = ()


def candidates(
    state: MetadataState,
    change: Change,
    proofs: Iterable[Proof],
    lacks: Iterable[tuple[Replica, tuple[PartitionId, ...]]] = (),
) -> tuple[Candidate, ...]:
    """Each replica of a partition whose owner is sought, ordered by node."""
    assert change.kind is ChangeKind.FAILOVER, change
    proof_of = {proof.place: proof for proof in proofs if proof.place in change.replicas}
    lacks_of = dict(lacks)
    return tuple(
        _candidate(state, change, place, proof_of)._replace(lacks=lacks_of.get(place, ()))
        for place in sorted(change.replicas, key=lambda place: place.node)
    )


def _candidate(
    state: MetadataState, change: Change, place: Replica, proofs: dict[Replica, Proof]
) -> Candidate:
    node, own = state.nodes.get(place.node), proofs.get(place)
    life = "gone" if node is None else str(node.life)
    silent = sorted(other.node for other in change.replicas if other not in proofs and other != place)
    if own is None:
        what = f"node {place.node} has not answered: the end of its log is unknown"
        return Candidate(place.node, life, None, cut=False, lost_records=0, may_lose=what)
    best = max((proof.end for proof in proofs.values()), key=lambda end: (end.epoch, end.records))
    lost: int | None = 0
    parts = [f"node {place.node} ends at record {own.end.records} of epoch {own.end.epoch}"]
    if (best.epoch, best.records) > (own.end.epoch, own.end.records):
        # Logs that end in different epochs may have diverged long before either end.
        lost = best.records - own.end.records if best.epoch == own.end.epoch else None
        parts.append(
            f"another replica ends at record {best.records} of epoch {best.epoch}: "
            f"{'some' if lost is None else lost} of its records are certainly lost"
        )
    if own.cut:
        parts.append("its log has lost records at the end, which may have been acknowledged")
    if silent:
        parts.append(
            f"acknowledged rows that are only on {_nodes(silent)} are lost: they are truncated when these "
            "replicas return"
        )
    if len(proofs) >= quorum(len(change.replicas)) and not any(proof.cut for proof in proofs.values()):
        parts.append("a majority has answered: the failover completes by itself, without a choice")
    return Candidate(place.node, life, own.end, own.cut, lost, "; ".join(parts))


def _nodes(numbers: list[NodeId]) -> str:
    return f"node{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
