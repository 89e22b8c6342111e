"""Members are registered, started, failed, recovered, drained and removed by rules."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import ConfirmDropped, DeleteTopic, PurgeTopic, RestartNode, SetConfig
from ringfence.control.model.ids import Epoch, Index, NodeId, TopicId
from ringfence.control.model.node_commands import (
    AddToRing,
    FailNode,
    FormRing,
    RecoverNode,
    RegisterNode,
    RemoveFromRing,
    RemoveNode,
    SetNode,
)
from ringfence.control.model.nodes import Life, Ring, Vote
from ringfence.control.model.results import Done, NodeRegistered, NodeRestarted, RingChanged
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.runtime.membership import removed_node
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native.wire import Code
from tests.fakes.checked_commands import ONE, TWO, after, refused, told, two
from tests.fakes.metadata_commands import CLUSTER, INIT, cluster, create, entry, register, restart, store_of


def test_a_registered_node_has_the_index_as_its_id_and_joins_until_it_starts() -> None:
    state, result = apply(after(EMPTY, 1, INIT), entry(7, register(2, zone="a", labels={"disk": "nvme"})))
    assert result == NodeRegistered(node=NodeId(7))
    node = state.nodes[NodeId(7)]
    assert (node.life, node.started, node.zone, node.labels) == (Life.JOINING, 0, "a", {"disk": "nvme"})
    assert not node.takes_partitions
    assert "JOINING" in refused(state, AddToRing(node=NodeId(7), version=1)).message
    state = after(state, 8, restart(state, 7))
    assert (state.nodes[NodeId(7)].life, state.nodes[NodeId(7)].started) == (Life.LIVE, 8)


def test_a_store_registers_once_and_is_told_the_same_id_again() -> None:
    state = two()
    again, result = apply(state, entry(9, register(2)))
    assert again is state
    assert result == NodeRegistered(node=TWO)


def test_a_store_of_another_cluster_is_told_so() -> None:
    stranger = RegisterNode(cluster=b"x" * 16, store=store_of(3))
    refusal = refused(two(), stranger)
    assert refusal.code == Code.UNAUTHORIZED
    assert CLUSTER.hex() in refusal.message


def test_a_node_starts_with_the_store_that_it_registered() -> None:
    wiped = RestartNode(node=TWO, store=store_of(9), addresses=(), program="")
    assert "another data directory joins as another node" in refused(two(), wiped).message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"weight": 0}, "weight=0"),
        ({"weight": 10_001}, "weight=10001"),
        ({"zone": "a\n"}, "zone"),
        ({"zone": "z" * 300}, "zone of 300 bytes"),
        ({"labels": {"": "x"}}, "name of a label"),
        ({"labels": {f"l{n}": "x" for n in range(33)}}, "33 labels"),
        ({"control": ("c",) * 17}, "17 addresses"),
        ({"http": ("",)}, "address ''"),
    ],
)
def test_an_unsound_description_is_refused(settings: dict[str, object], words: str) -> None:
    state = after(EMPTY, 1, INIT)
    assert words in refused(state, register(3, **settings)).message


def test_failure_and_recovery_are_decisions_about_one_life_and_come_too_late_for_another() -> None:
    state = cluster(2)
    node = state.nodes[TWO]
    assert refused(state, FailNode(node=TWO, changed=Index(1))).code == Code.TOO_OLD
    assert refused(state, RecoverNode(node=TWO, changed=node.changed)).code == Code.TOO_OLD
    failed = after(state, 10, FailNode(node=TWO, changed=node.changed))
    assert (failed.nodes[TWO].life, failed.nodes[TWO].changed) == (Life.FAILED, 10)
    assert refused(failed, FailNode(node=TWO, changed=Index(10))).code == Code.TOO_OLD
    again = after(failed, 11, RecoverNode(node=TWO, changed=Index(10)))
    assert again.nodes[TWO].life is Life.LIVE
    restarted = after(failed, 11, restart(failed, 2))
    assert refused(restarted, RecoverNode(node=TWO, changed=Index(10))).code == Code.TOO_OLD
    assert refused(restarted, FailNode(node=TWO, changed=node.changed)).code == Code.TOO_OLD


def test_failure_and_recovery_change_no_assignment() -> None:
    """J11: who comes back owns nothing by that; F18: nobody else's partitions move either."""
    state = after(cluster(3), 20, create(partitions=3, nodes=((1,), (2,), (5,))))
    failed = after(state, 21, FailNode(node=TWO, changed=state.nodes[TWO].changed))
    assert failed.topics == state.topics
    recovered = after(failed, 22, RecoverNode(node=TWO, changed=Index(21)))
    assert recovered.topics == state.topics


