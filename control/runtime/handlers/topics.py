"""Requests about topics: TOPIC_* and SCHEMA_ADD."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from msgspec import UNSET

from ringfence.control.model import names
from ringfence.control.model.commands import AddSchema, CreateTopic, DeleteTopic, TruncateTopic
from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.ranges import SLOT_LAST, tile
from ringfence.control.model.results import SchemaAdded, TopicCreated
from ringfence.control.model.schemas import difference
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.data_plane import partition_stats, table_bodies
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.handlers.schemas import columns_of, key_fault
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.metadata.ring import eligible_fault
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.control.state_machines.metadata.topic_checks import REPLICATIONS
from ringfence.control.state_machines.placement.placement import TooFewNodesError, place_in
from ringfence.native import messages
from ringfence.native._node import Node
from ringfence.native.wire import CONTROL_BYTES_MAX, Code

LIST_BYTES_MAX: Final = CONTROL_BYTES_MAX - 4_096
"""Topics of one TOPIC_LIST answer together; the rest of the body is its frame."""
LIST_MAX: Final = 1_000
ADDITIONS_MAX: Final = 10
"""Tries to add a schema: each that fails was overtaken by another schema, and topics have few."""
PLACINGS_MAX: Final = 4
"""Of one topic: each of them needs one more node that fails between its choice and the entry."""
REACHED_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
"""Waits for owners that were told of a log start and do not know yet what a majority has."""
T = TypeVar("T")


class TopicRequests:
    """Handlers; each returns the answer's body or raises RequestRefused."""

    def __init__(
        self, proposer: RaftProposer, executor: OrderExecutor, node: Node, peer_client: PeerClient
    ) -> None:
        self._proposer, self._executor, self._node, self._peer_client = proposer, executor, node, peer_client

    async def create(self, request: messages.TopicCreate) -> messages.TopicInfo:
        name = full_name(request.name)
        existing = self._proposer.state.topic_named(name)
        if existing is not None and request.exist_ok:
            return await self._existing(existing, request)
        try:
            applied = await self.placed_by(request, self._proposer.propose)
        except RequestRefused as refusal:
            # Two may have asked at once; the loser finds what the winner made.
            raced = self._proposer.state.topic_named(name)
            if refusal.code == Code.ALREADY_EXISTS and request.exist_ok and raced is not None:
                return await self._existing(raced, request)
            raise
        assert isinstance(applied.result, TopicCreated), applied.result
        topic = self._proposer.state.topics.get(applied.result.topic)
        if topic is None:
            # Entries are applied in batches: the deletion may stand in the same one.
            message = f"topic {request.name!r} was created, and somebody has deleted it since"
            raise RequestRefused(Code.UNKNOWN_TOPIC, message)
        await self._carried_out(applied.index, f"topic {request.name!r} is created, but not served", topic)
        return await self.info(topic, created=True)

    async def placed_by(
        self, request: messages.TopicCreate, propose: Callable[[CreateTopic], Awaitable[T]]
    ) -> T:
        """Choose places for a new topic, and propose it; again if the log has taken a place away meanwhile.

        Who asks has named no node, so it is not his to name others.
        """
        why = ""
        for _ in range(PLACINGS_MAX):
            command = self.creation(request)
            try:
                return await propose(command)
            except RequestRefused as refusal:
                if refusal.code != Code.INVALID_ARGUMENT or not self._is_overtaken(command):
                    raise
                why = refusal.message
        message = f"nodes failed while they were chosen, {PLACINGS_MAX} times: {why}"
        raise RequestRefused(Code.TOO_FEW_REPLICAS, message, retry_after_ms=1_000)

    def _is_overtaken(self, command: CreateTopic) -> bool:
        """It was refused for what is no longer so, or for a node that was chosen here."""
        state = self._proposer.state
        if validate(state, command) is None:
            return True
        return any(eligible_fault(state, node) for node in set().union(*command.nodes))

    def creation(self, request: messages.TopicCreate) -> CreateTopic:
        """The command, with every decision that it carries."""
        if not 1 <= request.partitions <= SLOT_LAST + 1:
            message = f"partitions={request.partitions}: 1 to {SLOT_LAST + 1}"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        if request.replication not in REPLICATIONS:
            message = f"replication={request.replication}: one of {REPLICATIONS}"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        columns = columns_of(request.schema)
        fault = key_fault(request.schema, columns, request.key) or property_fault(request)
        if fault is not None:
            raise RequestRefused(Code.INVALID_ARGUMENT, fault)
        return CreateTopic(
            name=full_name(request.name),
            key=tuple(request.key),
            schema=request.schema,
            columns=columns,
            ranges=tile(request.partitions),
            nodes=self._placed(request.partitions, request.replication),
            retention_bytes=request.retention_bytes,
            retention_ms=request.retention_ms,
            properties=request.properties,
        )

    async def describe(self, request: messages.TopicName) -> messages.TopicInfo:
        topic = await self.named(request.name)
        await self._served(topic)
        return await self.info(topic)

    async def list_topics(self, request: messages.TopicList) -> messages.Topics:
        prefix = request.prefix
        limit = min(request.limit, LIST_MAX)
        if limit < 1:
            raise RequestRefused(Code.INVALID_ARGUMENT, f"limit={request.limit}: 1 to {LIST_MAX}")
        if request.linearizable:
            await self._proposer.read_barrier()
        hosted = await self._hosted()
        state = self._proposer.state
        matching = sorted(name for name in state.names if name.startswith(prefix) and name > request.after)
        topics: list[messages.TopicInfo] = []
        size = 0
        for name in matching[:limit]:
            info = table_bodies.topic_info(state, state.topics[state.names[name]], hosted)
            size += len(messages.encode(info))
            if topics and size > LIST_BYTES_MAX:
                break
            topics.append(info)
        return messages.Topics(topics=topics, more=len(topics) < len(matching))

    async def truncate(self, request: messages.TopicTruncate) -> messages.TopicInfo:
        topic = await self.named_now(request.name)
        command = await self.truncation(topic, request)
        applied = await self._proposer.propose(command)
        but = f"topic {request.name!r} is truncated in the metadata, not on disk"
        await self._carried_out(applied.index, but, topic, late_is_fault=True)
        if late := await self.not_reached(command):
            message = f"{but}: {late[0]}"
            raise RequestRefused(Code.UNKNOWN_OUTCOME, message, retry_after_ms=1_000, index=applied.index)
        return await self.info(await self.named(request.name))

    async def not_reached(self, command: TruncateTopic) -> list[str]:
        """Wait until the owners' logs begin where the command says; which do not, after a while.

        An owner that tells nothing carries it out when it is back.
        """
        late: list[str] = []
        for wait_s in REACHED_S:
            topic = self._proposer.state.topics.get(command.topic)
            if topic is None or not any(command.starts.values()):
                return []
            hosted = await self._hosted(topic)
            begins = {
                part: hosted.get((topic.topic, part), {}).get("start_offset") for part in command.starts
            }
            late = [
                f"partition {part} begins at row {begin} at its owner, which moves it to {start} when a "
                "majority confirms the rows below"
                for part, start in command.starts.items()
                if (begin := begins[part]) is not None and begin < start
            ]
            if not late:
                return []
            await asyncio.sleep(wait_s)
        return late

    async def truncation(self, topic: Topic, request: messages.TopicTruncate) -> TruncateTopic:
        """The command, with the offsets as they are now where none is named."""
        chosen = self._chosen(topic, request.partition)
        hosted = await self._hosted(topic)
        starts: dict[PartitionId, int] = {}
        has_epochs = self._proposer.state.level > 0
        for partition in chosen:
            owner = topic.assignments[partition].owner.node
            if owner != self._peer_client.here and (topic.topic, partition) not in hosted:
                message = f"node {owner}, which owns partition {partition}, does not answer"
                raise RequestRefused(Code.INTERNAL, message, retry_after_ms=1_000, partition=partition)
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
            # Rows that are gone stay so, whatever start of an earlier epoch this one takes the place of.
            starts[partition] = max(before, int(known.get("start_offset", 0)) if has_epochs else 0)
        # As of before the offsets were asked for: a later epoch may be another history.
        epochs = {partition: topic.assignments[partition].epoch for partition in chosen}
        return TruncateTopic(topic=topic.topic, starts=starts, epochs=epochs if has_epochs else UNSET)

    async def delete(self, request: messages.TopicName) -> messages.TopicInfo:
        topic = await self.named_now(request.name)
        last = await self.info(topic)
        applied = await self._proposer.propose(DeleteTopic(topic=topic.topic))
        await self._carried_out(
            applied.index, f"topic {request.name!r} is deleted, its space is not given back", topic
        )
        return last

    async def add_schema(self, request: messages.SchemaAdd) -> messages.SchemaAdded:
        for _ in range(ADDITIONS_MAX - 1):
            topic = await self.named_now(request.name)
            try:
                return await self._add_schema(topic, request)
            except RequestRefused:
                # Another schema may have come first, maybe this very one.
                if len((await self.named_now(request.name)).schemas) == len(topic.schemas):
                    raise
        return await self._add_schema(await self.named_now(request.name), request)

    async def _add_schema(self, topic: Topic, request: messages.SchemaAdd) -> messages.SchemaAdded:
        columns = columns_of(request.schema)
        for schema_id, known in enumerate(topic.schemas):
            if known.columns == columns:
                return messages.SchemaAdded(schema_id=schema_id)
        applied = await self._proposer.propose(self.addition(topic, request.schema))
        assert isinstance(applied.result, SchemaAdded), applied.result
        await self._carried_out(
            applied.index, f"topic {request.name!r} has the schema, its node does not use it", topic
        )
        return messages.SchemaAdded(schema_id=applied.result.schema_id)

    def addition(self, topic: Topic, schema: bytes) -> AddSchema:
        """The command that appends a schema to what the topic has now."""
        return AddSchema(
            topic=topic.topic, schema_id=len(topic.schemas), schema=schema, columns=columns_of(schema)
        )

    async def carried_out(
        self, index: int, topic: Topic | None = None, *, late_is_fault: bool = False
    ) -> list[str]:
        """Wait until this node and the owners of `topic` have done what the entry asks for; what failed."""
        topic = topic or self._proposer.state.topics.get(TopicId(index))
        owners = set() if topic is None else {known.owner.node for known in topic.assignments.values()}
        return await self._executor.until_executed(index) or await self._peer_client.settle(
            owners, index, late_is_fault=late_is_fault
        )

    async def heard(self, index: int) -> None:
        """Wait until every live node has applied the entry; one that does not answer is not waited for."""
        await self._peer_client.settle(self._proposer.state.nodes, index)

    async def _existing(self, topic: Topic, request: messages.TopicCreate) -> messages.TopicInfo:
        """The topic that exists, if it is what was asked for: a producer must not write into another."""
        columns = columns_of(request.schema)
        differing = [
            f"{what} ({how})"
            for what, differs, how in (
                (
                    "schema",
                    all(known.columns != columns for known in topic.schemas),
                    difference(topic.schemas[-1].columns, columns),
                ),
                (
                    "key",
                    topic.key != tuple(request.key),
                    f"it was {list(topic.key)} and would be {request.key}",
                ),
            )
            if differs
        ]
        if differing:
            message = (
                f"topic {request.name!r} exists with another {' and another '.join(differing)}; choose "
                "another name"
            )
            raise RequestRefused(Code.ALREADY_EXISTS, message)
        await self._served(topic)
        return await self.info(topic)

    async def _served(self, topic: Topic) -> None:
        """Wait until the engine knows the topic: who hears of it here asks the engine for its table next."""
        await self._executor.until_executed(topic.changed)

    async def named_now(self, name: str) -> Topic:
        """The topic that has this name at some time after the request came.

        A node that is behind knows the name of a topic that is gone: a change of that one would be refused as
        if the name were nobody's, while another topic has it.
        """
        await self._proposer.read_barrier()
        return await self.named(name)

    async def named(self, name: str) -> Topic:
        """`topic_named`, for those who have these requests at hand."""
        return await topic_named(self._proposer, name)

    def _placed(self, partitions: int, replication: int) -> tuple[tuple[NodeId, ...], ...]:
        """The replicas of a new topic's partitions, owners first, spread over zones and nodes."""
        state = self._proposer.state
        # A node that died a moment ago is LIVE in the log still: its partitions would wait for its return.
        with contextlib.suppress(TooFewNodesError):
            return place_in(state, partitions, replication, but=self._peer_client.silent())
        try:
            return place_in(state, partitions, replication)
        except TooFewNodesError as error:
            raise RequestRefused(Code.TOO_FEW_REPLICAS, str(error), retry_after_ms=1_000) from error

    def _chosen(self, topic: Topic, partition: int | None) -> list[PartitionId]:
        if partition is None:
            return [part.partition for part in topic.layout.partitions]
        if topic.layout.find(partition) is None:
            message = f"topic {topic.name!r} has no partition {partition}"
            raise RequestRefused(Code.UNKNOWN_PARTITION, message, partition=partition)
        return [PartitionId(partition)]

    async def _carried_out(self, index: int, but: str, topic: Topic, *, late_is_fault: bool = False) -> None:
        """Wait for this node's orders, and for those of the partitions' owners."""
        faults = await self.carried_out(index, topic, late_is_fault=late_is_fault)
        if faults:
            # Who is late carries it out: a repeat, with what is true by then, would be another one.
            code = Code.UNKNOWN_OUTCOME if late_is_fault else Code.INTERNAL
            raise RequestRefused(code, f"{but}: {faults[0]}", retry_after_ms=1_000, index=index)

    async def info(self, topic: Topic, *, created: bool = False) -> messages.TopicInfo:
        """The topic with the figures of its partitions, as far as their owners tell them."""
        found = await self._hosted(topic)
        return table_bodies.topic_info(self._proposer.state, topic, found, created=created)

    async def shown(self, topic: Topic) -> tuple[messages.TopicInfo, dict[int, int]]:
        """As `info`, and by partition the records that the replica lacks that is furthest behind.

        A partition whose owner tells nothing is not there.
        """
        found = await self._hosted(topic)
        # An older program's node tells no lag.
        lags = {partition: int(known.get("lag_records", 0)) for (_, partition), known in found.items()}
        return table_bodies.topic_info(self._proposer.state, topic, found), lags

    async def _hosted(self, topic: Topic | None = None) -> dict[tuple[int, int], dict[str, Any]]:
        """Figures by (topic, partition), those of their owners; what an owner does not tell is not there."""
        told = await self._peer_client.hosted(0 if topic is None else topic.topic)
        mine = partition_stats.hosted(self._node, 0 if topic is None else topic.topic)
        # What a replica knows of the mark is older than what the owner knows, and an old copy, which is kept
        # after a move, knows nothing of what came since.
        found = (*told, *({**known, "node": self._peer_client.here} for known in mine))
        return {
            (known["topic"], known["partition"]): known
            for known in found
            if known["node"] == self._owner(known["topic"], known["partition"])
        }

    def _owner(self, topic: int, partition: int) -> int:
        known = self._proposer.state.topics.get(TopicId(topic))
        assignment = None if known is None else known.assignments.get(PartitionId(partition))
        return 0 if assignment is None else assignment.owner.node


