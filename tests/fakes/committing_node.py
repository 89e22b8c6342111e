"""A node that decides commits, while another node owns the partition: its owner's answers are given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, NodeId, TopicId
from ringfence.control.model.results import ScopeBegun
from ringfence.control.model.scopes import BeginScope, CommitScope, StagedPart
from ringfence.control.model.state import EMPTY
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import INIT, create, entry

TOPIC, TOKEN, OTHER = TopicId(2), b"t" * 16, NodeId(7)


class CommittingNode:
    """A committing node whose partition another node owns; `answers` are what owners say, in turn."""

    def __init__(self, *, partitions: int = 1) -> None:
        self.state, self.index, self.here = EMPTY, 0, NodeId(1)
        self.newest: list[Callable[[], None]] = []
        self.answers: list[messages.StagedCount | str] = []
        self.asked: list[NodeId] = []
        self.do(INIT)
        self.do(create("public/default/t", partitions=partitions))
        for partition, assignment in self.state.topics[TOPIC].assignments.items():
            self.partition, self.epoch = partition, assignment.epoch
            self.own(OTHER, self.epoch)
        self.begun: ScopeBegun = self.do(BeginScope(name="s"))
        self.checks = StagedRowCounts(self, SimpleNamespace(), self)  # type: ignore[arg-type]

    def do(self, command: Command) -> Any:
        self.index += 1
        self.state, result = apply(self.state, entry(self.index, command))
        return result

    def own(self, node: NodeId, epoch: Epoch) -> None:
        topic = self.state.topics[TOPIC]
        known = topic.assignments[self.partition]
        assignment = replace(known, owner=replace(known.owner, node=node), epoch=epoch)
        topic = replace(topic, assignments={**topic.assignments, self.partition: assignment})
        self.state = replace(self.state, topics={TOPIC: topic})

    def commit(self, rows: int = 5, epoch: int = 1) -> CommitScope:
        return CommitScope(
            scope=self.begun.scope,
            driver=self.begun.driver,
            epoch=epoch,
            tokens=(TOKEN,),
            parts=tuple(StagedPart(TOPIC, one, rows) for one in self.state.topics[TOPIC].assignments),
        )

    def counted(self, rows: int, epoch: int = 0, *, is_published: bool = False) -> messages.StagedCount:
        return messages.StagedCount(rows=rows, upto=90, epoch=epoch or self.epoch, is_published=is_published)

    # ---- what the checks ask ------------------------------------------------------------------------

    async def read_barrier(self) -> None:
        if self.newest:
            self.newest.pop(0)()

    async def ask(self, node: NodeId, call: messages.CountStaged, timeout_s: float) -> messages.Reply:
        assert timeout_s > 0
        assert (call.tokens, call.parts) == ((TOKEN,), ((TOPIC, self.partition),))
        self.asked.append(node)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            raise RequestRefused(Code.INTERNAL, answer)
        return messages.StagedCounts(counts=(answer,))

    def checked(self, command: CommitScope) -> CommitScope:
        return asyncio.run(self.checks.verify(command))

    def refused(self, command: CommitScope) -> RequestRefused:
        with pytest.raises(RequestRefused) as caught:
            self.checked(command)
        return caught.value
