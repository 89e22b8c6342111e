"""Requests by name at a node that is behind: the name is another topic's by now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ringfence.control.model.commands import AddSchema, Command, DeleteTopic, TruncateTopic
from ringfence.control.model.ids import TopicId
from ringfence.control.model.state import EMPTY
from ringfence.control.runtime.handlers.commands import Commands
from ringfence.control.runtime.handlers.completion import Completion
from ringfence.control.runtime.handlers.topic_changes import TopicChanges
from ringfence.control.runtime.handlers.topic_plans import TopicPlans
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native import messages
from tests.fakes.metadata_commands import INIT, create, entry

OLD, NEW = TopicId(2), TopicId(4)
WIDER = (
    pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("more", pa.string())])
    .serialize()
    .to_pybytes()
)


class Lagging:
    """A proposer whose state holds a topic that the cluster has deleted and created anew."""

    def __init__(self) -> None:
        state, _ = apply(EMPTY, entry(1, INIT))
        self.state, _ = apply(state, entry(2, create()))
        now, _ = apply(self.state, entry(3, DeleteTopic(topic=OLD)))
        self._now, _ = apply(now, entry(4, create()))
        self.proposed: list[Command] = []

    async def read_barrier(self) -> None:
        self.state = self._now

    async def propose(self, command: Command, **__: Any) -> Any:
        self.proposed.append(command)
        result = apply(self._now, entry(5, command))[1]
        return SimpleNamespace(index=5, result=result)


async def nothing(*_: object, **__: object) -> Any:
    return []


ASKED: dict[type[Command], Callable[[TopicChanges, str], Coroutine[Any, Any, Any]]] = {
    DeleteTopic: lambda changes, name: changes.delete(messages.TopicName(name=name)),
    TruncateTopic: lambda changes, name: changes.truncate(messages.TopicTruncate(name=name, before_offset=0)),
    AddSchema: lambda changes, name: changes.add_schema(messages.SchemaAdd(name=name, schema=WIDER)),
}


@pytest.mark.parametrize("kind", ASKED, ids=lambda kind: kind.__name__)
def test_what_is_asked_by_name_reaches_the_topic_that_has_it_now(kind: type[Command]) -> None:
    """Found by a simulated cluster: it was answered that no topic has the name."""
    lagging: Any = Lagging()
    others: Any = SimpleNamespace(await_execution=nothing, here=1, hosted=nothing)
    executor: Any = SimpleNamespace(until_executed=nothing)
    topics: Any = TopicPlans(lagging, executor, None, others)  # type: ignore[arg-type]
    topics.info = nothing
    hosted = {(NEW, part): {"end_offset": 9} for part in lagging._now.topics[NEW].assignments}
    topics.hosted = lambda *_: asyncio.sleep(0, hosted)
    commands = Commands(lagging, SimpleNamespace(add=nothing))  # type: ignore[arg-type]
    changes = TopicChanges(lagging, topics, commands, Completion(lagging, executor, others, topics))
    asyncio.run(ASKED[kind](changes, "a"))
    assert [command.topic for command in lagging.proposed] == [NEW]
