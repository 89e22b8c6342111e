"""propose(command) -> index and result: what the rest of the control plane sees of consensus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import SessionId
from ringfence.control.model.results import Result
from ringfence.control.model.state import MetadataState
from ringfence.control.store.journal import Position

WAITING_MAX: Final = 4_096
"""Proposals that may wait; beyond it clients are told to come back. A few MB at the most."""
NO_SESSION: Final = SessionId(0)


@dataclass(frozen=True, slots=True)
class Applied:
    """A command that took effect, at `index`."""

    index: int
    result: Result


class Proposer(Protocol):
    """`RaftProposer` in a node, something simpler in tests."""

    @property
    def state(self) -> MetadataState: ...
    @property
    def applied(self) -> Position: ...
    async def propose(self, command: Command) -> Applied: ...
