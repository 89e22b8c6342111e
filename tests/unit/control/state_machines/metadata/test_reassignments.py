"""Commands of changes: what each does, and what it is refused for."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import Command, DeleteTopic
from ringfence.control.model.ids import Epoch, Index, NodeId
from ringfence.control.model.node_commands import RemoveFromRing, RemoveNode, SetNode
from ringfence.control.model.reassignment_commands import ConfirmLeft, ForceOwner, ReleaseKept
from ringfence.control.model.reassignments import (
    ChangeId,
    ChangeKind,
    ChangePhase,
    Leftover,
    LeftoverKind,
    LogEnd,
    Proof,
)
from ringfence.control.model.results import ChangesPrepared, Refused
from ringfence.control.model.topics import Assignment
from ringfence.control.state_machines.metadata.reassignment_rules import awaits_owner
from ringfence.control.state_machines.metadata.ring_decisions import RingConsensus
from ringfence.native.wire import Code
from tests.fakes.metadata_log import END, LESS, MetadataLog, other


def test_a_move_goes_through_its_phases_and_gives_the_old_replica_back() -> None:
    lab = MetadataLog()
    lab.must(lab.prepare(2))
    began = ChangeId(lab.at)
    assert (lab.change.kind, lab.change.phase) == (ChangeKind.MOVE, ChangePhase.PREPARED)
    assert lab.now.owner.node == 1
    lab.must(lab.hold())
    assert lab.now.owner.node == 1
    lab.must(lab.commit({2: END}))
    assert lab.now == Assignment(owner=lab.place(2), epoch=Epoch(lab.at), replicas=(lab.place(2),))
    lab.must(lab.opened())
    (adopt,) = lab.state.leftovers[lab.partition]
    assert (adopt.place, adopt.kind) == (lab.place(2), LeftoverKind.ADOPT)
    lab.must(ConfirmLeft(partition=lab.partition, change=began, store=lab.place(2).store))
    lab.must(lab.clean())
    assert lab.state.changes == {}
    left = Leftover(topic=lab.topic, change=began, attempt=1, place=lab.place(1), kind=LeftoverKind.RELEASE)
    assert lab.state.leftovers == {lab.partition: (left,)}
    lab.refuses(lab.prepare(1), "still drops")
    confirm = ConfirmLeft(partition=lab.partition, change=left.change, store=left.place.store)
    lab.must(confirm)
    assert lab.state.leftovers == {}
    lab.refuses(confirm, "no step left")
    lab.must(lab.prepare(1))


def test_one_change_a_partition_and_each_is_decided_on_one_epoch() -> None:
    lab = MetadataLog(partitions=2)
    lab.refuses(lab.prepare(2, epoch=lab.now.epoch + 1), "decided on")
    lab.must(lab.prepare(2))
    result = lab.do(lab.prepare(5))
    assert isinstance(result, Refused)
    assert result.code == Code.ALREADY_EXISTS
    other_partition = replace(lab.prepare(2), partition=lab.partition + 1)
    assert isinstance(lab.do(other_partition), ChangesPrepared), "another partition's change goes on"


def test_an_abort_before_the_hold_touches_nobody_and_after_it_opens_the_owner_anew() -> None:
    lab = MetadataLog()
    before = lab.now
    lab.must(lab.prepare(2))
    number = lab.change.change
    lab.must(lab.abort())
    assert lab.now == before
    (left,) = lab.state.leftovers[lab.partition]
    assert (left.place, left.kind, left.change) == (lab.place(2), LeftoverKind.DISCARD, number)
    lab.must(lab.prepare(5))
    lab.must(lab.hold())
    held_at = lab.change.change
    lab.must(lab.abort())
    assert lab.now.owner == before.owner
    assert lab.now.epoch == lab.at > held_at


@pytest.mark.parametrize("ends", [{}, {2: LESS}, {1: END}])
def test_no_commit_without_the_new_owners_equal_chain(ends: dict[int, LogEnd]) -> None:
    lab = MetadataLog()
    lab.must(lab.prepare(2))
    lab.must(lab.hold())
    lab.refuses(lab.commit(ends))


def test_steps_out_of_order_and_of_other_changes_are_refused() -> None:
    lab = MetadataLog()
    lab.must(lab.prepare(2))
    lab.refuses(lab.commit({2: END}), "no COMMIT now")
    lab.refuses(lab.opened(), "no OPEN now")
    lab.refuses(replace(lab.hold(), change=other(lab.change)), "is over")
    lab.must(lab.hold())
    lab.refuses(lab.hold(), "no HOLD now")
    late = lab.commit({2: END})
    lab.refuses(replace(late, epoch=Epoch(0)), "decided on")
    again, back = late, lab.abort()
    lab.must(late)
    lab.refuses(again)
    lab.refuses(back, "no ABORT now")
    lab.refuses(replace(lab.opened(), epoch=Epoch(3)), "the OPEN is for")


def test_a_restart_of_the_source_ends_its_change_and_a_late_commit_is_refused() -> None:
    """It opens anew by the restart, which ends the fence: S would lose what it takes then."""
    lab = MetadataLog()
    lab.must(lab.prepare(2))
    lab.must(lab.hold())
    late = lab.commit({2: END})
    lab.must(lab.restart(1))
    assert lab.now.epoch == lab.at
    assert lab.state.changes == {}
    lab.refuses(late, "is over")


def test_a_restart_of_the_new_owner_after_the_commit_goes_forward() -> None:
    lab = MetadataLog()
    lab.must(lab.prepare(2))
    lab.must(lab.hold())
    lab.must(lab.commit({2: END}))
    lab.must(lab.restart(2))
    assert lab.now.epoch == lab.at
    lab.must(lab.opened())
    lab.must(lab.clean())


@pytest.mark.parametrize("how", ["failure", "restart"])
def test_a_failover_takes_the_most_advanced_of_a_majority(how: str) -> None:
    lab = MetadataLog(4, replication=3)
    lab.must(lab.prepare(1, 2, 8))
    lab.must(lab.fail(1) if how == "failure" else lab.restart(1))
    before = lab.now
    assert awaits_owner(lab.state, lab.partition)
    assert (lab.change.kind, lab.change.change) == (ChangeKind.FAILOVER, lab.at)
    assert lab.now.epoch < lab.at, "no owner, so no epoch to open under"
    assert [left.place.node for left in lab.state.leftovers[lab.partition]] == [8]
    lab.refuses(lab.hold(), "neither held nor aborted")
    lab.refuses(lab.abort(), "neither held nor aborted")
    lab.refuses(lab.commit({2: END}, owner=2), "2 must")
    lab.refuses(lab.commit({2: LESS, 5: END}, owner=2, end=LESS), "most advanced")
    lab.refuses(lab.commit({2: END, 8: END}, owner=2), "at most of each")
    newer = replace(LESS, epoch=Epoch(5))
    lab.must(lab.commit({2: END, 5: newer}, owner=5, end=newer))
    assert (lab.now.owner.node, lab.now.epoch) == (5, lab.at)
    assert {*lab.now.replicas} == {*before.replicas}
    lab.must(lab.opened())
    lab.must(lab.clean())
    assert [left.kind for left in lab.state.leftovers[lab.partition]] == [LeftoverKind.DISCARD]


def test_a_replica_that_cut_its_tail_counts_once_all_have_answered() -> None:
    lab = MetadataLog(3, replication=3)
    lab.must(lab.fail(1))
    command = lab.commit({2: END, 5: END}, owner=2)
    first, second = command.proofs
    lab.refuses(replace(command, proofs=(first, replace(second, cut=True))), "lost records")
    third = Proof(lab.place(1), END)
    lab.must(replace(command, proofs=(first, replace(second, cut=True), third)))


def test_without_a_majority_only_an_operator_chooses_and_says_what_may_be_lost() -> None:
    lab = MetadataLog(3, replication=3)
    lab.must(lab.fail(1))
    force = ForceOwner(**lab.which, owner=NodeId(2), accepts="")
    lab.refuses(force, "state the losses")
    lab.refuses(replace(force, owner=NodeId(9), accepts="rows since noon"), "no replica")
    lab.must(replace(force, accepts="rows that only nodes 1 and 5 have"))
    assert lab.now.owner.node == 2


def test_a_forced_owner_gets_other_replicas_for_those_that_are_lost() -> None:
    lab = MetadataLog(4, replication=3)
    lab.must(lab.fail(1))
    force = ForceOwner(**lab.which, owner=NodeId(2), accepts="rows that only nodes 1 and 5 have")
    for wrong, words in (
        ((2, 8), "3 different"),
        ((2, 8, 8), "3 different"),
        ((1, 5, 8), "the owner 2 among"),
        ((2, 8, 9), "not a member"),
    ):
        lab.refuses(replace(force, replicas=tuple(NodeId(node) for node in wrong)), words)
    lab.must(replace(force, replicas=(NodeId(8), NodeId(2), NodeId(5))))
    assert [place.node for place in lab.now.replicas] == [2, 8, 5]
    lab.must(lab.opened())
    lab.must(lab.clean())
    assert lab.state.leftovers == {}, "what the lost one has may be all that is left: nobody deletes it"
    lone = MetadataLog(4, replication=3)
    lone.must(lone.fail(1))
    lone.fail(2)
    lone.refuses(replace(force, **lone.which), "start it first")


def test_a_failover_that_is_under_way_outlives_restarts_and_failures_of_others() -> None:
    lab = MetadataLog(3, replication=3)
    lab.must(lab.fail(1))
    number = lab.change.change
    lab.must(lab.restart(1))
    assert lab.change.change == number
    lab.must(lab.fail(2))
    assert lab.change.change == number


def test_a_committed_change_whose_owner_fails_is_over_and_fails_over() -> None:
    lab = MetadataLog(4, replication=3)
    lab.must(lab.prepare(8, 2, 5))
    lab.must(lab.hold())
    lab.must(lab.commit({8: END, 5: END}))
    lab.must(lab.fail(8))
    assert lab.change.kind is ChangeKind.FAILOVER
    kinds = [(left.place.node, left.kind) for left in lab.state.leftovers[lab.partition]]
    assert kinds == [(8, LeftoverKind.ADOPT), (1, LeftoverKind.RELEASE)], (
        "who counted for the COMMIT adopts, though the change is over"
    )


def test_a_set_change_needs_a_majority_of_the_new_set() -> None:
    lab = MetadataLog(5, replication=3)
    lab.must(lab.prepare(1, 8, 11))
    assert lab.change.kind is ChangeKind.REPLICAS
    lab.must(lab.hold())
    lab.refuses(lab.commit({1: END, 8: LESS}), "2 of the new replicas")
    lab.refuses(lab.commit({1: END, 2: END}), "at most of each")
    lab.must(lab.commit({1: END, 11: END}))


def test_targets_must_live_and_be_able_to_take_the_partition() -> None:
    lab = MetadataLog(4)
    lab.must(SetNode(node=NodeId(2), draining=True))
    lab.refuses(lab.prepare(2), "drained")
    lab.refuses(lab.prepare(1), "would do nothing")
    lab.refuses(lab.prepare(2, 5), "1 different")
    lab.refuses(lab.prepare(99), "not a member")
    lab.fail(5)
    lab.refuses(lab.prepare(5), "FAILED")
    lab.fail(1)
    lab.refuses(lab.prepare(8), "only its owner can copy")


def test_a_node_that_a_change_is_about_is_not_removed() -> None:
    lab = MetadataLog(3)
    lab.must(lab.prepare(2))
    lab.refuses(RemoveFromRing(node=NodeId(2), version=lab.state.ring.version), "takes part in 1 changes")
    lab.must(lab.abort())
    lab.must(RemoveFromRing(node=NodeId(2), version=lab.state.ring.version))
    assert lab.partition in lab.state.leftovers
    lab.must(RemoveNode(node=NodeId(2)))
    assert lab.state.leftovers == {}, "nobody waits for a store that is gone"


def test_a_deleted_topic_is_dropped_by_everybody_who_may_hold_rows() -> None:
    lab = MetadataLog(3)
    lab.must(lab.prepare(2))
    lab.must(lab.hold())
    lab.must(lab.commit({2: END}))
    lab.must(lab.opened())
    lab.must(DeleteTopic(topic=lab.topic))
    assert set(lab.state.tombstones[lab.topic].holders) == {lab.place(1).store, lab.place(2).store}
    assert lab.state.changes == {} == lab.state.leftovers


def test_random_steps_keep_the_invariants_and_reach_every_phase() -> None:
    """Seeded, so that what it reaches is known; hypothesis shrinks in test_metadata_machine."""
    seen: set[tuple[ChangeKind, ChangePhase]] = set()
    for seed in range(80):
        draw = random.Random(seed)
        lab = MetadataLog(4, replication=draw.choice([1, 3]), partitions=2, hold_s=draw.choice([0, 300]))
        for _ in range(40):
            command = _drawn(lab, draw)
            if command is not None:
                lab.do(command)
            seen |= {(change.kind, change.phase) for change in lab.state.changes.values()}
    assert {(ChangeKind.MOVE, phase) for phase in ChangePhase} <= seen
    assert (ChangeKind.REPLICAS, ChangePhase.OPENED) in seen
    assert (ChangeKind.HAND_OVER, ChangePhase.OPENED) in seen
    assert (ChangeKind.FAILOVER, ChangePhase.OPENED) in seen


def _drawn(lab: MetadataLog, draw: random.Random) -> Command | None:
    nodes = draw.sample(lab.nodes, 3)
    which = draw.random()
    if which < 0.04:
        return lab.fail(node) if lab.state.nodes[node := draw.choice(lab.nodes)].life == "LIVE" else None
    if which < 0.1:
        return lab.restart(draw.choice(lab.nodes))
    if lab.partition not in lab.state.changes:
        count = len(lab.now.replicas)
        owner = draw.choice([*nodes[:count], lab.now.owner.node])
        return lab.prepare(*nodes[:count], owner=owner)
    ends = {int(place.node): draw.choice([END, END, END, LESS]) for place in lab.change.replicas}
    new_owner: int = draw.choice([lab.change.owner.node, draw.choice(sorted(ends))])
    left = lab.state.leftovers.get(lab.partition, ())
    confirm = [ConfirmLeft(partition=lab.partition, change=one.change, store=one.place.store) for one in left]
    over = [ReleaseKept(kept=((lab.partition, one.change),)) for one in lab.state.kept.values()]
    choices: list[Command] = [
        lab.hold(),
        lab.hold(),
        lab.commit(ends, owner=new_owner),
        lab.commit(ends, owner=new_owner),
        lab.opened(),
        lab.clean(),
        *confirm,
        *over,
        *([lab.abort()] if draw.random() < 0.3 else []),
    ]
    return draw.choice(choices)


def test_the_checker_finds_planted_defects() -> None:
    lab = MetadataLog(3, replication=3)
    lab.must(lab.prepare(2, 1, 5))
    stale = replace(lab.change, epoch=Epoch(0))
    torn = replace(lab.change, phase=ChangePhase.COMMITTED)
    told = Leftover(
        topic=lab.topic, change=ChangeId(1), attempt=1, place=lab.place(1), kind=LeftoverKind.RELEASE
    )
    for state, words in (
        (replace(lab.state, changes={lab.partition: stale}), "I4"),
        (replace(lab.state, changes={lab.partition: torn}), "I4"),
        (replace(lab.state, leftovers={lab.partition: (told,)}), "I16"),
    ):
        with pytest.raises(AssertionError, match=words):
            invariants.check(state, lab.at)
    moved = replace(lab.now, owner=lab.place(2), epoch=Epoch(lab.at + 1))
    topic = lab.state.topics[lab.topic]
    taken = replace(
        lab.state, changes={}, topics={lab.topic: replace(topic, assignments={lab.partition: moved})}
    )
    with pytest.raises(AssertionError, match="without a change"):
        invariants.check_step(lab.state, taken, Index(lab.at + 1))


def test_who_left_keeps_its_rows_until_an_entry_says_that_the_hold_time_is_over() -> None:
    lab = MetadataLog(4, hold_s=300)

    def moved(to: int) -> None:
        lab.must(lab.prepare(to))
        lab.must(lab.hold())
        lab.must(replace(lab.commit({to: END}), stopped_us=5))
        lab.must(ConfirmLeft(**lab.which, store=lab.place(to).store))
        lab.must(lab.opened())
        lab.must(replace(lab.clean(), gap_us=7))

    moved(2)
    (first,) = lab.state.kept.values()
    assert (first.before, first.stores) == ((lab.place(1),), (lab.place(1),))
    assert lab.state.leftovers == {}, "nobody is told to give anything back"
    lab.must(lab.prepare(1))
    back = lab.change.change
    assert lab.state.kept[lab.partition].stores == (), "the old copy is the change's now"
    lab.must(lab.abort())
    assert [left.kind for left in lab.state.leftovers[lab.partition]] == [LeftoverKind.DISCARD]
    lab.must(ConfirmLeft(partition=lab.partition, change=back, store=lab.place(1).store))
    moved(5)
    assert lab.state.kept[lab.partition].stores == (lab.place(2),)
    moved(8)
    assert lab.state.kept[lab.partition].stores == (lab.place(5),)
    (left,) = lab.state.leftovers[lab.partition]
    assert (left.place, left.kind) == (lab.place(2), LeftoverKind.RELEASE), "one way back, not two"
    kept = lab.state.kept[lab.partition]
    lab.refuses(ReleaseKept(kept=((lab.partition, first.change),)), "can be reversed any more")
    lab.must(ReleaseKept(kept=((lab.partition, kept.change),)))
    told = [known.place for known in lab.state.leftovers[lab.partition]]
    assert told == [lab.place(2), lab.place(5)]


def test_a_deleted_topic_and_a_removed_node_leave_nothing_kept() -> None:
    for ends in ("topic", "node"):
        lab = MetadataLog(3, hold_s=300)
        lab.must(lab.prepare(2))
        lab.must(lab.hold())
        lab.must(lab.commit({2: END}))
        lab.must(ConfirmLeft(**lab.which, store=lab.place(2).store))
        lab.must(lab.opened())
        lab.must(lab.clean())
        store = lab.place(1).store
        if ends == "topic":
            lab.must(DeleteTopic(topic=lab.topic))
            assert store in lab.state.tombstones[lab.topic].holders, "it still has the rows"
        else:
            lab.must(RingConsensus.propose_remove(lab.state, NodeId(1)))
            lab.must(RemoveNode(node=NodeId(1)))
            assert lab.state.leftovers == {}
        assert lab.state.kept == {}
