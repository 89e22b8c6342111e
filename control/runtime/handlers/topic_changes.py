"""Serve changes of topics at a data address: TOPIC_CREATE, TOPIC_TRUNCATE, TOPIC_DELETE and SCHEMA_ADD.

A request that changes nothing (the topic or schema exists already) has no entry: producers send such
requests at each start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ringfence.control.model.ids import TopicId
from ringfence.control.model.results import Done, SchemaAdded
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers.commands import (
    Commands,
    Outcome,
    Plan,
    Principal,
    RequestContext,
    at_data_address,
    refuse_faults,
)
from ringfence.control.runtime.handlers.completion import Completion
from ringfence.control.runtime.handlers.schemas import columns_of
from ringfence.control.runtime.handlers.topic_plans import TopicPlans, full_name
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.dispatch import CALLER_PREFIX, CALLER_TOKEN
from ringfence.native import messages
from ringfence.native.wire import Code

# Tries to add a schema. A try fails if another schema came first, and topics have few schemas.
SCHEMA_TRIES_MAX: Final = 10


class TopicChanges:
    """The handlers of one node; each returns the answer's body or raises RequestRefused."""

    def __init__(
        self, proposer: RaftProposer, topics: TopicPlans, commands: Commands, completion: Completion
    ) -> None:
        self._proposer, self._topics = proposer, topics
        self._commands, self._completion = commands, completion

    async def create(self, request: messages.TopicCreate) -> messages.TopicInfo:
        place = self._topics.creation(request)
        topic: Topic | None = None
        info: messages.TopicInfo | None = None

        async def build() -> Plan:
            nonlocal info
            existing = self._existing(request)
            if existing is not None:
                info = await self._topics.existing(existing, request)
                return Plan(done=Outcome(0, Done()))
            plan = await place()

            async def is_overtaken(refusal: RequestRefused) -> bool:
                if refusal.code == Code.ALREADY_EXISTS:
                    # A concurrent request may have created the topic first.
                    return self._existing(request) is not None
                return await plan.is_overtaken(refusal)

            return replace(plan, is_overtaken=is_overtaken)

        async def carried_out(index: int, plan: Plan) -> Sequence[str]:
            nonlocal topic
            topic = self._proposer.state.topics.get(TopicId(index))
            if topic is None:
                # Entries are applied in batches: the same batch may hold the deletion.
                message = f"topic {request.name!r} was created, and another request has deleted it since"
                raise RequestRefused(Code.UNKNOWN_TOPIC, message)
            return await self._completion.carried_out(index, plan)

        progress = f"topic {request.name!r} is created, but not served"
        context = self._context("topic create", request.name)
        await self._commands.submit(build, context, refuse_faults(carried_out, progress))
        if info is None:
            assert topic is not None, "the change was carried out"
            info = await self._topics.info(topic, created=True)
        return info

    async def truncate(self, request: messages.TopicTruncate) -> messages.TopicInfo:
        async def build() -> Plan:
            return await self._topics.truncation(await self._topics.newest_topic_named(request.name), request)

        # A late owner still carries out the order. A repeat would use newer offsets, so it would be another
        # truncation: the outcome is reported as unknown.
        progress = f"topic {request.name!r} is truncated in the metadata, not on disk"
        wait = refuse_faults(self._completion.truncated, progress, Code.UNKNOWN_OUTCOME)
        await self._commands.submit(build, self._context("topic truncate", request.name), wait)
        return await self._topics.info(await self._topics.topic_named(request.name))

    async def delete(self, request: messages.TopicDelete) -> messages.TopicInfo:
        last_info: messages.TopicInfo | None = None

        async def build() -> Plan:
            nonlocal last_info
            topic = await self._topics.newest_topic_named(request.name)
            last_info = await self._topics.info(topic)
            return self._topics.deletion(topic, force=request.force is True)

        progress = f"topic {request.name!r} is deleted, but its space is not freed yet"
        wait = refuse_faults(self._completion.carried_out, progress)
        await self._commands.submit(build, self._context("topic delete", request.name), wait)
        assert last_info is not None, "the change was built"
        return last_info

    async def add_schema(self, request: messages.SchemaAdd) -> messages.SchemaAdded:
        tries = 0

        async def build() -> Plan:
            topic = await self._topics.newest_topic_named(request.name)
            columns = columns_of(request.schema)
            for schema_id, schema in enumerate(topic.schemas):
                if schema.columns == columns:
                    return Plan(done=Outcome(0, SchemaAdded(schema_id=schema_id)))

            async def is_overtaken(_: RequestRefused) -> bool:
                """Whether another request has added a schema first, possibly this one."""
                nonlocal tries
                tries += 1
                newest = await self._topics.newest_topic_named(request.name)
                return tries < SCHEMA_TRIES_MAX and len(newest.schemas) != len(topic.schemas)

            return replace(self._topics.addition(topic, request.schema), is_overtaken=is_overtaken)

        async def carried_out(index: int, plan: Plan) -> Sequence[str]:
            # The topic has the schema, and a repeat would say so. A node that cannot use it yet is degraded.
            await self._completion.carried_out(index, plan)
            return ()

        context = self._context("schema add", request.name)
        added = (await self._commands.submit(build, context, carried_out)).result
        assert isinstance(added, SchemaAdded), added
        return messages.SchemaAdded(schema_id=added.schema_id)

    def _existing(self, request: messages.TopicCreate) -> Topic | None:
        """The topic, if the request accepts one that exists already."""
        topic = self._proposer.state.topic_named(full_name(request.name))
        return topic if request.exist_ok else None

    def _context(self, action: str, name: str) -> RequestContext:
        who = CALLER_TOKEN.get()
        token = self._proposer.state.tokens.get(who)
        role = None if token is None else token.role
        return at_data_address(Principal(who, role, CALLER_PREFIX.get()), action, name)
