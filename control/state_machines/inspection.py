"""Check I1, I3 to I6, I11 and I16 of a cluster: metadata and every store's figures in, findings out. Pure.

    I1   the metadata of each node is sound, ranges tile; equal hashes at equal indexes
    I3   a SEALED partition takes no appends, no replica has more than its end, the owner has all of it
    I4   only the owner takes appends, under the newest owner epoch of the metadata
    I5   the owner's records are on a majority of the replicas; none of them is damaged
    I6   replicas that end at one record have one producer table; an owner has what its partition inherits
    I11  replicas that end at the same record of the same owner epoch have the same chain there
    I16  each replica has the partition; no store has one that the metadata does not give it

A running cluster is read node by node while it works, so two readings are of different moments. It is read
in rounds, and only findings of every round are reported (`Inspection`). Stopped stores are read once.
Facts that depend on silent nodes are reported as unproven.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Seal, Topic
from ringfence.control.state_machines.metadata.layout_rules import planned_children
from ringfence.control.state_machines.metadata.reassignment_rules import awaits_owner, quorum

# Findings of one report: more of them mostly have one cause.
FINDINGS_MAX: Final = 1_000
# Partitions that the text of a finding lists.
SOURCES_SHOWN: Final = 8


class Finding(NamedTuple):
    """One violation. `node` and `partition` are 0 in a finding about the whole cluster."""

    invariant: str
    node: int
    topic: int
    partition: int
    what: str

    @property
    def key(self) -> tuple[str, int, int]:
        """The identity of a finding over several rounds: figures in its sentence may differ."""
        return self.invariant, self.node, self.partition


class NodeReading(NamedTuple):
    """The reading of one node in one round.

    `broken` is the fault of its own metadata, or None; `hashed` its newest (index, hash), or None. `parts`
    are figures of the native node by (topic, partition): records, chain, owner_epoch, quarantined, sources,
    and in a running node `open`.
    """

    node: NodeId
    store: bytes
    broken: str | None
    hashed: tuple[int, str] | None
    parts: Mapping[tuple[int, int], Mapping[str, Any]]


class Report(NamedTuple):
    """The result of the rounds so far. `unproven` lists facts that could not be checked; `compared` counts
    partitions for which chains of two replicas were compared.
    """

    findings: tuple[Finding, ...]
    unproven: tuple[Finding, ...]
    partitions: int
    compared: int
    nodes: tuple[int, ...]
    silent: tuple[int, ...]


class Inspection:
    """Rounds of one inspection. `is_live`: nodes run, so figures of one round are of different moments."""

    def __init__(self, *, is_live: bool) -> None:
        self.is_live = is_live
        self._suspected: dict[tuple[str, int, int], Finding] | None = None
        self._needed: dict[PartitionId, tuple[int, tuple[int, int]]] = {}
        self._compared: set[PartitionId] = set()

    @property
    def is_sound(self) -> bool:
        """Whether no finding is left."""
        return self._suspected is not None and not self._suspected

    def round(self, state: MetadataState, readings: Mapping[NodeId, NodeReading]) -> Report:
        """Add a round. The report has the findings that every round so far has shown."""
        by_key: dict[tuple[str, int, int], Finding] = {}
        unproven: list[Finding] = []
        for finding in _check_metadata(readings.values()):
            by_key[finding.key] = finding
        silent = tuple(sorted(number for number in state.nodes if number not in readings))
        parts = 0
        for topic in state.topics.values():
            for partition in topic.layout.partitions:
                parts += 1
                for finding in self._check_partition(state, topic, partition.partition, readings, unproven):
                    by_key[finding.key] = finding
        for finding in _check_strays(state, readings.values()):
            by_key[finding.key] = finding
        findings = (
            by_key
            if self._suspected is None
            else {key: finding for key, finding in by_key.items() if key in self._suspected}
        )
        self._suspected = findings
        return Report(
            tuple(sorted(findings.values()))[:FINDINGS_MAX],
            tuple(sorted(unproven))[:FINDINGS_MAX],
            parts,
            len(self._compared),
            tuple(sorted(int(node) for node in readings)),
            tuple(map(int, silent)),
        )

    def _check_partition(
        self,
        state: MetadataState,
        topic: Topic,
        partition: PartitionId,
        readings: Mapping[NodeId, NodeReading],
        unproven: list[Finding],
    ) -> Iterator[Finding]:
        assignment = topic.assignments[partition]
        place = (int(topic.topic), int(partition))
        # During a change, two nodes disagree about owner and end: another round, or another inspection, comes
        # after it. A stopped cluster continues the change when it starts.
        is_settled = partition not in state.changes or not self.is_live
        if is_settled:
            yield from _check_owners(state, assignment, place, readings, is_live=self.is_live)
        copies = {
            replica.node: readings[replica.node].parts.get(place)
            for replica in assignment.replicas
            if replica.node in readings and readings[replica.node].store == replica.store
        }
        for node, copy in copies.items():
            if copy is None and is_settled:
                what = "is a replica by the metadata, but its store does not have the partition"
                yield Finding("I16", int(node), *place, what)
            elif copy is not None and copy.get("quarantined"):
                yield Finding("I5", int(node), *place, f"damaged: {copy['quarantined']}")
        yield from self._check_chains(
            place, {node: copy for node, copy in copies.items() if copy is not None}
        )
        if is_settled and self.is_live:
            yield from _check_starts(topic, assignment, place, copies)
        seal = topic.seal(partition)
        if seal is not None:
            yield from _check_sealed(seal, assignment, place, copies)
        elif is_settled:
            yield from self._check_majority(topic, assignment, place, copies, unproven)
            yield from _check_sources(topic, assignment, place, copies)

    def _check_chains(
        self, place: tuple[int, int], copies: Mapping[NodeId, Mapping[str, Any]]
    ) -> Iterator[Finding]:
        # Compare only equal last epochs. A log of another epoch is truncated where the epochs diverge, before
        # it counts: equal lengths prove nothing.
        by_end: dict[tuple[int, int], list[tuple[NodeId, int]]] = {}
        for node, copy in copies.items():
            by_end.setdefault(_end(copy), []).append((node, int(copy["chain"])))
        yield from _check_tables(place, copies)
        for (_, records), ends in by_end.items():
            if len(ends) > 1:
                self._compared.add(PartitionId(place[1]))
            for node, chain in ends[1:]:
                if chain != ends[0][1]:
                    what = (
                        f"has chain {chain:016x} at record {records}, node {ends[0][0]} has "
                        f"{ends[0][1]:016x}: two histories"
                    )
                    yield Finding("I11", int(node), *place, what)

    def _check_majority(
        self,
        topic: Topic,
        assignment: Assignment,
        place: tuple[int, int],
        copies: Mapping[NodeId, Mapping[str, Any] | None],
        unproven: list[Finding],
    ) -> Iterator[Finding]:
        """Check that the owner's records of the first round are on a majority in the last one."""
        number, owner = PartitionId(place[1]), copies.get(assignment.owner.node)
        if owner is None:
            if assignment.owner.node not in copies:
                what = "its owner did not answer, so the acknowledged records are unknown"
                unproven.append(Finding("I5", int(assignment.owner.node), *place, what))
            return
        epoch, end = self._needed.setdefault(number, (int(assignment.epoch), _end(owner)))
        if epoch != assignment.epoch:
            # The owner has changed: the new owner's end counts from now on.
            end = _end(owner)
            self._needed[number] = (int(assignment.epoch), end)
        last, needed = end
        holders = [
            node
            for node, copy in copies.items()
            if copy is not None and int(copy["records"]) >= needed and int(copy["owner_epoch"]) >= last
        ]
        silent_count = len(assignment.replicas) - len(copies)
        majority = quorum(topic.replication)
        if len(holders) >= majority:
            return
        what = (
            f"{needed} records of its owner are on {len(holders)} of {topic.replication} replicas "
            f"(nodes {sorted(map(int, holders))}), a majority is {majority}"
        )
        if len(holders) + silent_count >= majority:
            unproven.append(
                Finding("I5", int(assignment.owner.node), *place, f"{what}; {silent_count} did not answer")
            )
        else:
            yield Finding("I5", int(assignment.owner.node), *place, what)


