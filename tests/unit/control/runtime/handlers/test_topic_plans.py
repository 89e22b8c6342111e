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
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.runtime.handlers import topic_plans
from ringfence.control.runtime.handlers.commands import Commands
from ringfence.control.runtime.handlers.completion import Completion
from ringfence.control.runtime.handlers.token_prefixes import restrict_to_prefix
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
    DeleteTopic: lambda changes, name: changes.delete(messages.TopicDelete(name=name)),
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


# ---- the cluster without a topic -------------------------------------------------------------------------


def cluster_plans(*names: str) -> tuple[TopicPlans, MetadataState]:
    state, _ = apply(EMPTY, entry(1, INIT))
    for index, name in enumerate(names, 2):
        state, _ = apply(state, entry(index, create(name=name)))
    proposer: Any = SimpleNamespace(state=state, applied=SimpleNamespace(index=len(names) + 1))
    unused: Any = None
    return TopicPlans(proposer, unused, unused, unused), state


def listed(plans: TopicPlans, request: messages.TopicList) -> messages.Topics:
    return asyncio.run(plans.list_topics(request))


def test_a_cluster_is_told_with_its_nodes_and_the_names_of_its_topics() -> None:
    plans, state = cluster_plans("a/b/one", "a/b/two", "c/d/three")
    found = listed(plans, messages.TopicList(cluster=True))
    assert (found.topics, found.more, found.generation) == ([], False, 4)
    assert found.names == [(state.names[name], name) for name in sorted(state.names)]
    assert found.nodes == [
        messages.NodeEntry(node=number, addresses=list(node.addresses))
        for number, node in state.nodes.items()
    ]


def test_a_token_with_a_prefix_is_told_its_own_topics() -> None:
    plans, state = cluster_plans("a/b/one", "c/d/three")
    request = restrict_to_prefix(lambda: state, "a/", messages.TopicList(cluster=True))
    assert isinstance(request, messages.TopicList)
    found = listed(plans, request)
    assert found.names == [(state.names["a/b/one"], "a/b/one")]


def test_names_above_the_size_of_an_answer_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    plans, state = cluster_plans(*(f"a/b/t{number}" for number in range(9)))
    nodes = listed(plans, messages.TopicList(cluster=True)).nodes
    assert isinstance(nodes, list)
    room = len(messages.encode(messages.Topics(topics=[], nodes=nodes, names=[], generation=1)))
    monkeypatch.setattr(topic_plans, "LIST_BYTES_MAX", room + 3 * 20)
    found, pages = list[tuple[int, str]](), list[int]()
    while True:
        page = listed(plans, messages.TopicList(cluster=True, after=found[-1][1] if found else ""))
        assert isinstance(page.names, list)
        assert len(messages.encode(page)) <= room + 3 * 20 + 64
        found += page.names
        pages.append(len(page.names))
        if not page.more:
            break
    assert len(pages) > 1
    assert found == [(state.names[name], name) for name in sorted(state.names)]
