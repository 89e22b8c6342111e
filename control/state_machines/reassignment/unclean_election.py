"""What a choice of an owner without a majority may lose: told to the operator before he makes it.

A failover takes the most advanced of a majority that is fenced, so whatever was acknowledged is on one of
them. Without a majority somebody has to say that rows may go: those that only silent replicas have. When they
come back, they cut what the new owner does not have (truncation by (epoch, end)).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ringfence.control.model.ids import NodeId
from ringfence.control.model.reassignments import Change, ChangeKind, LogEnd, Proof
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.reassignment_rules import quorum


class Candidate(NamedTuple):
    """One replica as the next owner. `end` is None while it has not answered a fence.

    `lost_records` are lost for certain: another replica that answered has them; None: some are, and the
    epochs do not tell how many. `may_lose` says it all.
    """

    node: NodeId
    life: str
    end: LogEnd | None
    cut: bool
    lost_records: int | None
    may_lose: str


def candidates(state: MetadataState, change: Change, proofs: Iterable[Proof]) -> tuple[Candidate, ...]:
    """Each replica of a partition whose owner is sought, in the order of the nodes."""
    assert change.kind is ChangeKind.FAILOVER, change
    told = {proof.place: proof for proof in proofs if proof.place in change.replicas}
    return tuple(
        _candidate(state, change, place, told)
        for place in sorted(change.replicas, key=lambda place: place.node)
    )


def _candidate(state: MetadataState, change: Change, place: Replica, told: dict[Replica, Proof]) -> Candidate:
    node, mine = state.nodes.get(place.node), told.get(place)
    life = "gone" if node is None else str(node.life)
    silent = sorted(other.node for other in change.replicas if other not in told and other != place)
    if mine is None:
        what = f"node {place.node} has not answered: nobody knows where its log ends"
        return Candidate(place.node, life, None, cut=False, lost_records=0, may_lose=what)
    best = max((proof.end for proof in told.values()), key=lambda end: (end.epoch, end.records))
    lost: int | None = 0
    parts = [f"node {place.node} ends at record {mine.end.records} of epoch {mine.end.epoch}"]
    if (best.epoch, best.records) > (mine.end.epoch, mine.end.records):
        # Logs that end in different epochs may part long before either end.
        lost = best.records - mine.end.records if best.epoch == mine.end.epoch else None
        parts.append(
            f"another replica ends at record {best.records} of epoch {best.epoch}: "
            f"{'some' if lost is None else lost} of its records are lost for certain"
        )
    if mine.cut:
        parts.append("it has lost the end of its log, which may have been acknowledged")
    if silent:
        parts.append(
            f"rows that were acknowledged and are only on {_nodes(silent)} are lost; these cut them when "
            "they come back"
        )
    if len(told) >= quorum(len(change.replicas)) and not any(proof.cut for proof in told.values()):
        parts.append("a majority has answered: the failover goes on by itself, nobody needs to choose")
    return Candidate(place.node, life, mine.end, mine.cut, lost, "; ".join(parts))


def _nodes(numbers: list[NodeId]) -> str:
    return f"node{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
