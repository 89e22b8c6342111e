"""Plan changes of topics, and read topics. `topic_changes` and HTTP submit the plans."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from ringfence.control.model import names
from ringfence.control.model.commands import AddSchema, CreateTopic, DeleteTopic, TruncateTopic
from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.ranges import SLOT_LAST, tile
from ringfence.control.model.schemas import difference
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.data_plane import replica_lag, table_bodies
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.handlers.commands import Build, Plan
from ringfence.control.runtime.handlers.schemas import columns_of, key_fault
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.metadata.drained import members_of
from ringfence.control.state_machines.metadata.ring_commands import eligible_fault
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.control.state_machines.metadata.topic_checks import REPLICATIONS
from ringfence.control.state_machines.placement.placement import Pressures, TooFewNodesError, place_in
from ringfence.native import messages
from ringfence.native._node import Node
from ringfence.native.wire import CONTROL_BYTES_MAX, Code

# Size of all topics in one TOPIC_LIST answer; the rest of the body is framing.
LIST_BYTES_MAX: Final = CONTROL_BYTES_MAX - 4_096
LIST_MAX: Final = 1_000
# Bytes of a name in a list beside its text: the pair, the id and the length of the text.
NAME_FRAME_BYTES: Final = 15
# Placements of one topic. A try fails only if a node fails between its choice and the entry.
PLACEMENT_TRIES_MAX: Final = 4
# Figures by (topic, partition).
Stats = dict[tuple[int, int], dict[str, Any]]


class TopicPlans:
    """Plans and reads of one node; each raises RequestRefused if the request is invalid."""

    def __init__(
        self,
        proposer: RaftProposer,
        executor: OrderExecutor,
        node: Node,
        peer_client: PeerClient,
        pressures: Callable[[], Pressures] = dict,
    ) -> None:
        """`pressures` break ties between nodes that new partitions may go to."""
        self._proposer, self._executor, self._node, self._peer_client = proposer, executor, node, peer_client
        self._pressures = pressures

    def creation(self, request: messages.TopicCreate) -> Build:
        """Plan a new topic on nodes that are eligible now.

        The caller has named no nodes. So the choice is repeated, instead of refusing the request, if a chosen
        node is no longer eligible.
        """
        tries = 0

        async def build() -> Plan:
            command = self.create_command(request)

            async def is_overtaken(refusal: RequestRefused) -> bool:
                nonlocal tries
                tries += 1
                if refusal.code != Code.INVALID_ARGUMENT or not self._is_overtaken(command):
                    return False
                if tries < PLACEMENT_TRIES_MAX:
                    return True
                message = (
                    f"nodes failed while they were chosen, {PLACEMENT_TRIES_MAX} times: {refusal.message}"
                )
                raise RequestRefused(Code.TOO_FEW_REPLICAS, message, retry_after_ms=1_000)

            return Plan((command,), is_overtaken=is_overtaken)

        return build

    def _is_overtaken(self, command: CreateTopic) -> bool:
        """Whether the refusal's reason is gone by now, or is the choice of a node."""
        state = self._proposer.state
        if validate(state, command) is None:
            return True
        return any(eligible_fault(state, node) for node in set().union(*command.nodes))

    def create_command(self, request: messages.TopicCreate) -> CreateTopic:
        """The command, with the columns, ranges and nodes that this node has chosen."""
        if not 1 <= request.partitions <= SLOT_LAST + 1:
            message = f"partitions={request.partitions}: it must be 1 to {SLOT_LAST + 1}"
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
        if request.replication not in REPLICATIONS:
            message = f"replication={request.replication}: it must be one of {REPLICATIONS}"
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
            nodes=self._choose_nodes(request.partitions, request.replication),
            retention_bytes=request.retention_bytes,
            retention_ms=request.retention_ms,
            properties=request.properties,
        )

    async def describe(self, request: messages.TopicName) -> messages.TopicInfo:
        topic = await self.topic_named(request.name)
        await self._until_served(topic)
        return await self.info(topic)

    async def list_topics(self, request: messages.TopicList) -> messages.Topics:
        prefix = request.prefix
        limit = min(request.limit, LIST_MAX)
        if limit < 1:
            raise RequestRefused(Code.INVALID_ARGUMENT, f"limit={request.limit}: it must be 1 to {LIST_MAX}")
        if request.linearizable:
            await self._proposer.read_barrier()
        if request.cluster is True:
            return self._list_cluster(request)
        hosted = await self.hosted()
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

    def _list_cluster(self, request: messages.TopicList) -> messages.Topics:
        """Names and ids of the topics, and all nodes: what a client needs before it knows any topic."""
        state = self._proposer.state
        matching = sorted(
            name for name in state.names if name.startswith(request.prefix) and name > request.after
        )
        nodes = [
            messages.NodeEntry(node=number, addresses=list(node.addresses))
            for number, node in sorted(state.nodes.items())
        ]
        names: list[tuple[int, str]] = []
        left = LIST_BYTES_MAX - len(msgspec.msgpack.encode(nodes))
        for name in matching:
            left -= len(name.encode()) + NAME_FRAME_BYTES
            if names and left < 0:
                break
            names.append((state.names[name], name))
        return messages.Topics(
            topics=[],
            more=len(names) < len(matching),
            names=names,
            nodes=nodes,
            generation=self._proposer.applied.index,
        )

    async def truncation(self, topic: Topic, request: messages.TopicTruncate) -> Plan:
        return Plan((await self.truncate_command(topic, request),), topic=topic)

    async def truncate_command(self, topic: Topic, request: messages.TopicTruncate) -> TruncateTopic:
        """The command; without an offset in the request it has the current end of each partition."""
        chosen = self._chosen(topic, request.partition)
        hosted = await self.hosted(topic)
        starts: dict[PartitionId, int] = {}
        has_epochs = self._proposer.state.level > 0
        for partition in chosen:
            owner = topic.assignments[partition].owner.node
            if owner != self._peer_client.here and (topic.topic, partition) not in hosted:
                message = f"node {owner}, which owns partition {partition}, does not answer"
                raise RequestRefused(Code.INTERNAL, message, retry_after_ms=1_000, partition=partition)
            stats = hosted.get((topic.topic, partition), {})
            if stats.get("quarantined"):
                message = (
                    f"partition {partition} is quarantined ({stats['quarantined']}): its rows are unknown, "
                    "so none are removed; keep its files, and truncate the other partitions by their numbers"
                )
                raise RequestRefused(Code.QUARANTINED, message, partition=partition)
            mark = int(stats.get("end_offset", 0))
            before = mark if request.before_offset is None else request.before_offset
            if not 0 <= before <= mark:
                message = f"before_offset={before}: partition {partition} has rows below {mark} only"
                raise RequestRefused(Code.INVALID_ARGUMENT, message, partition=partition, mark=mark)
            # A start never moves back, even if this command replaces a start of an earlier epoch.
            starts[partition] = max(before, int(stats.get("start_offset", 0)) if has_epochs else 0)
        # `topic` was read before the offsets. Under a later epoch the offsets may mean other rows.
        epochs = {partition: topic.assignments[partition].epoch for partition in chosen}
        return TruncateTopic(topic=topic.topic, starts=starts, epochs=epochs if has_epochs else UNSET)

    def deletion(self, topic: Topic, *, force: bool = False) -> Plan:
        """`force`: also if members read the topic. Without any, the command is the one that it always was."""
        has_members = force and bool(members_of(self._proposer.state, topic.topic))
        command = DeleteTopic(topic=topic.topic, force=True if has_members else UNSET)
        return Plan((command,), topic=topic)

    def addition(self, topic: Topic, schema: bytes) -> Plan:
        """Append a schema to the topic's current ones."""
        command = AddSchema(
            topic=topic.topic, schema_id=len(topic.schemas), schema=schema, columns=columns_of(schema)
        )
        return Plan((command,), topic=topic)

    async def existing(self, topic: Topic, request: messages.TopicCreate) -> messages.TopicInfo:
        """The info of an existing topic. A request with another schema or key is refused.

        Otherwise a producer would write into a topic that it did not ask for.
        """
        columns = columns_of(request.schema)
        differences: list[str] = []
        if all(schema.columns != columns for schema in topic.schemas):
            differences.append(f"schema ({difference(topic.schemas[-1].columns, columns)})")
        if topic.key != tuple(request.key):
            differences.append(f"key (it was {list(topic.key)} and would be {request.key})")
        if differences:
            message = (
                f"topic {request.name!r} exists with another {' and another '.join(differences)}; choose "
                "another name"
            )
            raise RequestRefused(Code.ALREADY_EXISTS, message)
        await self._until_served(topic)
        return await self.info(topic)

    async def _until_served(self, topic: Topic) -> None:
        """Wait until the engine knows the topic: the client asks the engine for the routing table next."""
        await self._executor.until_executed(topic.changed)

    async def newest_topic_named(self, name: str) -> Topic:
        """The topic that has this name at some time after the request arrived.

        A node that lags may still map the name to a deleted topic. A change of that topic would be refused,
        although another topic has the name by now.
        """
        await self._proposer.read_barrier()
        return await self.topic_named(name)

    async def topic_named(self, name: str) -> Topic:
        """The function `topic_named` with this node's proposer."""
        return await topic_named(self._proposer, name)

    def _choose_nodes(self, partitions: int, replication: int) -> tuple[tuple[NodeId, ...], ...]:
        """The nodes of each new partition, owner first, distributed over zones and nodes."""
        state = self._proposer.state
        # A node that has just failed is still LIVE in the log. Partitions on it would wait for its return, so
        # silent nodes are left out if enough others remain.
        with contextlib.suppress(TooFewNodesError):
            return place_in(
                state, partitions, replication, but=self._peer_client.silent(), pressures=self._pressures()
            )
        try:
            return place_in(state, partitions, replication, pressures=self._pressures())
        except TooFewNodesError as error:
            raise RequestRefused(Code.TOO_FEW_REPLICAS, str(error), retry_after_ms=1_000) from error

    def _chosen(self, topic: Topic, partition: int | None) -> list[PartitionId]:
        if partition is None:
            return [part.partition for part in topic.layout.partitions]
        if topic.layout.find(partition) is None:
            message = f"topic {topic.name!r} has no partition {partition}"
            raise RequestRefused(Code.UNKNOWN_PARTITION, message, partition=partition)
        return [PartitionId(partition)]

    async def info(self, topic: Topic, *, created: bool = False) -> messages.TopicInfo:
        """The topic with the figures of those partitions whose owners answer."""
        stats = await self.hosted(topic)
        return table_bodies.topic_info(self._proposer.state, topic, stats, created=created)

    async def shown(self, topic: Topic) -> tuple[messages.TopicInfo, dict[int, int]]:
        """The `info`, and for each partition the largest lag of a replica, in records.

        The lags omit partitions whose owners do not answer.
        """
        return self.shown_with(topic, await self.hosted(topic))

    def shown_with(self, topic: Topic, stats: Stats) -> tuple[messages.TopicInfo, dict[int, int]]:
        """Like `shown`, with figures that include those of the topic."""
        owned = (part.partition for part in topic.layout.partitions if (topic.topic, part.partition) in stats)
        # A node with an older program reports no lag.
        lags = {int(part): int(stats[topic.topic, part].get("lag_records", 0)) for part in owned}
        return table_bodies.topic_info(self._proposer.state, topic, stats), lags

    async def hosted(self, topic: Topic | None = None) -> Stats:
        """The owners' figures by (topic, partition), without those of owners that do not answer."""
        remote = await self._peer_client.hosted(0 if topic is None else topic.topic)
        local = replica_lag.hosted(self._node, 0 if topic is None else topic.topic)
        # Only the owner's figures count: a replica's mark is older, and a copy that stays after a move knows
        # no later rows at all.
        everything = (*remote, *({**figures, "node": self._peer_client.here} for figures in local))
        return {
            (figures["topic"], figures["partition"]): figures
            for figures in everything
            if figures["node"] == self._owner(figures["topic"], figures["partition"])
        }

    def _owner(self, topic: int, partition: int) -> int:
        entry = self._proposer.state.topics.get(TopicId(topic))
        assignment = None if entry is None else entry.assignments.get(PartitionId(partition))
        return 0 if assignment is None else assignment.owner.node


