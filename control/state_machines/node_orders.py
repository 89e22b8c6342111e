"""Derive a node's orders from a change of the metadata. Pure: two states in, orders out.

    SetLevel, KeepRows                        before a record has the level's form, or retention a topic
    InstallTopic, LocateNode, FencePartition, TruncatePartition -> InstallCohorts -> OpenPartition,
        FollowPartition, OpenSealed, FollowSealed, ClosePartition -> InstallTable
                                              a topic that is new, or changed; a cohort that changed
    RemoveTopic -> DropPartition -> (the runtime proposes ConfirmDropped)   a topic that was deleted

Phases run one after the other; orders of one phase run concurrently. A table comes last, so its readers
find the partitions open. Each node derives its orders from its own log: no node sends them, so none is
lost.

- A former owner of a partition fences it at the new owner's epoch (I4) and closes it. Its rows stay: only a
tombstone that names this store gives a DropPartition (I16).
- A replica follows each owner epoch. The owner calls its followers, so it needs their addresses.
- A node that neither owns nor holds a partition, before and after, gets the table alone.
- `reassignment.cleanup` adds the steps of changes: adopt before anything is opened, drop at the end.
- While a failover seeks an owner no node opens the partition: the assignment has the last owner's epoch.
- A SEALED partition is opened and followed by orders of its own: it takes no record beyond its end, so its
owner writes no epoch record, and needs no majority.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from ringfence.control.model.cohorts import COHORT_LEVEL, CohortId
from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.layout import Partition
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Replica, Tombstone, Topic
from ringfence.control.state_machines.cohorts.gates import cohorts_to_derive
from ringfence.control.state_machines.metadata import drained
from ringfence.control.state_machines.metadata.layout_rules import sealed_by
from ringfence.control.state_machines.metadata.reassignment_rules import awaits_owner
from ringfence.control.state_machines.reassignment import cleanup
from ringfence.control.state_machines.reassignment.cleanup import CleanupStep


class SetLevel(msgspec.Struct, frozen=True):
    """The cluster's level was raised: from now on records may have its form."""

    level: int


class InstallTopic(msgspec.Struct, frozen=True):
    """Make a topic, with its schemas, known to the native node."""

    topic: Topic

    @property
    def key_columns(self) -> tuple[int, ...]:
        """Indexes of the key's columns. Later schemas only append columns, so the first schema's hold."""
        places = {column.name: place for place, column in enumerate(self.topic.schemas[0].columns)}
        return tuple(places[name] for name in self.topic.key)


class OpenPartition(msgspec.Struct, frozen=True):
    """Own the partition: take appends under `epoch`."""

    topic: TopicId
    partition: PartitionId
    slots: SlotRange
    epoch: Epoch
    # The other replicas. A majority of all replicas must have a row before the owner acknowledges it.
    replicas: tuple[Replica, ...] = ()

    @property
    def quorum(self) -> int:
        return (len(self.replicas) + 1) // 2 + 1


class FollowPartition(msgspec.Struct, frozen=True):
    """Take the records of this epoch's owner.

    `forced` is the partition's newest epoch whose owner was chosen without a majority; 0: none is known.
    This store truncates its records of older epochs that the owner does not have.
    """

    topic: TopicId
    partition: PartitionId
    slots: SlotRange
    epoch: Epoch
    owner: NodeId
    forced: Epoch = Epoch(0)


class OpenSealed(msgspec.Struct, frozen=True):
    """Own a SEALED partition: serve the log up to `end`, and take nothing.

    A log that has this chain at this record is whole. `number` is the transition's, `version` the layout
    version that sealed the partition, `sealed_ms` the time of its COMMIT. A longer log is truncated only if
    `lowered` is not 0.
    """

    topic: TopicId
    partition: PartitionId
    slots: SlotRange
    epoch: Epoch
    end: LogEnd
    number: ChangeId
    version: int
    sealed_ms: int
    replicas: tuple[Replica, ...] = ()
    lowered: Index = Index(0)


class FollowSealed(msgspec.Struct, frozen=True):
    """Take the records of a SEALED partition from its owner, up to `end`."""

    topic: TopicId
    partition: PartitionId
    slots: SlotRange
    epoch: Epoch
    owner: NodeId
    end: LogEnd
    number: ChangeId
    version: int
    sealed_ms: int
    lowered: Index = Index(0)


