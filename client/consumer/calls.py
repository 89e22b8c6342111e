"""What a member asks nodes for, and what they reply. Pure; `bodies.py` has the bytes.

Each call has a number of its own. It ends once: with a reply, a refusal, or without an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from ringfence.consumer.queue_calls import Leased, QueueFetch, QueueSettle, QueueSettled, RowsParked
from ringfence.consumer.values import Point

# The node at the addresses of the application, whichever it is.
HOME: Final = 0

# ---- calls ------------------------------------------------------------------------------------------------


class Join(NamedTuple):
    """Register, or ask for the plan. `after`: the session that this one replaces.

    `after_partition`: the next page of the plan begins there.
    """

    number: int
    after: int
    after_partition: int


class Leave(NamedTuple):
    number: int
    session: int


class Attach(NamedTuple):
    """Bind the connection to a node to the session."""

    number: int
    node: int
    session: int
    proof: bytes | None


class Fetch(NamedTuple):
    """Rows of a partition, from the owner of its gate. `offset` None: where the cohort stands."""

    number: int
    node: int
    partition: int
    hold: int
    reopen: bool
    offset: int | None
    epoch: int
    generation: int
    bytes_max: int
    poll_s: float


class Read(NamedTuple):
    """Rows of a sealed partition, from its own owner."""

    number: int
    partition: int
    offset: int
    epoch: int
    bytes_max: int


class Settlement(NamedTuple):
    """An acknowledgement of the rows before `through`; `release`: it ends the hold."""

    partition: int
    hold: int
    through: Point
    release: bool


class Settle(NamedTuple):
    number: int
    node: int
    entries: tuple[Settlement, ...]


class ClaimedRange(NamedTuple):
    """Rows of a partition from `first` up to `through`, given under a hold, that a COMMIT settles."""

    partition: int
    hold: int
    first: int
    through: Point


class Claim(NamedTuple):
    """Lock gates for a COMMIT. `identity`: of the commit, as STAGE has it."""

    number: int
    node: int
    identity: bytes
    ranges: tuple[ClaimedRange, ...]


class Beat(NamedTuple):
    """Renew the leases of (partition, hold)."""

    number: int
    node: int
    holds: tuple[tuple[int, int], ...]


class Refresh(NamedTuple):
    """Fetch the routing table, at least in this version; it comes as an event of its own."""

    version: int


class Ring(NamedTuple):
    """Wake the application: there is something to take."""


class Note(NamedTuple):
    """Log a warning."""

    text: str


# At the node that they name, on the connection that is bound to the session.
NodeCall = Attach | Fetch | Settle | Claim | Beat | QueueFetch | QueueSettle
Call = Join | Leave | Read | NodeCall
Effect = Call | Refresh | Ring | Note | RowsParked

# ---- replies ----------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """The slice of a member. `more`: pages follow after the last partition."""

    session: int
    generation: int
    incarnation: int
    partitions: tuple[int, ...]
    more: bool = False


class Joined(NamedTuple):
    """`lease_s`: of a partition; `rows_lease_s`: of rows of a QUEUE."""

    plan: Plan
    proof: bytes | None = None
    lease_s: float = 10.0
    rows_lease_s: float = 30.0


class Left(NamedTuple):
    pass


class Attached(NamedTuple):
    generation: int
    lease_s: float


@dataclass(frozen=True, slots=True)
class Fetched:
    """Rows, or none until the deadline.

    `start` is where the answer begins: the first wanted row. `end` is after its last row, `epoch` that of the
    last row, or of the row before `start`. `sealed_end` is set if the rows are at the partition's own owner:
    the offset after its last row. `body` is what the application's side decodes.
    """

    hold: int
    start: int
    end: int
    epoch: int
    sealed_end: int | None = None
    is_blocked: bool = False
    mark: int = 0
    bytes: int = 0
    body: Any = None


class NotTaken(NamedTuple):
    """A settlement that a node did not take; `hold` is the gate's number now."""

    partition: int
    hold: int
    why: Why
    error: Exception | None


class Settled(NamedTuple):
    not_taken: tuple[NotTaken, ...] = ()


class Renewed(NamedTuple):
    """Leases were renewed, but for these partitions."""

    generation: int
    lease_s: float
    without: frozenset[int]


Reply = Joined | Left | Attached | Fetched | Settled | Renewed | Leased | QueueSettled


class Why(Enum):
    """The kinds of refusals by what a member does about them."""

    # Another member has the partition, or the hold is over.
    NOT_ASSIGNED = "not assigned"
    # The connection is not attached, or the session is over.
    NOT_ATTACHED = "not attached"
    # A newer process has the member's name.
    REPLACED = "replaced"
    # A member has this name.
    NAME_TAKEN = "name taken"
    # Rows are gone.
    TRUNCATED = "truncated"
    # CHECKPOINT: the cohort is further than the application's store.
    POSITION = "position"
    # A newer table tells the owner.
    REDIRECT = "redirect"
    # Later.
    RETRY = "retry"
    # Never.
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused call. `hold`, `generation`: of the gate and of the node's plan. `start`: the log start."""

    why: Why
    error: Exception | None = None
    hold: int = 0
    generation: int = 0
    start: int = 0
    version: int = 0
    retry_after_s: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)
