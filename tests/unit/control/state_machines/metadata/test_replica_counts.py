"""Replicas and owned partitions, counted by node and by store."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.ids import NodeId, TopicId
from ringfence.control.model.reassignments import Change, ChangeId, ChangeKind
from ringfence.control.model.state import EMPTY
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.replica_counts import (
    changes_of,
    owned_by_node,
    partitions_on,
    replicas_by_node,
    replicas_of,
    replication_max,
    shares_replicas,
)
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.fakes.metadata_commands import cluster, create, entry

STATE, _ = apply(cluster(4), entry(20, create(partitions=3, nodes=((1, 2, 5), (2, 5, 8), (2, 1, 8)))))
(TOPIC,) = STATE.topics.values()
PARTS = list(TOPIC.assignments)


def store(node: int) -> Replica:
    return Replica(NodeId(node), STATE.nodes[NodeId(node)].store)


def test_an_empty_state_has_none() -> None:
    assert (replicas_of(EMPTY, 1), owned_by_node(EMPTY), replicas_by_node(EMPTY)) == (0, {}, {})
    assert (changes_of(EMPTY, 1), replication_max(EMPTY)) == (0, 1)


def test_replicas_and_owned_partitions_are_counted_by_node() -> None:
    assert replicas_by_node(STATE) == {1: 2, 2: 3, 5: 2, 8: 2}
    assert owned_by_node(STATE) == {1: 1, 2: 2}
    assert [replicas_of(STATE, node) for node in (1, 2, 5, 9)] == [2, 3, 2, 0]
    assert replication_max(STATE) == TOPIC.replication == 3


def test_a_store_is_another_one_after_its_node_came_back_without_its_data() -> None:
    assert partitions_on(STATE, store(1)) == [(TOPIC.topic, PARTS[0]), (TOPIC.topic, PARTS[2])]
    assert shares_replicas(STATE, store(8))
    other = Replica(NodeId(1), b"x" * 16)
    assert partitions_on(STATE, other) == []
    assert not shares_replicas(STATE, other)


def test_what_has_one_replica_is_shared_with_nobody() -> None:
    alone, _ = apply(cluster(2), entry(20, create(partitions=1, nodes=((1,),))))
    assert not shares_replicas(alone, store(1))


def test_open_changes_count_at_who_gets_a_copy_and_at_who_leaves() -> None:
    change = Change(
        change=ChangeId(30),
        kind=ChangeKind.MOVE,
        topic=TopicId(TOPIC.topic),
        partition=PARTS[0],
        epoch=TOPIC.assignments[PARTS[0]].epoch,
        owner=store(8),
        replicas=(store(8), store(2), store(5)),
        adds=(store(8),),
        leaves=(store(1),),
    )
    state = replace(STATE, changes={PARTS[0]: change})
    assert [changes_of(state, node) for node in (1, 2, 8)] == [1, 0, 1]
