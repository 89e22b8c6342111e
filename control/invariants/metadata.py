"""Invariants of the metadata state, and of each step of it."""

from __future__ import annotations

from ringfence.control.invariants import changes, cohorts, layouts, scopes
from ringfence.control.model.ids import drawn_at
from ringfence.control.model.nodes import Life
from ringfence.control.model.ranges import gap
from ringfence.control.model.schemas import extension_fault
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import ProducerRule, Topic
from ringfence.control.state_machines.metadata.config import SESSION_WINDOW, SESSIONS_MAX


def check(state: MetadataState, index: int) -> None:
    """AssertionError names the first invariant that `state`, after the entry at `index`, breaks."""
    assert state.names == {topic.name: number for number, topic in state.topics.items()}, (
        "names and topics differ"
    )
    assert not set(state.topics) & set(state.tombstones), "a topic also has a tombstone"
    assert set(state.producers) <= set(state.topics), "producers of a topic that does not exist"
    used_ids: set[int] = set()
    for number, topic in state.topics.items():
        assert number == topic.topic, f"topic {topic.topic} is stored under {number}"
        assert number <= index, f"topic {number} is newer than entry {index}"
        _check_topic(state, topic, index)
        ids = {partition.partition for partition in topic.layout.partitions}
        assert not ids & used_ids, "I2: two topics share a partition id"
        used_ids |= ids
    for tombstone in state.tombstones.values():
        assert not set(tombstone.partitions) & used_ids, "I2: a deleted topic's partition id is in use"
        used_ids |= set(tombstone.partitions)
    _check_nodes(state, index)
    changes.check(state, index)
    layouts.check(state, index)
    cohorts.check(state, index)
    scopes.check(state)
    _check_producers(state, index)
    _check_sessions(state, index)


def check_step(before: MetadataState, after: MetadataState, index: int) -> None:
    """AssertionError names the first rule that the step to `index` breaks."""
    check(after, index)
    assert before.cluster in {b"", after.cluster}, "a cluster changed its id"
    assert before.history in {b"", after.history}, "a history changed its id"
    assert after.time_ms >= before.time_ms, "time went back"
    assert after.level >= before.level, "the level went back"
    for number in set(after.topics) - set(before.topics):
        assert number == index, f"I2: topic {number} appeared at entry {index}"
    for number, topic in after.topics.items():
        old = before.topics.get(number)
        if old is not None:
            _check_topic_step(old, topic)
    for number in set(before.topics) - set(after.topics):
        assert number in after.tombstones, f"I16: topic {number} vanished without a tombstone"
    _check_nodes_step(before, after, index)
    changes.check_step(before, after, index)
    layouts.check_step(before, after, index)
    cohorts.check_step(before, after, index)
    scopes.check_step(before, after)
    for number in set(before.tombstones) - set(after.tombstones):
        assert not before.tombstones[number].holders, (
            f"I16: tombstone {number} was removed although stores hold rows"
        )


def _check_nodes(state: MetadataState, index: int) -> None:
    stores = [node.store for node in state.nodes.values()]
    assert len(set(stores)) == len(stores), "two nodes share a store"
    assert not set(state.nodes) & set(state.removed), "a removed node is a member"
    for number, node in state.nodes.items():
        assert number == node.node <= max(index, 1), f"node {node.node} is stored under {number}"
        assert max(node.started, node.changed) <= index, f"node {number} is newer than entry {index}"
        assert (node.life is Life.JOINING) <= (node.started == 0), f"node {number} joins after it started"
    ring = state.ring
    assert ring.members == tuple(sorted(set(ring.members))), "the ring is out of order"
    assert set(ring.members) <= set(state.nodes), "the ring has a node that is no member"
    assert ring.is_formed == bool(ring.members), "a ring without members, or members without a ring"
    assert ring.is_formed or not state.topics, "J2: a topic before the minimum size"


def _check_nodes_step(before: MetadataState, after: MetadataState, index: int) -> None:
    if before.ring != after.ring:
        assert after.ring.version == before.ring.version + 1, (
            "Z8: the ring's version does not count its changes"
        )
        assert after.ring.changed == index, "Z8: the ring changed at another entry"
        assert before.ring.version == 0 or len({*before.ring.members} ^ {*after.ring.members}) == 1, (
            "Z17: more than one node entered or left the ring at once"
        )
    for number, node in after.nodes.items():
        old = before.nodes.get(number)
        assert old is not None or number == index or not before.cluster, (
            f"I2: node {number} appeared at {index}"
        )
        assert old is None or old.store == node.store, f"node {number} changed its store"
        assert old is None or node.life is old.life or node.changed == index, (
            f"node {number} changed without a new `changed`"
        )
    for number in set(before.nodes) - set(after.nodes):
        assert number in after.removed, f"node {number} vanished"
        assert number not in before.ring.members, f"Z16: node {number} was removed from within the ring"