def _check_metadata(readings: Iterable[NodeReading]) -> Iterator[Finding]:
    at: dict[int, tuple[int, str]] = {}
    for reading in sorted(readings, key=lambda reading: reading.node):
        if reading.broken:
            yield Finding("I1", int(reading.node), 0, 0, f"metadata: {reading.broken}")
        if reading.hashed is None:
            continue
        index, digest = reading.hashed
        node, first = at.setdefault(index, (int(reading.node), digest))
        if first != digest:
            what = f"metadata hash {digest} at index {index}, node {node} has {first}: two histories"
            yield Finding("I1", int(reading.node), 0, 0, what)


def _check_owners(
    state: MetadataState,
    assignment: Assignment,
    place: tuple[int, int],
    readings: Mapping[NodeId, NodeReading],
    *,
    is_live: bool,
) -> Iterator[Finding]:
    for node, reading in readings.items():
        copy = reading.parts.get(place)
        if copy is None:
            continue
        epoch, is_owner = int(copy["owner_epoch"]), reading.store == assignment.owner.store
        if epoch > assignment.epoch:
            what = f"has records of owner epoch {epoch}, the metadata has drawn {assignment.epoch}"
            yield Finding("I4", int(node), *place, what)
        elif is_live and copy.get("open") and not is_owner:
            what = (
                f"takes appends under epoch {epoch} without being the owner, which is node "
                f"{assignment.owner.node} under {assignment.epoch}"
            )
            yield Finding("I4", int(node), *place, what)
        elif (
            is_live
            and is_owner
            and not copy.get("open")
            and not copy.get("quarantined")
            and state.topics[TopicId(place[0])].seal(PartitionId(place[1])) is None
            and not awaits_owner(state, PartitionId(place[1]))
        ):
            what = f"is the owner under epoch {assignment.epoch} and takes no appends"
            yield Finding("I4", int(node), *place, what)


