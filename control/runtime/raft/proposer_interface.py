"""The interface of consensus for the rest of the control plane: propose(command) -> index and result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import SessionId
from ringfence.control.model.results import Result
from ringfence.control.model.state import MetadataState
from ringfence.control.store.journal import LogPosition

# Queued commands, a few MB at most; further ones are refused as OVERLOADED.
WAITING_MAX: Final = 4_096
NO_SESSION: Final = SessionId(0)


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of a command: the index of its entry, and its result."""

    index: int
    result: Result


class Proposer(Protocol):
    """`RaftProposer` in a node; a simpler class in tests."""

    @property
    def state(self) -> MetadataState: ...
    @property
    def applied(self) -> LogPosition: ...
    async def propose(self, command: Command) -> Applied: ...