def _check_topic(state: MetadataState, topic: Topic, index: int) -> None:
    active = topic.layout.active()
    fault = gap([partition.slots for partition in active])
    assert fault is None, f"I1: topic {topic.topic}: {fault}"
    ids = [partition.partition for partition in topic.layout.partitions]
    assert len(set(ids)) == len(ids), f"I2: topic {topic.topic} has a partition id twice"
    assert all(topic.topic <= drawn_at(partition) <= index for partition in ids), (
        "I2: a partition id of another entry"
    )
    assert set(topic.assignments) == set(ids), f"I4: topic {topic.topic}: a partition without owner"
    for assignment in topic.assignments.values():
        assert assignment.owner in assignment.replicas, "I4: the owner is no replica"
        assert 0 < assignment.epoch <= index, f"I4: an epoch above entry {index}"
        assert len(assignment.replicas) == topic.replication, "replicas differ from the topic's replication"
        nodes = {replica.node for replica in assignment.replicas}
        assert len(nodes) == len(assignment.replicas), "two replicas on one node"
        assert all(
            replica.node in state.nodes and state.nodes[replica.node].store == replica.store
            for replica in assignment.replicas
        ), "a replica on a node or store that is no member"
    for old, new in zip(topic.schemas, topic.schemas[1:], strict=False):
        assert extension_fault(old.columns, new.columns) is None, (
            "a schema that does not extend the one before"
        )
    assert set(topic.starts) <= set(ids), "a log start of no partition"
    assert all(topic.start_epoch(part) <= topic.assignments[part].epoch for part in topic.starts), (
        "a log start of an epoch above the owner's"
    )
    assert all(topic.forced_epoch(part) <= topic.assignments[part].epoch for part in ids), (
        "a forced epoch above the owner's"
    )


def _check_topic_step(before: Topic, after: Topic) -> None:
    assert after.layout.version >= before.layout.version, "I2: a version went back"
    assert after.schemas[: len(before.schemas)] == before.schemas, "a schema changed its id"
    for partition, start in before.starts.items():
        if partition not in after.assignments:
            continue  # pruned
        moved = after.start_epoch(partition), after.starts[partition]
        assert moved >= (before.start_epoch(partition), start), "I14: a log start went back"
    for partition in {*before.assignments} & {*after.assignments}:
        assert after.forced_epoch(partition) >= before.forced_epoch(partition), "a forced epoch went back"
    for partition, assignment in before.assignments.items():
        if partition in after.assignments:
            assert after.assignments[partition].epoch >= assignment.epoch, "I4: an epoch went back"
    for old in before.layout.partitions:
        new = after.layout.find(old.partition)
        if new is not None and not old.is_active:
            assert new.sealed_version == old.sealed_version, "I3: a sealed partition changed"
            assert new.children == old.children, "I3: a sealed partition has other children"


def _check_producers(state: MetadataState, index: int) -> None:
    ids = [producer.producer for names in state.producers.values() for producer in names.values()]
    assert len(set(ids)) == len(ids), "two names share a producer id"
    for topic, waiting in state.unopened.items():
        assert waiting, "a topic has an empty list of unopened names"
        assert set(waiting) <= set(state.producers.get(topic, {})), "an unopened name does not exist"
    for topic, rules in state.producer_rules.items():
        assert rules, "a topic has an empty map of rules"
        assert set(rules) <= set(state.producers.get(topic, {})), "a rule is of a name that does not exist"
        assert ProducerRule.NONE not in rules.values(), "a rule NONE is kept"
        assert not state.topics[topic].key, "a name in a topic with key has a rule"
    for names in state.producers.values():
        for producer in names.values():
            assert drawn_at(producer.producer) <= producer.epoch <= index, (
                "a producer epoch below its id or in the future"
            )


def _check_sessions(state: MetadataState, index: int) -> None:
    assert len(state.sessions) <= SESSIONS_MAX, "too many sessions"
    for number, session in state.sessions.items():
        assert number <= session.used <= index, "a session newer than the entry"
        assert len(session.results) <= SESSION_WINDOW, "a session has too many results"
        assert all(
            session.last - SESSION_WINDOW < sequence <= session.last for sequence in session.results
        ), "a session has results outside of its window"