async def topic_named(proposer: RaftProposer, name: str) -> Topic:
    """The topic, also if another node made it just now. RequestRefused when there is none."""
    topic = proposer.state.topic_named(full_name(name))
    if topic is None:
        await proposer.read_barrier()
        topic = proposer.state.topic_named(full_name(name))
    if topic is None:
        raise no_topic(name)
    return topic


def property_fault(request: messages.TopicCreate) -> str | None:
    """Why properties that are ringfence's own cannot be so, or None."""
    own = {key for key in request.properties if key.startswith(messages.OWN_PROPERTIES)}
    if own - {messages.RETENTION}:
        return f"properties {sorted(own)}: of ringfence's own there is {messages.RETENTION} only"
    waits_for = request.properties.get(messages.RETENTION)
    if waits_for is None:
        return None
    if waits_for != messages.COMPACTED:
        return f"property {messages.RETENTION}={waits_for!r}: {messages.COMPACTED}, or leave it out"
    if not request.retention_bytes and not request.retention_ms:
        return f"property {messages.RETENTION}={waits_for}: it needs retention_bytes or retention_ms"
    return None


def no_topic(name: str) -> RequestRefused:
    message = f"no topic is named {name[:300]!r}; create it first (create_topic, `ringfence topic create`)"
    return RequestRefused(Code.UNKNOWN_TOPIC, message)


def full_name(name: str) -> str:
    """The full name; RequestRefused when it is none."""
    try:
        return names.full_topic_name(name)
    except ValueError as error:
        raise RequestRefused(Code.INVALID_ARGUMENT, str(error)) from error
