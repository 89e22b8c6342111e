"""Owners of SEALED partitions: what a failure, a move and an accepted loss do to them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.commands import TruncateTopic
from ringfence.control.model.ids import Epoch, NodeId, PartitionId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.reassignment_commands import (
    CommitChange,
    FailOver,
    ForceOwner,
    HoldChange,
    PrepareChange,
)
from ringfence.control.model.reassignments import ChangeId, Proof
from ringfence.control.state_machines.node_orders import FollowSealed, OpenPartition, OpenSealed, between
from ringfence.control.state_machines.reassignment.coordinator import Coordinator
from ringfence.control.state_machines.reassignment.messages import Ended, Prove
from ringfence.control.state_machines.reassignment.move_phases import advance, begin_phase, observe
from ringfence.native.wire import Code
from tests.fakes.layout_log import END, LayoutLog

SHORT = LogEnd(Epoch(1), 5, 50, 98)


def sealed(*, replication: int = 3, nodes: int = 4) -> tuple[LayoutLog, PartitionId]:
    log = LayoutLog(nodes, replication=replication)
    source = log.active[0].partition
    log.done(log.split(log.active[0]))
    return log, source


def test_one_entry_gives_all_of_a_failed_nodes_to_live_replicas_evenly() -> None:
    log = LayoutLog(4, replication=3, partitions=12)
    sources = [part.partition for part in log.active]
    for part in log.active:
        log.done(log.split(part))
    node = log.now.assignments[sources[0]].owner.node
    owned = [source for source in sources if log.now.assignments[source].owner.node == node]
    assert len(owned) == 3
    log.must(log.fail(int(node)))
    owners = [log.now.assignments[source].owner.node for source in owned]
    assert node not in owners
    assert sorted(map(owners.count, {*owners})) == [1, 2]
    assert {log.epoch(source) for source in owned} == {log.at}
    assert not {*owned} & {*log.state.changes}
    log.agree()


def test_without_a_live_replica_they_wait_and_are_not_asked_for_again_and_again() -> None:
    log, source = sealed()
    replicas = [place.node for place in log.now.assignments[source].replicas]
    for node in replicas[1:]:
        log.must(FailNode(node=node, changed=log.state.nodes[node].changed))
    before = log.now.assignments[source]
    log.must(log.fail(int(replicas[0])))
    assert log.now.assignments[source] == before
    coordinator = Coordinator()
    coordinator.begin(0)
    failovers = [entry for entry in coordinator.step(log.state, 0).entries if isinstance(entry, FailOver)]
    assert replicas[0] not in {entry.node for entry in failovers}
    log.must(log.restart(int(replicas[1])))
    for entry in coordinator.step(log.state, 5_000).entries:
        log.do(entry)
    assert log.now.assignments[source].owner.node == replicas[1]


@pytest.mark.parametrize("replication", [1, 3])
def test_a_restarted_owner_keeps_them_under_a_new_epoch(replication: int) -> None:
    log, source = sealed(replication=replication)
    owner = log.now.assignments[source].owner
    log.must(log.restart(int(owner.node)))
    assert log.now.assignments[source].owner == owner
    assert log.epoch(source) == log.at
    assert source not in log.state.changes


def test_nodes_derive_orders_that_write_no_epoch_record() -> None:
    log, source = sealed()
    assignment = log.now.assignments[source]
    before = log.state
    log.must(log.fail(int(assignment.owner.node)))
    new = log.now.assignments[source].owner
    for here in assignment.replicas:
        orders = [
            order
            for start in (before, type(before)())
            for phase in between(start, log.state, here)
            for order in phase
            if getattr(order, "partition", 0) == source
        ]
        assert not any(isinstance(order, OpenPartition) for order in orders)
        kind = OpenSealed if here == new else FollowSealed
        found = [order for order in orders if isinstance(order, kind)]
        assert len(found) == 2, "after the entry, and at a start"
        assert {(order.end, order.version, order.epoch) for order in found} == {(END, 2, log.at)}


def moving(log: LayoutLog, source: PartitionId, *nodes: NodeId) -> dict[str, Any]:
    log.must(
        PrepareChange(
            topic=log.topic, partition=source, epoch=log.epoch(source), owner=nodes[0], replicas=nodes
        )
    )
    which: dict[str, Any] = {"partition": source, "change": log.state.changes[source].change}
    log.must(HoldChange(**which))
    return which


def test_a_hand_over_needs_one_proof_of_the_sealed_end_and_not_the_owners_word() -> None:
    log, source = sealed()
    replicas = [place.node for place in log.now.assignments[source].replicas]
    which = moving(log, source, replicas[1], replicas[0], replicas[2])
    change = log.state.changes[source]
    observed = begin_phase(change, 0)
    orders, entry = advance(log.state, change, observed, 0)
    assert entry is None
    assert {type(order) for order in orders} == {Prove}
    assert {order.records for order in orders if isinstance(order, Prove)} == {END.records}
    order = next(order for order in orders if order.to.node == replicas[1])
    assert advance(log.state, change, observe(observed, order, Ended(end=SHORT)), 0).entry is None
    commit = advance(log.state, change, observe(observed, order, Ended(end=END)), 0).entry
    assert isinstance(commit, CommitChange)
    short = replace(commit, end=SHORT, proofs=(Proof(order.to, SHORT),))
    assert log.refuses(short, "ends at record 7").code == Code.INVALID_ARGUMENT
    other = replace(commit, proofs=(Proof(log.place(int(replicas[2])), END),))
    assert log.refuses(other, "and the owner").code == Code.TOO_FEW_REPLICAS
    strange = replace(END, chain=1)
    log.refuses(replace(commit, proofs=(Proof(order.to, strange),)), "have all of its 7 records")
    log.must(commit)
    assert log.now.assignments[source].owner.node == replicas[1]
    assert which["change"] == commit.change


def test_a_copy_needs_a_majority_that_has_all_records() -> None:
    log, source = sealed()
    old = [place.node for place in log.now.assignments[source].replicas]
    new = next(node for node in log.nodes if node not in old)
    which = moving(log, source, new, old[1], old[2])
    epoch = log.epoch(source)
    one = CommitChange(**which, epoch=epoch, owner=new, end=END, proofs=(Proof(log.place(int(new)), END),))
    assert log.refuses(one, "2 must").code == Code.TOO_FEW_REPLICAS
    log.must(replace(one, proofs=(*one.proofs, Proof(log.place(int(old[1])), END))))


def test_an_accepted_loss_lowers_the_end_and_only_then() -> None:
    log, source = sealed()
    owner = log.now.assignments[source].replicas[1]
    log.must(TruncateTopic(topic=log.topic, starts={source: 60}))
    ready = ForceOwner(
        partition=source, change=ChangeId(0), owner=owner.node, accepts="rows of node 1 are lost", end=SHORT
    )
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"change": 5}, "without a change"),
        ({"end": UNSET}, "name the end"),
        ({"replicas": (owner.node,)}, "and no replicas"),
        ({"end": END}, "loses nothing"),
        ({"end": replace(SHORT, offset=71)}, "or has more"),
        ({"accepts": "yes"}, "state the losses"),
        ({"owner": NodeId(99)}, "holds no replica"),
    ]
    for values, words in wrong:
        log.refuses(replace(ready, **values), words)
    active = log.active[0].partition
    log.refuses(replace(ready, partition=active), "is not SEALED")
    log.must(ready)
    seal = log.now.seal(source)
    assert seal is not None
    assert (seal.end, seal.lowered) == (SHORT, log.at)
    assert (log.now.starts[source], log.now.start_epoch(source)) == (50, log.at)
    assert (log.now.assignments[source].owner, log.epoch(source)) == (owner, log.at)
    [order] = [
        order
        for phase in between(type(log.state)(), log.state, owner)
        for order in phase
        if isinstance(order, OpenSealed)
    ]
    assert (order.end, order.lowered) == (SHORT, log.at)
    log.must(log.fail(int(owner.node)))  # it fails over as before
    log.agree()


def test_a_replica_that_opened_a_snapshot_chooses_the_same_owners() -> None:
    """Maps of a snapshot are sorted; those of a replica that never opened one are in the order of the log."""
    log = LayoutLog(4, replication=3, partitions=16)
    for part in reversed(log.active):
        log.done(log.split(part))
    log.agree()  # the other replica opens a snapshot
    node = log.now.assignments[log.now.layout.partitions[0].partition].owner.node
    log.must(log.fail(int(node)))
    log.agree()