def test_a_restart_draws_epochs_for_the_partitions_of_its_own_store_alone() -> None:
    state = after(cluster(2), 20, create(partitions=3, nodes=((1,), (2,), (2,))))
    started, result = apply(state, entry(30, restart(state, 2)))
    epochs = [assignment.epoch for assignment in started.topics[TopicId(20)].assignments.values()]
    assert epochs == [20, 30, 30]
    assert isinstance(result, NodeRestarted)
    assert result.partitions == 2


def test_settings_change_only_what_they_name() -> None:
    state = cluster(2)
    changed = after(state, 10, SetNode(node=TWO, draining=True, vote=Vote.NEVER))
    assert changed.nodes[TWO] == replace(state.nodes[TWO], draining=True, vote=Vote.NEVER)
    same, result = apply(changed, entry(11, SetNode(node=TWO, draining=True)))
    assert (same is changed, result) == (True, Done())


@pytest.mark.parametrize("why", ["draining", "FAILED", "not in the ring", "not a member", "JOINING"])
def test_nothing_new_is_placed_where_it_cannot_live(why: str) -> None:
    state = cluster(2)
    match why:
        case "draining":
            state, why = after(state, 10, SetNode(node=TWO, draining=True)), "being drained"
        case "FAILED":
            state = after(state, 10, FailNode(node=TWO, changed=state.nodes[TWO].changed))
        case "not in the ring":
            state = after(two(), 3, restart(two(), 2))
        case "JOINING":
            state = two()
    node = 77 if why == "not a member" else 2
    assert why in refused(state, create(partitions=1, nodes=((node,),))).message


def test_the_first_topic_waits_for_the_minimum_size() -> None:
    """J2: refused below it, by a code of its own; formed once, by an entry."""
    state = cluster(2, nodes_min=3)
    assert state.ring == Ring()
    refusal = refused(state, create())
    assert refusal.code == Code.TOO_FEW_REPLICAS
    assert "2 live nodes; its first table waits for 3" in refusal.message
    assert refused(state, FormRing(nodes=(ONE, TWO))).code == Code.TOO_FEW_REPLICAS
    assert refused(state, AddToRing(node=TWO, version=0)).code == Code.TOO_FEW_REPLICAS
    state = cluster(3, nodes_min=3)
    third = max(state.nodes)
    assert "twice" in refused(state, FormRing(nodes=(ONE, TWO, TWO))).message
    formed, result = apply(state, entry(20, FormRing(nodes=(third, ONE, TWO))))
    assert result == RingChanged(version=1)
    assert formed.ring == Ring(version=1, members=(ONE, TWO, third), changed=Index(20))
    assert refused(formed, FormRing(nodes=(ONE, TWO, third))).code == Code.ALREADY_EXISTS
    after(formed, 21, create())
    lower = after(state, 20, SetConfig(values={"nodes_min": 2}), FormRing(nodes=(ONE, TWO)))
    assert lower.ring.members == (ONE, TWO)