class LocateNode(msgspec.Struct, frozen=True):
    """The addresses of a node with replicas of partitions that this node owns."""

    node: NodeId
    addresses: tuple[str, ...]


class FencePartition(msgspec.Struct, frozen=True):
    """Refuse appends below `epoch`, durably."""

    topic: TopicId
    partition: PartitionId
    epoch: Epoch


class ClosePartition(msgspec.Struct, frozen=True):
    """Refuse appends until the partition is opened again; reads continue."""

    topic: TopicId
    partition: PartitionId


class TruncatePartition(msgspec.Struct, frozen=True):
    """Remove the rows below `before_offset` from readers."""

    topic: TopicId
    partition: PartitionId
    before_offset: int
    # Rows of later owner epochs stay; 0: the order is about rows of every epoch.
    epoch: Epoch = Epoch(0)


class InstallTable(msgspec.Struct, frozen=True):
    """Replace the topic's routing table."""

    topic: Topic


class RemoveTopic(msgspec.Struct, frozen=True):
    """Refuse all requests for a deleted topic."""

    topic: TopicId


class KeepRows(msgspec.Struct, frozen=True):
    """Leave the rows of these SEALED partitions of the topic, beyond its retention, and no others'.

    Each has the time at which that ends, even if no order comes: the log's time stands still while nothing
    is proposed.
    """

    topic: TopicId
    partitions: tuple[tuple[PartitionId, int], ...]


class DropPartition(msgspec.Struct, frozen=True):
    """Free the space of a deleted topic's partition."""

    topic: TopicId
    partition: PartitionId


class InstallCohorts(msgspec.Struct, frozen=True):
    """Derive and install the rules of these cohorts; those in `gone` were deleted, with their topics.

    `complete` are topics whose cohorts are all installed now: an entry of another cohort in a log is of one
    that was deleted.
    """

    cohorts: tuple[CohortId, ...]
    gone: tuple[tuple[TopicId, CohortId], ...] = ()
    complete: tuple[TopicId, ...] = ()


NodeOrder = (
    SetLevel
    | KeepRows
    | InstallCohorts
    | InstallTopic
    | LocateNode
    | OpenPartition
    | FollowPartition
    | OpenSealed
    | FollowSealed
    | FencePartition
    | ClosePartition
    | TruncatePartition
    | InstallTable
    | RemoveTopic
    | DropPartition
    | CleanupStep
)
Phases = tuple[tuple[NodeOrder, ...], ...]


def between(before: MetadataState, after: MetadataState, here: Replica) -> Phases:
    """The orders that bring the node at `here` from `before` to `after`; empty phases are left out."""
    if before is after:
        return ()
    relocated = _nodes_with_new_addresses(before, after)
    phases: list[list[NodeOrder]] = [[*cleanup.first_steps(before, after, here)], [], []]
    level: tuple[NodeOrder, ...] = (SetLevel(level=after.level),) if before.level != after.level else ()
    phases[0] += _partners_to_locate(before, after, relocated, here)
    for number, topic in after.topics.items():
        old = before.topics.get(number)
        if old is not topic:
            _topic_orders(old, topic, here, phases, after)
        elif relocated and any(
            assignment.owner.node in relocated for assignment in topic.assignments.values()
        ):
            phases[2].append(InstallTable(topic=topic))
    for number, tombstone in after.tombstones.items():
        if before.tombstones.get(number) is not tombstone and here.store in tombstone.holders:
            if number in before.topics:
                phases[0].append(RemoveTopic(topic=number))
            phases[1] += _drops(tombstone)
    phases[2] += cleanup.last_steps(before, after, here)
    # Rules come before the tables of the same entry: a member that knows a child meets its gate.
    first, *others = phases
    level += tuple(_kept_rows(before, after))
    return tuple(tuple(phase) for phase in (level, first, _cohorts(before, after), *others) if phase)


def _kept_rows(before: MetadataState, after: MetadataState) -> Iterator[KeepRows]:
    """Topics of which other SEALED partitions keep their rows now; nothing of one that is gone.

    Nothing below the level of cohorts.
    """
    if after.level < COHORT_LEVEL:
        return
    topics = {
        state.cohorts[number].topic
        for number in cohorts_to_derive(before, after)
        if _place(before, number) != _place(after, number)
        for state in (before, after)
        if number in state.cohorts
    }
    for topic in sorted(topics):
        was, kept = (
            drained.kept_rows(state, topic) if topic in state.topics else () for state in (before, after)
        )
        if kept != was:
            yield KeepRows(topic, kept)