def _check_sealed(
    seal: Seal,
    assignment: Assignment,
    place: tuple[int, int],
    copies: Mapping[NodeId, Mapping[str, Any] | None],
) -> Iterator[Finding]:
    """A SEALED log is the same for good. The metadata has its end, so no majority is needed to judge it."""
    end = seal.end
    for node, copy in copies.items():
        if copy is None or copy.get("quarantined"):
            continue
        records, is_owner = int(copy["records"]), node == assignment.owner.node
        own = copy.get("sealed")
        if own is not None and not seal.lowered and int(own["records"]) != end.records:
            what = f"its log says that it was sealed at {own['records']} records, the metadata {end.records}"
            yield Finding("I3", int(node), *place, what)
            continue
        if copy.get("open"):
            yield Finding("I3", int(node), *place, "takes appends, although it is SEALED")
        elif records > end.records:
            what = f"has {records} records, it was sealed at {end.records}"
            yield Finding("I3", int(node), *place, what)
        elif records == end.records and int(copy["chain"]) != end.chain:
            what = f"has chain {int(copy['chain']):016x} at its end, it was sealed with {end.chain:016x}"
            yield Finding("I11", int(node), *place, what)
        elif records < end.records and is_owner:
            what = f"incomplete: {records} of {end.records} records; hand it over to a replica that has all"
            yield Finding("I5", int(node), *place, what)


def _check_sources(
    topic: Topic,
    assignment: Assignment,
    place: tuple[int, int],
    copies: Mapping[NodeId, Mapping[str, Any] | None],
) -> Iterator[Finding]:
    """An owner has everything from the partitions that its own came from, or takes no rows."""
    partition, copy = PartitionId(place[1]), copies.get(assignment.owner.node)
    if (topic.seals is UNSET and topic.gone is UNSET) or copy is None or copy.get("quarantined"):
        return
    part = topic.layout.find(partition)
    assert part is not None, f"I1: partition {partition} has an assignment and is not in the layout"
    parents = {*part.parents, *(parent.partition for parent in topic.pruned_parents(partition))}
    missing = sorted(parents - {source for source, _ in copy.get("sources") or ()})
    if missing:
        shown = ", ".join(map(str, missing[:SOURCES_SHOWN]))
        what = f"its log lacks what it inherits from {len(missing)} of {len(parents)} partitions: {shown}"
        yield Finding("I6", int(assignment.owner.node), *place, what)


