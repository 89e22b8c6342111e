"""A metadata log with one topic, for commands of scopes one after the other."""

from __future__ import annotations

from typing import Any

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Index, PartitionId, TopicId
from ringfence.control.model.results import Refused, ScopeBegun
from ringfence.control.model.scopes import BeginScope, CommitScope, ConfirmPublished, StagedPart
from ringfence.control.model.state import EMPTY
from ringfence.control.state_machines.metadata.scopes import is_own
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.fakes.metadata_commands import INIT, create, entry

TOPIC, TOKEN = TopicId(2), b"t" * 16


class ScopeLog:
    """Entries one after the other."""

    def __init__(self) -> None:
        self.state, self.index = EMPTY, 0
        self.do(INIT)
        self.do(create("public/default/t"))
        self.partition = PartitionId(self.state.topics[TOPIC].layout.partitions[0].partition)

    def do(self, command: Command) -> Any:
        self.index += 1
        self.state, result = apply(self.state, entry(self.index, command))
        return result

    def refused(self, command: Command) -> Refused:
        before = self.state
        result = self.do(command)
        assert isinstance(result, Refused), result
        assert self.state is before, "a refusal changes nothing (I15)"
        return result

    def begun(
        self, name: str = "s", instance: bytes = b"", *, one_off: bool = False, after: Index | None = None
    ) -> ScopeBegun:
        result = self.do(BeginScope(name=name, instance=instance, one_off=one_off, after=after))
        assert isinstance(result, ScopeBegun), result
        return result

    def commit(self, begun: ScopeBegun, epoch: int, rows: int = 5) -> CommitScope:
        part = StagedPart(TOPIC, self.partition, rows)
        return CommitScope(
            scope=begun.scope, driver=begun.driver, epoch=epoch, tokens=(TOKEN,), parts=(part,), keep=True
        )

    def is_own(self, command: CommitScope) -> bool | None:
        """As an answer tells it that says "already"."""
        return is_own(self.state.scopes[command.scope], command)

    def confirm(self, begun: ScopeBegun, epoch: int) -> ConfirmPublished:
        return ConfirmPublished(scope=begun.scope, epoch=epoch, parts=((TOPIC, self.partition),))
