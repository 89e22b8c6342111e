"""Check a new topic, one question a function."""

from __future__ import annotations

from typing import Final

from ringfence.control.model import names, ranges, schemas
from ringfence.control.model.commands import CreateTopic
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.results import Refused
from ringfence.control.model.schemas import Column
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.state_machines.metadata import auto_layout, drained
from ringfence.control.state_machines.metadata.config import PROPERTIES_BYTES_MAX, PROPERTIES_MAX, limit
from ringfence.control.state_machines.metadata.layout_rules import planned_children
from ringfence.control.state_machines.metadata.refusals import invalid
from ringfence.control.state_machines.metadata.ring_commands import eligible_fault
from ringfence.native.wire import COLUMNS_MAX, Code

# A quorum is a majority: an even number of replicas costs more and survives no more failures.
REPLICATIONS: Final = (1, 3, 5)
RETENTION_MAX: Final = (1 << 63) - 1


def name_fault(command: CreateTopic) -> Refused | None:
    try:
        full = names.full_topic_name(command.name)
    except ValueError as error:
        return invalid(str(error))
    return (
        None
        if full == command.name
        else invalid(f"topic name {command.name!r}: the log needs the full name {full!r}")
    )


def partition_name_fault(state: MetadataState, command: CreateTopic) -> Refused | None:
    """Refuse the name of a partition: commands and paths would take one for the other (S10). Lower levels
    have no names of partitions.
    """
    name = command.name.rpartition("/")[2]
    if state.level < LAYOUT_LEVEL or not names.is_partition_name(name):
        return None
    return invalid(
        f"topic name {name!r} has the form of a partition's name (first slot, last slot, id): choose another"
    )


def schema_fault(state: MetadataState, command: CreateTopic) -> Refused | None:
    if not 0 < len(command.schema) <= limit(state, "topic_schemas_bytes_max"):
        top = limit(state, "topic_schemas_bytes_max")
        return invalid(f"a schema of {len(command.schema)} bytes: 1 to {top} (`topic_schemas_bytes_max`)")
    fault = columns_fault(command.columns)
    if fault is not None:
        return fault
    names = {column.name for column in command.columns}
    missing = [column for column in command.key if column not in names]
    if missing:
        columns = listed(sorted(names), 20)
        return invalid(f"key column {missing[0][:80]!r} is not in the schema, whose columns are {columns}")
    if len(set(command.key)) != len(command.key):
        return invalid(f"a key column is named twice: {list(command.key)}")
    return None


def columns_fault(columns: tuple[Column, ...]) -> Refused | None:
    if not 0 < len(columns) <= COLUMNS_MAX:
        return invalid(f"a schema of {len(columns)} columns: 1 to {COLUMNS_MAX}")
    fault = schemas.name_fault(columns)
    return (
        None
        if fault is None
        else Refused(code=Code.WRONG_SCHEMA, message=f"{fault}; columns are found by name")
    )


def layout_fault(state: MetadataState, command: CreateTopic) -> Refused | None:
    """Check I1: the ACTIVE ranges tile all slots."""
    count, top = len(command.ranges), limit(state, "topic_partitions_max")
    if not 1 <= count <= top:
        return invalid(f"{count} partitions: 1 to {top} (`topic_partitions_max`)")
    present = sum(len(topic.layout.partitions) for topic in state.topics.values())
    present += sum(1 for _ in planned_children(state))
    if present + count > limit(state, "partitions_max"):
        return invalid(
            f"{count} new partitions and the cluster's {present} exceed {limit(state, 'partitions_max')} "
            "(`partitions_max`)"
        )
    gap = ranges.gap(command.ranges)
    return None if gap is None else invalid(f"the partitions do not tile the slots: {gap}")


def placement_fault(state: MetadataState, command: CreateTopic) -> Refused | None:
    if len(command.nodes) != len(command.ranges):
        return invalid(f"{len(command.nodes)} placements for {len(command.ranges)} partitions")
    replication = len(command.nodes[0])
    if replication not in REPLICATIONS:
        return invalid(f"replication {replication}: use one of {REPLICATIONS}")
    for nodes in command.nodes:
        if len(nodes) != replication or len(set(nodes)) != replication:
            return invalid(f"placement {list(nodes)}: name {replication} different nodes for each partition")
    return next(
        (
            fault
            for node in sorted({node for nodes in command.nodes for node in nodes})
            if (fault := place_fault(state, node)) is not None
        ),
        None,
    )


def place_fault(state: MetadataState, node: int) -> Refused | None:
    """The refusal of a node that may not take a new partition; None if it may."""
    fault = eligible_fault(state, node)
    if fault is None and node not in state.ring.members:
        return invalid(f"node {node} is not in the ring; version {state.ring.version} has {_some(state)}")
    return fault


def _some(state: MetadataState) -> str:
    return f"[{listed(state.ring.members, 20)}]"


def options_fault(command: CreateTopic) -> Refused | None:
    for what, value in (("retention_bytes", command.retention_bytes), ("retention_ms", command.retention_ms)):
        if value is not None and not 0 < value <= RETENTION_MAX:
            return invalid(f"{what}={value}: 1 to {RETENTION_MAX}, or none to keep all rows")
    if len(command.properties) > PROPERTIES_MAX:
        return invalid(f"{len(command.properties)} properties: at most {PROPERTIES_MAX}")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in command.properties.items())
    if size > PROPERTIES_BYTES_MAX:
        return invalid(f"properties of {size} bytes: at most {PROPERTIES_BYTES_MAX}")
    return None


def hold_time_fault(state: MetadataState, command: CreateTopic) -> Refused | None:
    """Check the time that a SEALED partition is held. Lower levels take any value of a property."""
    if state.level < LAYOUT_LEVEL or drained.HOLD_PROPERTY not in command.properties:
        return None
    fault = drained.hold_fault(command.properties[drained.HOLD_PROPERTY])
    return None if fault is None else invalid(fault)


def auto_layout_fault(state: MetadataState, command: CreateTopic) -> Refused | None:
    """Check settings of automatic splits and merges. Lower levels take any value of a property."""
    if state.level < LAYOUT_LEVEL:
        return None
    faults = (auto_layout.property_fault(name, text) for name, text in sorted(command.properties.items()))
    fault = next((fault for fault in faults if fault is not None), None)
    return None if fault is None else invalid(fault)
