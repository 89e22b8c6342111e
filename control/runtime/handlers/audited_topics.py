"""Changes of topics that clients ask for at a data address: the same work, and a line each in the audit log.

What changes nothing (a topic or schema that is there already) leaves none: producers ask so at each start.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from ringfence.control.runtime.handlers.audit import DATA, Audit, Line
from ringfence.control.runtime.handlers.topics import TopicRequests, full_name
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.dispatch import ASKED_BY
from ringfence.native import messages

T = TypeVar("T")


class AuditedTopics:
    """Handlers of one node, as those of `TopicRequests`."""

    def __init__(self, topics: TopicRequests, proposer: RaftProposer, audit: Audit) -> None:
        self._topics, self._proposer, self._audit = topics, proposer, audit

    async def create(self, request: messages.TopicCreate) -> messages.TopicInfo:
        async def work() -> tuple[messages.TopicInfo, int]:
            made = await self._topics.create(request)
            return made, self._index() if made.created else 0

        return await self._kept("topic create", request.name, work())

    async def truncate(self, request: messages.TopicTruncate) -> messages.TopicInfo:
        async def work() -> tuple[messages.TopicInfo, int]:
            return await self._topics.truncate(request), self._index()

        return await self._kept("topic truncate", request.name, work())

    async def delete(self, request: messages.TopicName) -> messages.TopicInfo:
        async def work() -> tuple[messages.TopicInfo, int]:
            return await self._topics.delete(request), self._index()

        return await self._kept("topic delete", request.name, work())

    async def add_schema(self, request: messages.SchemaAdd) -> messages.SchemaAdded:
        async def work() -> tuple[messages.SchemaAdded, int]:
            before = self._schemas(request.name)
            added = await self._topics.add_schema(request)
            return added, self._index() if added.schema_id >= before else 0

        return await self._kept("schema add", request.name, work())

    def _schemas(self, name: str) -> int:
        known = self._proposer.state.topic_named(full_name(name))
        return 0 if known is None else len(known.schemas)

    def _index(self) -> int:
        """Of the entry, or a later one."""
        return self._proposer.applied.index

    async def _kept(self, action: str, name: str, work: Awaitable[tuple[T, int]]) -> T:
        who = ASKED_BY.get()
        token = self._proposer.state.tokens.get(who)
        role = "" if token is None else str(token.role)
        return await self._audit.kept(Line(who, role, "", DATA, f"topic/{name}", action), work)
