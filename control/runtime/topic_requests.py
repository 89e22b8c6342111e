"""Requests about topics: TOPIC_* and SCHEMA_ADD."""

from __future__ import annotations

from typing import Any, Final

from ringfence.control.model import names
from ringfence.control.model.commands import AddSchema, CreateTopic, DeleteTopic, TruncateTopic
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.ranges import SLOT_LAST, tile
from ringfence.control.model.results import SchemaAdded, TopicCreated
from ringfence.control.model.topics import Topic
from ringfence.control.runtime import bodies
from ringfence.control.runtime.errors import RequestRefused
from ringfence.control.runtime.follower import Follower
from ringfence.control.runtime.proposals import Proposer
from ringfence.control.runtime.schemas import columns_of, key_fault
from ringfence.native import messages
from ringfence.native._node import Node
from ringfence.native.wire import CONTROL_BYTES_MAX, Code

LIST_BYTES_MAX: Final = CONTROL_BYTES_MAX - 4_096
"""Topics of one TOPIC_LIST answer together; the rest of the body is its frame."""
LIST_MAX: Final = 1_000


class TopicRequests:
    """Handlers; each returns the answer's body or raises RequestRefused."""

    def __init__(self, proposer: Proposer, follower: Follower, node: Node, here: NodeId) -> None:
        self._proposer, self._follower, self._node, self._here = proposer, follower, node, here

    async def create(self, request: messages.TopicCreate) -> messages.TopicInfo:
        name = full_name(request.name)
        existing = self._proposer.state.topic_named(name)
        if existing is not None and request.exist_ok:
            return await self._existing(existing, request)
        if not 1 <= request.partitions <= SLOT_LAST + 1:
            message = f"partitions={request.partitions}: 1 to {SLOT_LAST + 1}"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        if request.replication != 1:
            message = f"replication={request.replication}: the cluster has 1 node"
            raise RequestRefused(Code.TOO_FEW_REPLICAS, message, retry_after_ms=1_000)
        columns = columns_of(request.schema)
        fault = key_fault(columns, request.key)
        if fault is not None:
            raise RequestRefused(Code.INVALID_ARGUMENT, fault)
        command = CreateTopic(
            name=name,
            key=tuple(request.key),
            schema=request.schema,
            columns=columns,
            ranges=tile(request.partitions),
            nodes=((self._here,),) * request.partitions,
            retention_bytes=request.retention_bytes,
            retention_ms=request.retention_ms,
            properties=request.properties,
        )
        try:
            applied = await self._proposer.propose(command)
        except RequestRefused as refusal:
            # Two may have asked at once; the loser finds what the winner made.
            raced = self._proposer.state.topic_named(name)
            if refusal.code == Code.ALREADY_EXISTS and request.exist_ok and raced is not None:
                return await self._existing(raced, request)
            raise
        assert isinstance(applied.result, TopicCreated), applied.result
        await self._carried_out(applied.index, f"topic {request.name!r} is created, but not served")
        return self._info(self._proposer.state.topics[applied.result.topic], created=True)

    async def describe(self, request: messages.TopicName) -> messages.TopicInfo:
        topic = self._named(request.name)
        await self._served(topic)
        return self._info(topic)

    async def list_topics(self, request: messages.TopicList) -> messages.Topics:
        prefix = request.prefix
        limit = min(request.limit, LIST_MAX)
        if limit < 1:
            raise RequestRefused(Code.INVALID_ARGUMENT, f"limit={request.limit}: 1 to {LIST_MAX}")
        state = self._proposer.state
        matching = sorted(name for name in state.names if name.startswith(prefix) and name > request.after)
        hosted = self._hosted()
        topics: list[messages.TopicInfo] = []
        size = 0
        for name in matching[:limit]:
            info = bodies.topic_info(state.topics[state.names[name]], hosted)
            size += len(messages.encode(info))
            if topics and size > LIST_BYTES_MAX:
                break
            topics.append(info)
        return messages.Topics(topics=topics, more=len(topics) < len(matching))

    async def truncate(self, request: messages.TopicTruncate) -> messages.TopicInfo:
        topic = self._named(request.name)
        chosen = self._chosen(topic, request.partition)
        hosted = self._hosted()
        starts: dict[PartitionId, int] = {}
        for partition in chosen:
            known = hosted.get((topic.topic, partition), {})
            if known.get("quarantined"):
                message = (
                    f"partition {partition} is quarantined ({known['quarantined']}): what it holds cannot be "
                    "told, so nothing of it is given up; keep its files, truncate the others by their numbers"
                )
                raise RequestRefused(Code.QUARANTINED, message, partition=partition)
            mark = int(known.get("end_offset", 0))
            before = mark if request.before_offset is None else request.before_offset
            if not 0 <= before <= mark:
                message = f"before_offset={before}: partition {partition} has rows below {mark} only"
                raise RequestRefused(Code.INVALID_ARGUMENT, message, partition=partition, mark=mark)
            starts[partition] = before
        applied = await self._proposer.propose(TruncateTopic(topic=topic.topic, starts=starts))
        await self._carried_out(
            applied.index, f"topic {request.name!r} is truncated in the metadata, not on disk"
        )
        return self._info(self._named(request.name))

    async def delete(self, request: messages.TopicName) -> messages.TopicInfo:
        topic = self._named(request.name)
        last = self._info(topic)
        applied = await self._proposer.propose(DeleteTopic(topic=topic.topic))
        await self._carried_out(
            applied.index, f"topic {request.name!r} is deleted, its space is not given back"
        )
        return last

    async def add_schema(self, request: messages.SchemaAdd) -> messages.SchemaAdded:
        topic = self._named(request.name)
        columns = columns_of(request.schema)
        for schema_id, known in enumerate(topic.schemas):
            if known.columns == columns:
                return messages.SchemaAdded(schema_id=schema_id)
        command = AddSchema(
            topic=topic.topic, schema_id=len(topic.schemas), schema=request.schema, columns=columns
        )
        applied = await self._proposer.propose(command)
        assert isinstance(applied.result, SchemaAdded), applied.result
        await self._carried_out(
            applied.index, f"topic {request.name!r} has the schema, its node does not use it"
        )
        return messages.SchemaAdded(schema_id=applied.result.schema_id)

    async def _existing(self, topic: Topic, request: messages.TopicCreate) -> messages.TopicInfo:
        """The topic that exists, if it is what was asked for: a producer must not write into another."""
        columns = columns_of(request.schema)
        differing = [
            what
            for what, differs in (
                ("schema", all(known.columns != columns for known in topic.schemas)),
                ("key", topic.key != tuple(request.key)),
            )
            if differs
        ]
        if differing:
            message = (
                f"topic {request.name!r} exists with another {' and '.join(differing)}; choose another name"
            )
            raise RequestRefused(Code.ALREADY_EXISTS, message)
        await self._served(topic)
        return self._info(topic)

    async def _served(self, topic: Topic) -> None:
        """Wait until the engine knows the topic: who hears of it here asks the engine for its table next."""
        await self._follower.until(topic.changed)

    def _named(self, name: str) -> Topic:
        topic = self._proposer.state.topic_named(full_name(name))
        if topic is None:
            raise RequestRefused(Code.UNKNOWN_TOPIC, f"no topic is named {name!r}", name=name)
        return topic

    def _chosen(self, topic: Topic, partition: int | None) -> list[PartitionId]:
        if partition is None:
            return [part.partition for part in topic.layout.partitions]
        if topic.layout.find(partition) is None:
            message = f"topic {topic.name!r} has no partition {partition}"
            raise RequestRefused(Code.UNKNOWN_PARTITION, message, partition=partition)
        return [PartitionId(partition)]

    async def _carried_out(self, index: int, but: str) -> None:
        faults = await self._follower.until(index)
        if faults:
            raise RequestRefused(Code.INTERNAL, f"{but}: {faults[0]}", retry_after_ms=1_000)

    def _info(self, topic: Topic, *, created: bool = False) -> messages.TopicInfo:
        return bodies.topic_info(topic, self._hosted(), created=created)

    def _hosted(self) -> dict[tuple[int, int], dict[str, Any]]:
        return {(known["topic"], known["partition"]): known for known in self._node.partitions()}


def full_name(name: str) -> str:
    """The full name; RequestRefused when it is none."""
    try:
        return names.full_topic_name(name)
    except ValueError as error:
        raise RequestRefused(Code.INVALID_ARGUMENT, str(error)) from error
