"""Change topics for clients of a data address, and write a line of the audit log for each change.

A request that changes nothing (the topic or schema exists already) gets no line: producers send such
requests at each start.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from ringfence.control.runtime.handlers.audit import DATA, Audit, Line
from ringfence.control.runtime.handlers.topics import TopicRequests, full_name
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.dispatch import CALLER_TOKEN
from ringfence.native import messages

T = TypeVar("T")


class AuditedTopics:
    """Handlers of one node: those of `TopicRequests`, audited."""

    def __init__(self, topics: TopicRequests, proposer: RaftProposer, audit: Audit) -> None:
        self._topics, self._proposer, self._audit = topics, proposer, audit

    async def create(self, request: messages.TopicCreate) -> messages.TopicInfo:
        async def work() -> tuple[messages.TopicInfo, int]:
            info = await self._topics.create(request)
            return info, self._index() if info.created else 0

        return await self._audited("topic create", request.name, work())

    async def truncate(self, request: messages.TopicTruncate) -> messages.TopicInfo:
        async def work() -> tuple[messages.TopicInfo, int]:
            return await self._topics.truncate(request), self._index()

        return await self._audited("topic truncate", request.name, work())

    async def delete(self, request: messages.TopicName) -> messages.TopicInfo:
        async def work() -> tuple[messages.TopicInfo, int]:
            return await self._topics.delete(request), self._index()

        return await self._audited("topic delete", request.name, work())

    async def add_schema(self, request: messages.SchemaAdd) -> messages.SchemaAdded:
        async def work() -> tuple[messages.SchemaAdded, int]:
            count_before = self._schema_count(request.name)
            answer = await self._topics.add_schema(request)
            return answer, self._index() if answer.schema_id >= count_before else 0

        return await self._audited("schema add", request.name, work())

    def _schema_count(self, name: str) -> int:
        topic = self._proposer.state.topic_named(full_name(name))
        return 0 if topic is None else len(topic.schemas)

    def _index(self) -> int:
        """The index of the entry, or a later one."""
        return self._proposer.applied.index

    async def _audited(self, action: str, name: str, work: Awaitable[tuple[T, int]]) -> T:
        who = CALLER_TOKEN.get()
        token = self._proposer.state.tokens.get(who)
        role = "" if token is None else str(token.role)
        return await self._audit.run_audited(Line(who, role, "", DATA, f"topic/{name}", action), work)
