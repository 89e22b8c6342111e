"""Export one parked range exactly once. Pure: events in, calls out; `exporter.py` carries them out.

    BeginScope --> StageRows --> Take --> Commit --> Mark
        |                         |         |          ^
        |  committed before ------+---------+----------+
        +-- closed by an operator |         +-- no answer: BeginScope says what became of it
                                  +-- not parked, or under another scope: DiscardRows

The scope's name follows from the range, so all who export it meet in one scope, and its COMMIT is the copy.

Rules:
    XP1  Commit is sent only after the owner has recorded that the export has begun: from then on the rows
         cannot be put back.
    XP2  Mark is sent only when the copy is committed.
    XP3  Who is told that the scope is fenced, closed, or another one than the owner knows, copies nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ringfence.native.wire import SCOPE_EPOCH_MAX

# How often an export begins again after a COMMIT without an answer.
TRIES_MAX: Final = 3


def scope_of(cohort: int, partition: int, number: int) -> str:
    """The name of the scope in which a parked range is exported."""
    return f"parked/{cohort}/{partition}/{number}"


# ---- calls ------------------------------------------------------------------------------------------------


class BeginScope(NamedTuple):
    """Begin the scope, which fences who began it before."""

    name: str


class StageRows(NamedTuple):
    """Copy the rows, invisible to readers."""

    epoch: int


class Take(NamedTuple):
    """Let the owner record that the export has begun. `force`: also where it knows another scope."""

    scope: int
    force: bool


class Commit(NamedTuple):
    epoch: int


class Mark(NamedTuple):
    """Let the owner record that the range is exported."""

    scope: int


class DiscardRows(NamedTuple):
    """Remove what is staged."""

    epoch: int


Call = BeginScope | StageRows | Take | Commit | Mark | DiscardRows

# ---- events -----------------------------------------------------------------------------------------------


class ScopeBegun(NamedTuple):
    """Epochs up to `committed` are in the log; epochs up to `decided` are used."""

    scope: int
    committed: int
    decided: int


class RowsStaged(NamedTuple):
    """All rows that the log still has are on disk."""


class TakeAnswer(Enum):
    TAKEN = "taken"
    # It was put back, discarded or exported.
    NOT_PARKED = "not parked"
    # The owner knows an export under another scope, or does not answer.
    NOT_KNOWN = "not known"


class CommitAnswer(Enum):
    COMMITTED = "committed"
    # Another exporter has begun the scope.
    FENCED = "fenced"
    # No answer, or a refusal that does not tell whether an earlier try was executed.
    NOT_KNOWN = "not known"


class Marked(NamedTuple):
    """The owner has it."""


class RowsDiscarded(NamedTuple):
    """Or nothing answered: the next COMMIT of the scope discards them."""


class Fenced(NamedTuple):
    """Another exporter began the scope while rows were staged."""


class Failed(NamedTuple):
    """The rows could not be copied, or a call was refused."""

    error: Exception


Event = ScopeBegun | RowsStaged | TakeAnswer | CommitAnswer | Marked | RowsDiscarded | Fenced | Failed


class Ending(Enum):
    EXPORTED = "exported"
    # An export before had copied it; only the mark was missing.
    MARKED = "marked"
    NOT_PARKED = "not parked"
    # Another exporter works on it.
    ELSEWHERE = "elsewhere"
    # It is not known whether an export before was committed.
    NOT_KNOWN = "not known"
    # `retry` or `discard` ended the export, and is to be repeated.
    CLOSED = "closed"
    FAILED = "failed"


@dataclass(slots=True)
class Export:
    """One export of one parked range.

    Attributes:
        name: of the scope.
        known_scope: the scope of the export that the list names; 0: it names none.
        again: copy also where it is not known whether an export before was committed.
        ending: how it ended; None: it goes on.
        error: with FAILED.
    """

    name: str
    known_scope: int = 0
    again: bool = False
    ending: Ending | None = None
    error: Exception | None = None
    scope: int = 0
    epoch: int = 0
    tries: int = 0
    is_staged: bool = False
    _after: Ending = Ending.FAILED

    def begin(self) -> Call:
        """The first call, and the one after a COMMIT without an answer."""
        self.tries += 1
        self.is_staged = False
        return BeginScope(self.name)

    def event(self, call: Call, event: Event) -> Call | None:
        """What a call came to. Returns the next one; None: the export has ended."""
        if isinstance(event, Failed):
            return self._failed(call, event)
        match call, event:
            case BeginScope(), ScopeBegun():
                return self._begun(event)
            case StageRows(), RowsStaged():
                return Take(self.scope, self.again)
            case StageRows(), Fenced():
                return self._end(Ending.ELSEWHERE)
            case Take(), TakeAnswer():
                return self._taken(event)
            case Commit(), CommitAnswer():
                return self._committed(event)
            case Mark(), Marked():
                return self._end(Ending.EXPORTED if self.is_staged else Ending.MARKED)
            case DiscardRows(), RowsDiscarded():
                return self._end(self._after)
            case _:
                raise AssertionError((call, event))

    def _begun(self, begun: ScopeBegun) -> Call | None:
        self.scope, self.epoch = begun.scope, begun.decided + 1
        if begun.committed:
            return Mark(self.scope)
        if begun.decided >= SCOPE_EPOCH_MAX:
            return self._end(Ending.CLOSED)
        if self.known_scope not in {0, self.scope} and not self.again:
            return self._end(Ending.NOT_KNOWN)
        self.is_staged = True
        return StageRows(self.epoch)

    def _taken(self, answer: TakeAnswer) -> Call | None:
        if answer is TakeAnswer.TAKEN:
            self.known_scope = self.scope
            return Commit(self.epoch)
        self._after = Ending.NOT_PARKED if answer is TakeAnswer.NOT_PARKED else Ending.NOT_KNOWN
        return DiscardRows(self.epoch)

    def _committed(self, answer: CommitAnswer) -> Call | None:
        if answer is CommitAnswer.COMMITTED:
            return Mark(self.scope)
        if answer is CommitAnswer.FENCED:
            return self._end(Ending.ELSEWHERE)
        if self.tries < TRIES_MAX:
            return self.begin()
        return self._end(Ending.NOT_KNOWN)

    def _failed(self, call: Call, event: Failed) -> Call | None:
        self.error = event.error
        if self.is_staged and not isinstance(call, Mark | DiscardRows):
            self._after = Ending.FAILED
            return DiscardRows(self.epoch)
        return self._end(Ending.FAILED)

    def _end(self, ending: Ending) -> Call | None:
        self.ending = ending
        return None