def _place(state: MetadataState, number: CohortId) -> tuple[object, ...] | None:
    """What tells which partitions the cohort has read, and until when it holds others. Its members do not."""
    cohort = state.cohorts.get(number)
    topic = None if cohort is None else state.topics.get(cohort.topic)
    if cohort is None or topic is None:
        return None
    marks = state.drained_marks.get(number)
    return cohort.start, cohort.layout_version, marks, topic.layout, topic.seals, topic.properties


def _cohorts(before: MetadataState, after: MetadataState) -> tuple[InstallCohorts, ...]:
    """The rules that may have changed. Nothing of it below the level of cohorts."""
    if after.level < COHORT_LEVEL:
        return ()
    if before.level < COHORT_LEVEL:
        # A node that starts, or a level that was raised: the engine knows no cohort.
        return (InstallCohorts(tuple(sorted(after.cohorts)), complete=tuple(sorted(after.topics))),)
    changed = cohorts_to_derive(before, after)
    if not changed:
        return ()
    cohorts = tuple(number for number in changed if number in after.cohorts)
    gone = tuple((before.cohorts[number].topic, number) for number in changed if number not in after.cohorts)
    topics = {after.cohorts[number].topic for number in cohorts} | {
        topic for topic, _ in gone if topic in after.topics
    }
    return (InstallCohorts(cohorts, gone, tuple(sorted(topics))),)


def dropped_topics(phases: Phases) -> frozenset[TopicId]:
    """The deleted topics whose space the phases free."""
    return frozenset(order.topic for phase in phases for order in phase if isinstance(order, DropPartition))


def _topic_orders(
    old: Topic | None, topic: Topic, here: Replica, phases: list[list[NodeOrder]], after: MetadataState
) -> None:
    if old is None or old.schemas != topic.schemas:
        phases[0].append(InstallTopic(topic=topic))
    for partition in _partitions_to_update(old, topic):
        assignment = topic.assignments[partition.partition]
        previous = None if old is None else old.assignments.get(partition.partition)
        number = partition.partition
        is_sealed_now = old is not None and topic.seal(number) is not None and old.seal(number) is None
        if (assignment is previous and not is_sealed_now) or awaits_owner(after, number):
            continue
        has_new_epoch = (
            is_sealed_now
            or previous is None
            or (previous.owner, previous.epoch) != (assignment.owner, assignment.epoch)
        )
        if assignment.owner == here:
            if has_new_epoch:
                phases[1].append(_open_order(topic, partition, assignment, here))
            continue
        if previous is not None and previous.owner == here:
            phases[0].append(FencePartition(topic=topic.topic, partition=number, epoch=assignment.epoch))
        if here in assignment.replicas:
            if has_new_epoch or (previous is not None and here not in previous.replicas):
                phases[1].append(_follow_order(topic, partition, assignment))
        elif previous is not None and previous.owner == here:
            phases[1].append(ClosePartition(topic=topic.topic, partition=number))
    # Truncate before the role is set: no removed row may be shown if the store was down in between.
    phases[0] += _truncations(old, topic, here)
    phases[2].append(InstallTable(topic=topic))


def _open_order(
    topic: Topic, part: Partition, assignment: Assignment, here: Replica
) -> OpenPartition | OpenSealed:
    others = tuple(replica for replica in assignment.replicas if replica != here)
    seal = topic.seal(part.partition)
    if seal is None:
        return OpenPartition(
            topic=topic.topic,
            partition=part.partition,
            slots=part.slots,
            epoch=assignment.epoch,
            replicas=others,
        )
    return OpenSealed(
        topic=topic.topic,
        partition=part.partition,
        slots=part.slots,
        epoch=assignment.epoch,
        end=seal.end,
        number=sealed_by(part),
        version=part.sealed_version,
        sealed_ms=seal.sealed_ms,
        replicas=others,
        lowered=seal.lowered,
    )


