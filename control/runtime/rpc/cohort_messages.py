"""Messages of cohorts between nodes. They exist from level 3 of the cluster on.

Nodes tell the leader with TellSessions which members they hear. Owners of gates tell with TellProgress what
is drained and what has begun: the leader, for the metadata, and the owners of children, so that these open
without the leader.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from ringfence.control.runtime.rpc.message_base import CallBase, Id, Number, ReplyBase, Text

# Bytes of a list of sessions: 100,000 members at one node are below it.
SESSIONS_BYTES_MAX: Final = 1 << 20
# Words of one message: an entry of the log takes as many.
WORDS_MAX: Final = 4_096
# Cohorts of one question about figures, and gates of one answer: about 100 bytes each.
COHORTS_MAX: Final = 1_000
GATES_MAX: Final = 16_384
# Parked ranges of one question or answer: at most 350 bytes each, as many as an order of the engine takes.
PARKED_MAX: Final = 1_024
# Gates of one question about claims: an answer is below 100 KiB.
CLAIMS_MAX: Final = 256


class TellSessions(CallBase, frozen=True, kw_only=True, tag="tell_sessions"):
    """Tell the leader of `term` the sessions that this node hears, as a packed ascending list of u64.

    `sessions` None: the list that has this digest. `grace_ms` is the node's setting.
    """

    term: Number
    node: Number
    digest: Id
    grace_ms: Number
    sessions: Annotated[bytes, Meta(max_length=SESSIONS_BYTES_MAX)] | None = None


class SessionsHeard(ReplyBase, frozen=True, kw_only=True, tag="sessions_heard"):
    """`needs_list`: the leader does not have the list with this digest."""

    needs_list: bool = False


class DrainedTold(Struct, frozen=True, array_like=True):
    """The gate owner's word that a partition is drained. `log` has the gate, `epoch` is its owner's.

    `read`: a member settled rows of it.
    """

    cohort: Number
    incarnation: Number
    partition: Number
    read: bool
    log: Number
    epoch: Number


class BegunTold(Struct, frozen=True, array_like=True):
    """The gate owner's word that a partition has begun the incarnation."""

    cohort: Number
    incarnation: Number
    partition: Number
    epoch: Number


class TellProgress(CallBase, frozen=True, kw_only=True, tag="tell_progress"):
    """Tell what gates of this node have reached. What a receiver has no use for, it drops."""

    drained: Annotated[tuple[DrainedTold, ...], Meta(max_length=WORDS_MAX)] = ()
    begun: Annotated[tuple[BegunTold, ...], Meta(max_length=WORDS_MAX)] = ()


class SeeClaims(CallBase, frozen=True, kw_only=True, tag="see_claims"):
    """Ask the owner of these gates whether they are locked for this commit, which is not decided yet.

    `ranges`: (partition, hold, from, through).
    """

    scope: Number
    driver: Number
    epoch: Number
    topic: Number
    cohort: Number
    incarnation: Number
    session: Number
    token: Id
    ranges: Annotated[tuple[tuple[Number, Number, Number, Number], ...], Meta(max_length=CLAIMS_MAX)]


class ClaimSeen(Struct, frozen=True, array_like=True):
    """One gate. `epoch` is the owner epoch of the log that has it; `why` is not empty if it is not open."""

    epoch: int = 0
    is_there: bool = False
    why: Text = ""


class ClaimsSeen(ReplyBase, frozen=True, kw_only=True, tag="claims_seen"):
    """What is there, in the order of the request's ranges."""

    seen: tuple[ClaimSeen, ...]


class PresenceOf(CallBase, frozen=True, kw_only=True, tag="presence_of"):
    """Ask the leader whether the process of a session is there."""

    session: Number


class PresenceTold(ReplyBase, frozen=True, kw_only=True, tag="presence_told"):
    """`presence` is connected, absent or unknown."""

    presence: Text


class MembersOf(CallBase, frozen=True, kw_only=True, tag="members_of"):
    """Ask the leader which members of a cohort are connected."""

    cohort: Number


class MembersTold(ReplyBase, frozen=True, kw_only=True, tag="members_told"):
    """Sessions of the cohort that are connected. `is_leader`: False, the node cannot tell."""

    is_leader: bool
    connected: Annotated[tuple[Number, ...], Meta(max_length=16_384)] = ()


class GateFiguresOf(CallBase, frozen=True, kw_only=True, tag="gate_figures_of"):
    """Ask for figures of the gates of cohorts of one topic that this node owns."""

    topic: Number
    cohorts: Annotated[tuple[Number, ...], Meta(max_length=COHORTS_MAX)]


class GateFigures(Struct, frozen=True, array_like=True):
    """Figures of one gate.

    `settled`, `end` and `lag_ms` are -1 where they are not known. `lag_ms` is the age of the oldest row that
    is not settled. `paused` is why a queue leases no new rows.
    """

    cohort: Number
    partition: Number
    settled: int = -1
    end: int = -1
    lag_rows: int = 0
    lag_ms: int = -1
    holder: Number = 0
    hold: Number = 0
    parked: Number = 0
    parked_rows: Number = 0
    leased_rows: Number = 0
    paused: Text = ""


class GateFiguresTold(ReplyBase, frozen=True, kw_only=True, tag="gate_figures_told"):
    """Figures of the gates that this node owns and has opened; others are left out."""

    gates: Annotated[tuple[GateFigures, ...], Meta(max_length=GATES_MAX)] = ()


class ListParked(CallBase, frozen=True, kw_only=True, tag="list_parked"):
    """List parked ranges in partitions whose gates this node owns, those after (partition, number)."""

    topic: Number
    cohort: Number
    partitions: Annotated[tuple[Number, ...], Meta(max_length=GATES_MAX)]
    after: tuple[Number, Number] = (0, 0)
    count: Annotated[int, Meta(ge=1, le=PARKED_MAX)]


class ParkedLine(Struct, frozen=True, array_like=True):
    """A parked range. `scope`: an export was begun under it; 0: none. `gone`: rows that the log lacks now."""

    partition: int
    number: int
    first: int
    rows: int
    count: int
    reason: Text
    time_ms: int
    scope: int
    gone: int


class ParkedTold(ReplyBase, frozen=True, kw_only=True, tag="parked_told"):
    """Parked ranges, ascending. `unknown`: partitions whose gates are not open here."""

    parked: Annotated[tuple[ParkedLine, ...], Meta(max_length=PARKED_MAX)] = ()
    more: bool = False
    unknown: Annotated[tuple[Number, ...], Meta(max_length=GATES_MAX)] = ()


class SettleParked(CallBase, frozen=True, kw_only=True, tag="settle_parked"):
    """Retry, discard, begin or exported, of parked ranges (partition, number) whose gates this node owns."""

    topic: Number
    cohort: Number
    action: Text
    items: Annotated[tuple[tuple[Number, Number], ...], Meta(max_length=PARKED_MAX)]
    scope: Number = 0
    force: bool = False


class ParkedReplies(ReplyBase, frozen=True, kw_only=True, tag="parked_replies"):
    """What became of each range: (partition, number, word). A range that is left out is not known."""

    replies: Annotated[tuple[tuple[Number, Number, Text], ...], Meta(max_length=PARKED_MAX)] = ()


CohortCall = (
    TellSessions
    | TellProgress
    | PresenceOf
    | MembersOf
    | GateFiguresOf
    | SeeClaims
    | ListParked
    | SettleParked
)
CohortReply = (
    SessionsHeard | PresenceTold | MembersTold | GateFiguresTold | ClaimsSeen | ParkedTold | ParkedReplies
)