async def topic_named(proposer: RaftProposer, name: str) -> Topic:
    """The topic, even if another node has just created it. RequestRefused if there is none."""
    topic = proposer.state.topic_named(full_name(name))
    if topic is None:
        await proposer.read_barrier()
        topic = proposer.state.topic_named(full_name(name))
    if topic is None:
        raise no_topic(name)
    return topic


def property_fault(request: messages.TopicCreate) -> str | None:
    """The reason why a property that is reserved for ringfence is invalid, or None."""
    reserved = {key for key in request.properties if key.startswith(messages.OWN_PROPERTIES)}
    if reserved - {messages.RETENTION}:
        return f"properties {sorted(reserved)}: of ringfence's own there is {messages.RETENTION} only"
    retention = request.properties.get(messages.RETENTION)
    if retention is None:
        return None
    if retention != messages.COMPACTED:
        return f"property {messages.RETENTION}={retention!r}: {messages.COMPACTED}, or leave it out"
    if not request.retention_bytes and not request.retention_ms:
        return f"property {messages.RETENTION}={retention}: it needs retention_bytes or retention_ms"
    return None


def no_topic(name: str) -> RequestRefused:
    message = f"no topic is named {name[:300]!r}; create it first (create_topic, `ringfence topic create`)"
    return RequestRefused(Code.UNKNOWN_TOPIC, message)


def full_name(name: str) -> str:
    """The full name of a topic. RequestRefused if `name` is invalid."""
    try:
        return names.full_topic_name(name)
    except ValueError as error:
        raise RequestRefused(Code.INVALID_ARGUMENT, str(error)) from error