def _check_starts(
    topic: Topic,
    assignment: Assignment,
    place: tuple[int, int],
    copies: Mapping[NodeId, Mapping[str, Any] | None],
) -> Iterator[Finding]:
    """Replicas of the owner's history that show rows which the owner has truncated by the metadata.

    If the owner's log begins below the start, then the start is about rows of a discarded history, or is
    pending.
    """
    start, owner = topic.starts.get(PartitionId(place[1]), 0), copies.get(assignment.owner.node)
    if owner is None or int(owner.get("start_offset", 0)) < start:
        return
    for node, copy in copies.items():
        if (
            copy is not None
            and not copy.get("quarantined")
            and copy["owner_epoch"] == owner["owner_epoch"]
            and int(copy.get("start_offset", start)) < start <= int(copy["end_offset"])
        ):
            what = f"begins at row {copy['start_offset']}, although the rows below {start} were truncated"
            yield Finding("I14", int(node), *place, what)


def _check_tables(place: tuple[int, int], copies: Mapping[NodeId, Mapping[str, Any]]) -> Iterator[Finding]:
    """Check that replicas which end at one record of one epoch have the same producer table."""
    first: dict[tuple[int, int], tuple[NodeId, int]] = {}
    for node, copy in copies.items():
        table_hash = copy.get("producers_hash")
        if table_hash is None:
            continue  # damaged, or an owner's table, which is ahead of its durable log
        other, first_hash = first.setdefault(_end(copy), (node, table_hash))
        if first_hash != table_hash:
            what = (
                f"has producer table {table_hash:016x} at record {copy['records']}, node {other} has "
                f"{first_hash:016x}: they would answer a repeated batch differently"
            )
            yield Finding("I6", int(node), *place, what)


def _end(copy: Mapping[str, Any]) -> tuple[int, int]:
    """Owner epoch of a log's last record, and the number of its records."""
    return int(copy["owner_epoch"]), int(copy["records"])


def _check_strays(state: MetadataState, readings: Iterable[NodeReading]) -> Iterator[Finding]:
    """Partitions that the metadata does not give to their store. They are kept: an older metadata backup may
    have them.
    """
    for reading in readings:
        for place in sorted(reading.parts):
            topic, partition = TopicId(place[0]), PartitionId(place[1])
            owner_topic, buried = state.topics.get(topic), state.tombstones.get(topic)
            if buried is not None and reading.store in buried.holders:
                continue
            if any(left.place.store == reading.store for left in state.leftovers.get(partition, ())):
                continue  # also of a deleted topic
            if owner_topic is not None and _may_hold(state, owner_topic, partition, reading.store):
                continue
            what = "has rows of a partition that the metadata does not give it; they are kept"
            yield Finding("I16", int(reading.node), *place, what)


def _may_hold(state: MetadataState, topic: Topic, partition: PartitionId, store: bytes) -> bool:
    """Whether the store may have the partition: as a replica, by a change or a leftover, or an old copy.

    A partition without an assignment is a child before its COMMIT, or one that its stores shall release.
    """
    assignment = topic.assignments.get(partition)
    change, kept = state.changes.get(partition), state.kept.get(partition)
    places = [left.place for left in state.leftovers.get(partition, ())]
    places += (
        [
            place
            for child in planned_children(state, topic.topic)
            if child.partition == partition
            for place in child.replicas
        ]
        if assignment is None
        else assignment.replicas
    )
    places += [] if change is None else [*change.adds, *change.leaves]
    places += [] if kept is None else [*kept.stores]
    return any(place.store == store for place in places)
