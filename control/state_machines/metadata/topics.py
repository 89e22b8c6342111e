"""Commands about topics, from their creation (`topic_creation`) to the purge of the tombstone."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.commands import (
    AddSchema,
    ConfirmDropped,
    CreateTopic,
    DeleteTopic,
    PurgeTopic,
    TopicCommand,
    TruncateTopic,
)
from ringfence.control.model.ids import Epoch, Index, PartitionId
from ringfence.control.model.results import Done, Refused, Result, SchemaAdded
from ringfence.control.model.schemas import SchemaVersion, extension_fault
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Tombstone, Topic
from ringfence.control.state_machines.metadata import topic_checks
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.reassignment_rules import without_topic_changes
from ringfence.control.state_machines.metadata.refusals import invalid, stale, unknown_topic
from ringfence.control.state_machines.metadata.topic_creation import check_create, create
from ringfence.native.wire import Code

OFFSET_MAX = (1 << 63) - 1


def validate(state: MetadataState, command: TopicCommand) -> Refused | None:
    match command:
        case CreateTopic():
            return check_create(state, command)
        case AddSchema():
            return check_schema(state, command)
        case TruncateTopic():
            return check_truncate(state, command)
        case DeleteTopic():
            return check_delete(state, command)
        case ConfirmDropped() | PurgeTopic():
            return check_tombstone(state, command)


def execute(state: MetadataState, command: TopicCommand, index: Index) -> tuple[MetadataState, Result]:
    match command:
        case CreateTopic():
            return create(state, command, index)
        case AddSchema():
            return add_schema(state, command, index)
        case TruncateTopic():
            return truncate(state, command)
        case DeleteTopic():
            return delete(state, command, index)
        case ConfirmDropped():
            return confirm_dropped(state, command)
        case PurgeTopic():
            return purge(state, command)


def check_schema(state: MetadataState, command: AddSchema) -> Refused | None:
    topic = state.topics.get(command.topic)
    if topic is None:
        return unknown_topic(command.topic)
    if command.schema_id != len(topic.schemas):
        return invalid(
            f"topic {topic.name!r} has {len(topic.schemas)} schemas, the new one was prepared with id "
            f"{command.schema_id}; read the topic again"
        )
    if len(topic.schemas) >= limit(state, "topic_schemas_max"):
        return invalid(
            f"topic {topic.name!r} has {len(topic.schemas)} schemas, the limit `topic_schemas_max`"
        )
    size = len(command.schema) + sum(len(version.message) for version in topic.schemas)
    if size > limit(state, "topic_schemas_bytes_max"):
        return invalid(
            f"the schemas of topic {topic.name!r} would take {size} bytes, above `topic_schemas_bytes_max`"
        )
    fault = extension_fault(topic.schemas[-1].columns, command.columns)
    if fault is not None:
        message = f"topic {topic.name!r}: {fault}; a new schema only adds nullable columns at the end"
        return Refused(code=Code.WRONG_SCHEMA, message=message)
    return topic_checks.columns_fault(command.columns)


def add_schema(state: MetadataState, command: AddSchema, index: Index) -> tuple[MetadataState, Result]:
    topic = state.topics[command.topic]
    added = SchemaVersion(message=command.schema, columns=command.columns)
    changed = replace(topic, schemas=(*topic.schemas, added), changed=index)
    return _with_topic(state, changed), SchemaAdded(schema_id=command.schema_id)


def check_truncate(state: MetadataState, command: TruncateTopic) -> Refused | None:
    topic = state.topics.get(command.topic)
    if topic is None:
        return unknown_topic(command.topic)
    for partition, start in sorted(command.starts.items()):
        if partition not in topic.assignments:
            message = f"topic {topic.name!r} has no partition {partition}"
            return Refused(code=Code.UNKNOWN_PARTITION, message=message)
        if not 0 <= start <= OFFSET_MAX:
            return invalid(f"before_offset {start}: 0 to {OFFSET_MAX}")
        epoch = _epoch_of(state, topic, command, partition)
        if epoch > topic.assignments[partition].epoch:
            return invalid(f"partition {partition}: owner epoch {epoch} was not drawn yet")
        if epoch < topic.start_epoch(partition):
            return stale(
                f"partition {partition} was truncated under owner epoch {topic.start_epoch(partition)}, "
                f"after this truncate was requested under {epoch}"
            )
    return None


def truncate(state: MetadataState, command: TruncateTopic) -> tuple[MetadataState, Result]:
    """Raise log starts. A start of a later epoch replaces one of an earlier epoch, even if it is lower: its
    caller saw the log after the earlier start.
    """
    topic = state.topics[command.topic]
    epochs = {part: _epoch_of(state, topic, command, part) for part in command.starts}
    raised = {
        part: start
        for part, start in command.starts.items()
        if start > 0 and (epochs[part], start) > (topic.start_epoch(part), topic.starts.get(part, 0))
    }
    if not raised:
        return state, Done()
    changed = replace(topic, starts={**topic.starts, **raised})
    if state.level:
        changed = with_start_epochs(changed, {part: epochs[part] for part in raised})
    return _with_topic(state, changed), Done()


def with_start_epochs(topic: Topic, epochs: dict[PartitionId, Epoch]) -> Topic:
    earlier = {} if topic.start_epochs is UNSET else topic.start_epochs
    return replace(topic, start_epochs={**earlier, **epochs})


def _epoch_of(state: MetadataState, topic: Topic, command: TruncateTopic, partition: PartitionId) -> Epoch:
    """The owner epoch of a log start; 0 at level 0, whose programs do not know the field."""
    if not state.level:
        return Epoch(0)
    now = topic.assignments[partition].epoch
    return now if command.epochs is UNSET else command.epochs.get(partition, now)


def check_delete(state: MetadataState, command: DeleteTopic) -> Refused | None:
    return None if command.topic in state.topics else unknown_topic(command.topic)


def delete(state: MetadataState, command: DeleteTopic, index: Index) -> tuple[MetadataState, Result]:
    """Replace the topic by a tombstone, which permits the holders to drop its rows. Nothing is dropped for
    lack of metadata (I16).
    """
    topic = state.topics[command.topic]
    state, holders = without_topic_changes(state, topic)
    tombstone = Tombstone(
        topic=topic.topic,
        name=topic.name,
        partitions=tuple(partition.partition for partition in topic.layout.partitions),
        holders=tuple(sorted(holders)),
        deleted=index,
    )
    deleted = replace(
        state,
        topics={number: value for number, value in state.topics.items() if number != topic.topic},
        names={name: number for name, number in state.names.items() if number != topic.topic},
        producers={number: value for number, value in state.producers.items() if number != topic.topic},
        unopened={number: value for number, value in state.unopened.items() if number != topic.topic},
        tombstones={**state.tombstones, topic.topic: tombstone},
    )
    return deleted, Done()


def check_tombstone(state: MetadataState, command: ConfirmDropped | PurgeTopic) -> Refused | None:
    tombstone = state.tombstones.get(command.topic)
    if tombstone is None:
        return invalid(f"topic {command.topic} has no tombstone: it was not deleted, or is already purged")
    if isinstance(command, ConfirmDropped):
        if command.store in tombstone.holders:
            return None
        return invalid(
            f"store {command.store.hex()} is not a holder of the deleted topic {command.topic} any more"
        )
    if tombstone.holders:
        holders = ", ".join(store.hex() for store in tombstone.holders)
        return invalid(f"topic {command.topic} is still held by {holders}")
    return None


def confirm_dropped(state: MetadataState, command: ConfirmDropped) -> tuple[MetadataState, Result]:
    tombstone = state.tombstones[command.topic]
    left = tuple(store for store in tombstone.holders if store != command.store)
    tombstones = {**state.tombstones, command.topic: replace(tombstone, holders=left)}
    return replace(state, tombstones=tombstones), Done()


def purge(state: MetadataState, command: PurgeTopic) -> tuple[MetadataState, Result]:
    left = {number: tombstone for number, tombstone in state.tombstones.items() if number != command.topic}
    return replace(state, tombstones=left), Done()


def _with_topic(state: MetadataState, topic: Topic) -> MetadataState:
    return replace(state, topics={**state.topics, topic.topic: topic})
