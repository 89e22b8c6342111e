"""Invariants of open changes and their leftovers, and of each step of them."""

from __future__ import annotations

from ringfence.control.model.ids import PartitionId
from ringfence.control.model.reassignments import ChangeKind, ChangePhase, LeftoverKind
from ringfence.control.model.state import MetadataState


def check(state: MetadataState, index: int) -> None:
    """AssertionError names the first invariant that `state`, after the entry at `index`, breaks."""
    for partition, change in state.changes.items():
        assert partition == change.partition, f"change {change.change} is stored under partition {partition}"
        topic = state.topics.get(change.topic)
        assert topic is not None, f"change {change.change} is of a topic that does not exist"
        assignment = topic.assignments[partition]
        assert change.change <= index, f"change {change.change} is newer than entry {index}"
        assert change.owner in change.replicas, f"I4: the owner of change {change.change} is no replica"
        assert len(change.replicas) == topic.replication, f"change {change.change} alters the replication"
        if change.is_committed:
            assert {*assignment.replicas} == {*change.replicas}, (
                "I11: a committed change is not in the assignment"
            )
            assert assignment.epoch > change.change, "I4: the owner's epoch does not end the fence"
        else:
            assert assignment.epoch == change.epoch < change.change, "I4: a change of another owner epoch"
            before = {*change.replicas} - {*change.adds} | {*change.leaves}
            assert {*assignment.replicas} == before, "replicas changed under an open change"
        assert change.kind is not ChangeKind.FAILOVER or change.phase is not ChangePhase.HELD, (
            "a failover is not held: its fences are the HOLD"
        )
    for partition, leftovers in state.leftovers.items():
        assert leftovers, f"partition {partition} has an empty list of leftovers"
        for left in leftovers:
            assert left.change < index, f"a leftover of partition {partition} is newer than entry {index}"
            _check_leftover(state, partition, left.place.store, left.kind)
    _check_kept(state, index)


def _check_kept(state: MetadataState, index: int) -> None:
    for partition, kept in state.kept.items():
        topic = state.topics.get(kept.topic)
        assert partition == kept.partition, f"the kept copy of {kept.partition} is stored under {partition}"
        assert topic is not None, f"a copy is kept of topic {kept.topic}, which does not exist"
        assert kept.change < index, f"the kept copy of partition {partition} is newer than entry {index}"
        change = state.changes.get(partition)
        used = {*topic.assignments[partition].replicas, *(() if change is None else change.adds)}
        assert used.isdisjoint(kept.stores), f"I16: an old copy of partition {partition} counts as a replica"
        executing = {left.place for left in state.leftovers.get(partition, ())}
        assert executing.isdisjoint(kept.stores), (
            f"I16: an old copy of partition {partition} is both kept and released"
        )
        assert {*kept.stores} <= {*kept.before}, (
            f"a store keeps a copy of partition {partition} without having been a replica"
        )


def _check_leftover(state: MetadataState, partition: PartitionId, store: bytes, kind: LeftoverKind) -> None:
    for topic in state.topics.values():
        assignment = topic.assignments.get(partition)
        if assignment is not None and kind is not LeftoverKind.DISCARD:
            is_replica = store in {place.store for place in assignment.replicas}
            assert is_replica == (kind is LeftoverKind.ADOPT), (
                f"I16: store {store.hex()} shall {kind} its replica of partition {partition}"
            )
    change = state.changes.get(partition)
    if kind is LeftoverKind.ADOPT:
        return
    assert change is None or store not in {place.store for place in change.adds}, (
        f"I16: store {store.hex()} shall drop a copy that a change of partition {partition} makes"
    )


def check_step(before: MetadataState, after: MetadataState, index: int) -> None:
    """AssertionError names the first rule that the step to `index` breaks."""
    for number, topic in after.topics.items():
        old = before.topics.get(number)
        if old is None or old is topic:
            continue
        for partition, assignment in topic.assignments.items():
            earlier = old.assignments.get(partition)
            if earlier is None or earlier == assignment:
                continue
            assert assignment.epoch == index, "I4: an owner or its replicas changed without a new epoch"
            if (earlier.owner, {*earlier.replicas}) != (assignment.owner, {*assignment.replicas}):
                change = after.changes.get(partition)
                assert change is not None, "I4: an owner changed without a change"
                assert change.phase is ChangePhase.COMMITTED, "I4: an owner changed without a COMMIT"
                assert change.end is not None or change.kind is ChangeKind.FAILOVER, (
                    "I11: COMMIT names no end"
                )
    for partition, change in before.changes.items():
        later = after.changes.get(partition)
        if later is None or later.change != change.change:
            assert (
                change.kind is not ChangeKind.FAILOVER
                or change.is_committed
                or (change.topic not in after.topics)
            ), f"I13: failover {change.change} vanished before it had an owner"