def test_a_removed_node_is_gone_for_ever_with_its_store_and_nobody_waits_for_it() -> None:
    state = after(
        cluster(2),
        20,
        create(partitions=1, nodes=((2,),)),
        DeleteTopic(topic=TopicId(20)),
        RemoveFromRing(node=TWO, version=2),
    )
    assert state.tombstones[TopicId(20)].holders == (store_of(2),)
    gone = after(state, 23, RemoveNode(node=TWO))
    assert removed_node.is_removed(gone, TWO, 23)
    assert removed_node.entry_of(gone, TWO) == 23
    assert not removed_node.is_removed(state, TWO, 22)
    assert removed_node.is_removed(replace(gone, removed={}), TWO, 23), "forgotten among 4,096 later ones"
    assert not removed_node.is_removed(gone, NodeId(25), 23), "its entry is still to come"
    assert not removed_node.is_removed(EMPTY, TWO, 9), "nothing is known of a cluster"
    assert set(gone.nodes) == {ONE}
    assert gone.tombstones[TopicId(20)].holders == ()
    after(gone, 24, PurgeTopic(topic=TopicId(20)))
    assert "was removed" in refused(gone, register(2)).message
    assert "was removed by entry 23" in refused(gone, SetNode(node=TWO, draining=True)).message
    assert "not a holder" in refused(gone, ConfirmDropped(topic=TopicId(20), store=store_of(2))).message
    assert told(gone, 24, register(3)) == NodeRegistered(node=NodeId(24))


def test_the_last_node_stays() -> None:
    state = after(EMPTY, 1, INIT)
    assert "0 nodes would be left" in refused(state, RemoveFromRing(node=ONE, version=1)).message


def test_replicas_stand_in_the_order_of_the_placement_the_owner_first() -> None:
    state = after(cluster(3), 20, create(partitions=1, nodes=((5, 1, 2),)))
    (assignment,) = state.topics[TopicId(20)].assignments.values()
    assert [replica.node for replica in assignment.replicas] == [5, 1, 2]
    assert (assignment.owner.node, assignment.owner.store, assignment.epoch) == (5, store_of(3), Epoch(20))


def with_two(state: MetadataState, **fields: object) -> MetadataState:
    return replace(state, nodes={**state.nodes, TWO: replace(state.nodes[TWO], **fields)})


def with_ring(state: MetadataState, **fields: object) -> MetadataState:
    return replace(state, ring=replace(state.ring, **fields))


def test_the_checker_finds_planted_defects_of_members_and_ring() -> None:
    state = after(cluster(2), 20, create(partitions=1, nodes=((2,),)))
    for name, defect in (
        ("two nodes share a store", with_two(cluster(2), store=state.nodes[ONE].store)),
        ("the ring has a node that is no member", with_ring(state, members=(ONE, TWO, NodeId(3)))),
        ("the ring is out of order", with_ring(state, members=(TWO, ONE))),
        ("a ring without members", with_ring(state, members=())),
        ("J2", with_ring(state, members=(), version=0)),
        ("a replica on a node or store that is no member", with_two(state, store=store_of(8))),
        ("node 2 is newer than entry", with_two(state, changed=Index(99))),
        ("node 2 joins after it started", with_two(state, life=Life.JOINING)),
    ):
        with pytest.raises(AssertionError, match=name):
            invariants.check(defect, 20)
    state = cluster(3)
    alone = replace(state, nodes={ONE: state.nodes[ONE]})
    for name, defect in (
        ("Z8: the ring's version", with_ring(state, version=9, changed=Index(21))),
        ("Z8: the ring changed at", with_ring(state, version=4)),
        ("Z17: more than one", with_ring(state, version=4, changed=Index(21), members=(ONE,))),
        ("changed without a new", with_two(state, life=Life.FAILED)),
        ("changed its store", with_two(state, store=store_of(8))),
        ("vanished", with_ring(alone, members=(ONE,), version=4, changed=Index(21))),
    ):
        before = with_ring(state, members=(ONE, TWO)) if name == "vanished" else state
        with pytest.raises(AssertionError, match=name):
            invariants.check_step(before, defect, 21)