def _follow_order(topic: Topic, part: Partition, assignment: Assignment) -> FollowPartition | FollowSealed:
    seal = topic.seal(part.partition)
    if seal is None:
        return FollowPartition(
            topic=topic.topic,
            partition=part.partition,
            slots=part.slots,
            epoch=assignment.epoch,
            owner=assignment.owner.node,
            forced=topic.forced_epoch(part.partition),
        )
    return FollowSealed(
        topic=topic.topic,
        partition=part.partition,
        slots=part.slots,
        epoch=assignment.epoch,
        owner=assignment.owner.node,
        end=seal.end,
        number=sealed_by(part),
        version=part.sealed_version,
        sealed_ms=seal.sealed_ms,
        lowered=seal.lowered,
    )


def _partitions_to_update(old: Topic | None, topic: Topic) -> tuple[Partition, ...]:
    """The partitions in slot order, SEALED ones too; if there is an earlier state, only those with a new
    assignment, and those that were sealed since.
    """
    partitions = topic.layout.partitions
    if old is not None:
        before, was = old.assignments, old.seals or {}
        numbers = {
            number for number, assignment in topic.assignments.items() if before.get(number) is not assignment
        }
        if topic.seals is not old.seals:
            numbers |= {*(topic.seals or {})} - {*was}
        partitions = tuple(part for part in partitions if part.partition in numbers)
    return tuple(sorted(partitions, key=lambda part: (part.slots.lo, part.partition)))


def _partners_to_locate(
    before: MetadataState, after: MetadataState, relocated: frozenset[NodeId], here: Replica
) -> Iterator[NodeOrder]:
    """Partners of this node that are new or have other addresses.

    An owner calls its followers; a follower with a damaged record calls its owner.
    """
    if before.topics is not after.topics:
        partners = {
            node
            for number, topic in after.topics.items()
            if (old := before.topics.get(number)) is not topic
            for node in _partners(topic, here, {} if old is None else old.assignments)
        }
        # These partners are few and mostly known: the check over all topics ends at the first match.
        partners = {node for node in partners if not _is_partner(before, here, node)}
    else:
        partners = set()
    partners |= {node for node in relocated if _is_partner(after, here, node)}
    for node in sorted(partners):
        if node in after.nodes:
            yield LocateNode(node=node, addresses=after.nodes[node].addresses)


def _partners(topic: Topic, here: Replica, unchanged: Mapping[PartitionId, Assignment]) -> Iterator[NodeId]:
    """Nodes that share a partition of the topic with the one at `here`, apart from the assignments in
    `unchanged`.
    """
    if topic.replication == 1:
        return
    for partition, assignment in topic.assignments.items():
        if unchanged.get(partition) is not assignment and here in (assignment.owner, *assignment.replicas):
            yield from (
                replica.node for replica in (assignment.owner, *assignment.replicas) if replica != here
            )


def _is_partner(state: MetadataState, here: Replica, node: NodeId) -> bool:
    """Whether the node shares any partition with the one at `here`."""
    return any(node == partner for topic in state.topics.values() for partner in _partners(topic, here, {}))


def _nodes_with_new_addresses(before: MetadataState, after: MetadataState) -> frozenset[NodeId]:
    """Nodes whose addresses changed: tables contain the addresses of owners."""
    if before.nodes is after.nodes:
        return frozenset()
    return frozenset(
        number
        for number, node in after.nodes.items()
        if number not in before.nodes or before.nodes[number].addresses != node.addresses
    )


def _truncations(old: Topic | None, topic: Topic, here: Replica) -> Iterator[NodeOrder]:
    for partition, start in sorted(topic.starts.items()):
        assignment = topic.assignments[partition]
        if here not in {assignment.owner, *assignment.replicas}:
            continue
        previous = None if old is None else old.assignments.get(partition)
        epoch = topic.start_epoch(partition)
        raised = old is None or (old.starts.get(partition), old.start_epoch(partition)) != (start, epoch)
        # Each store has its own log start: a new owner may have copied the rows before the start was raised.
        is_new = previous is None or previous.owner != assignment.owner or here not in previous.replicas
        if raised or is_new:
            yield TruncatePartition(topic=topic.topic, partition=partition, before_offset=start, epoch=epoch)


def _drops(tombstone: Tombstone) -> Iterator[NodeOrder]:
    for partition in tombstone.partitions:
        yield DropPartition(topic=tombstone.topic, partition=partition)
