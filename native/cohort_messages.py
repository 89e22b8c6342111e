"""MessagePack bodies of cohorts (consumer groups): members, slices, settings, positions, parked rows.

ATTACH, MEMBER_BEAT, ACKNOWLEDGE and FETCH of a member have binary bodies. `topic` is the name of the topic.
Modes are stream, queue and checkpoint; starts are earliest and latest.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from ringfence.native.messages import Message, prepare_messages


class CohortSettings(Message):
    """`handover_ms`: a holder that lost its partition has so long to acknowledge.

    Of a queue, `lease_ms` is the lease of a range of rows, and a row is parked after `limit` failed
    deliveries; 0: never.
    """

    handover_ms: int = 60_000
    lease_ms: int = 30_000
    limit: int = 5


# ---- members ----------------------------------------------------------------------------------------


class Join(Message):
    """JOIN: register as a member, or ask for the slice again.

    Attributes:
        instance: 16 random bytes of one consumer object. The same instance is the same session.
        after: the session that this member replaces under its name; 0: none.
        start: where a cohort begins that this request creates.
        settings: of a cohort that this request creates; absent: defaults, or those that the cohort has.
        after_partition: pages of a slice; slices of partitions with greater ids are answered.
    """

    topic: str
    cohort: str
    mode: str
    member: str
    instance: bytes
    after: int = 0
    start: str = "earliest"
    settings: CohortSettings | UnsetType = UNSET
    after_partition: int = 0


class Slice(Message):
    """One partition of a member's slice."""

    partition: int
    lo: int
    hi: int
    name: str


class Joined(Message):
    """Answer to JOIN.

    Attributes:
        version: of the topic's layout in which the slices are.
        generation: of the plan. It ascends; slices of a lower one are old.
        slices: in the order of their ids, without drained partitions.
        cohort: id of the cohort; ATTACH names it.
        lease_ms: lease of a holder, counted from the request that extends it.
        home: the node that answers.
        proof: of the session, for ATTACH. Absent where the cluster has no tokens.
        more: further slices; ask with the last partition as `after_partition`.
        not_begun: partitions in which a cohort at the latest rows has not begun yet. Their owners begin
            before they take another row.
    """

    version: int
    generation: int
    slices: list[Slice]
    cohort: int
    session: int
    incarnation: int
    lease_ms: int
    home: int
    settings: CohortSettings
    proof: bytes | UnsetType = UNSET
    more: bool = False
    not_begun: list[int] = msgspec.field(default_factory=list)


class NameTaken(Message):
    """`details` of JOIN's refusal `conflict` where another session has the member's name.

    `presence`: whether the process of that session is there: connected, absent, or unknown.
    """

    session: int
    presence: str


class Leave(Message):
    """LEAVE: `session` is the one that ends; a member that has joined again stays."""

    topic: str
    cohort: str
    member: str
    session: int


class Left(Message):
    """Answer to LEAVE and COHORT_EVICT. `removed`: false where no such session was registered any more."""

    removed: bool


class Assign(Message):
    """ASSIGN: the member's whole slice under a generation that the node has applied.

    `cohort` is the id. `more`: the slice is larger; ask for it with JOIN.
    """

    version: int
    cohort: int
    generation: int
    incarnation: int
    session: int
    slices: list[Slice]
    more: bool = False


# ---- cohorts ----------------------------------------------------------------------------------------


class CohortCreate(Message):
    """COHORT_CREATE: the cohort may exist with this mode and these settings."""

    topic: str
    cohort: str
    mode: str
    start: str = "earliest"
    settings: CohortSettings = CohortSettings()
    key: str = ""  # makes a repeat the same request


class CohortEntry(Message):
    """A cohort as the metadata has it. Answer to COHORT_CREATE and COHORT_CHANGE.

    Attributes:
        id: number of the cohort. A cohort that is deleted and created again has another one.
        version: of the settings, for COHORT_CHANGE.
        start: earliest, latest, or positions after a seek to positions or a time.
        generation: of the plan; 0 of a queue.
        not_begun: partitions that have not begun the incarnation.
        members: their number.
        idle_since_ms: when the last member went (Unix ms); 0 while there are members.
        created: by this request.
    """

    topic: str
    cohort: str
    id: int
    mode: str
    start: str
    settings: CohortSettings
    version: int
    incarnation: int
    generation: int
    not_begun: list[int] = msgspec.field(default_factory=list)
    members: int = 0
    idle_since_ms: int = 0
    created: bool = False


class CohortChange(Message):
    """COHORT_CHANGE: declare all settings. `version` is the one that is replaced."""

    topic: str
    cohort: str
    mode: str
    settings: CohortSettings
    version: int
    key: str = ""


class CohortDelete(Message):
    """COHORT_DELETE: its members end. `version` 0: whatever its settings are."""

    topic: str
    cohort: str
    version: int = 0
    missing_ok: bool = False
    key: str = ""


class CohortDeleted(Message):
    """Answer to COHORT_DELETE. `deleted`: false where there was none, with `missing_ok`."""

    deleted: bool


class CohortEvict(Message):
    """COHORT_EVICT: remove a member; it may join again."""

    topic: str
    cohort: str
    member: str


class CohortList(Message):
    """COHORT_LIST: cohorts of one topic; absent: of all. `after`: the last (topic, cohort) of a page."""

    topic: str | UnsetType = UNSET
    after: tuple[str, str] | UnsetType = UNSET


class CohortSummary(Message):
    """A cohort with its figures. What owners did not answer is in `unknown`, and not in the sums.

    Attributes:
        lag_rows: rows that are not settled. Of a queue: rows available or on lease.
        lag_ms: age of the oldest row that is not settled; absent where it is not known.
        parked_rows: rows that are parked.
        parked: number of parked ranges.
        unassigned: partitions that should be read and are in no slice.
        blocked: partitions that wait for their parents or for a seek.
        paused: partitions whose queue has too many ranges.
        leased_rows: rows of a queue that members work on.
        unknown: partitions whose owners did not answer.
    """

    entry: CohortEntry
    lag_rows: int = 0
    lag_ms: int | UnsetType = UNSET
    parked_rows: int = 0
    parked: int = 0
    unassigned: int = 0
    blocked: int = 0
    paused: int = 0
    leased_rows: int = 0
    unknown: list[int] = msgspec.field(default_factory=list)


class CohortListed(Message):
    """Answer to COHORT_LIST."""

    cohorts: list[CohortSummary]
    more: bool = False


class CohortDescribe(Message):
    """COHORT_DESCRIBE: partitions with ids above `after`; without `partitions` only the summary."""

    topic: str
    cohort: str
    partitions: bool = True
    after: int = 0


class CohortMember(Message):
    """A registered member. `state`: connected, grace, or unknown where no leader answers."""

    member: str
    session: int
    state: str
    home: int
    since_ms: int
    partitions: int


class CohortPartition(Message):
    """Where a cohort is in one partition.

    Attributes:
        state: ACTIVE or SEALED.
        gate: the node that says who reads the partition: its owner, of a SEALED one its heir's owner.
        member: who has it by the plan; empty: nobody.
        settled: rows below it are done; absent where the owner did not answer, or the cohort has not begun.
        end: the offset after the last row.
        holder: session that holds the gate; 0: nobody. `fencing_token` is the number of its hold.
        waits_for: parents that are not drained. `sought`: a seek is not over.
        drained: the cohort is through this SEALED partition.
        paused: why a queue leases no new rows; empty: it does.
        missed: pruned parents whose rows the cohort has not read, as (partition, end).
        reason: why the figures are not known; empty: they are.
    """

    partition: int
    name: str
    state: str
    gate: int
    member: str = ""
    settled: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    lag_rows: int | UnsetType = UNSET
    lag_ms: int | UnsetType = UNSET
    holder: int = 0
    fencing_token: int = 0
    waits_for: list[int] = msgspec.field(default_factory=list)
    sought: bool = False
    drained: bool = False
    parked: int = 0
    parked_rows: int = 0
    leased_rows: int = 0
    paused: str = ""
    missed: list[tuple[int, int]] = msgspec.field(default_factory=list)
    reason: str = ""


class CohortDescribed(Message):
    """Answer to COHORT_DESCRIBE. `more`: partitions with greater ids remain."""

    summary: CohortSummary
    members: list[CohortMember] = msgspec.field(default_factory=list)
    partitions: list[CohortPartition] = msgspec.field(default_factory=list)
    more: bool = False


class CohortSeek(Message):
    """COHORT_SEEK: begin again, cohort-wide.

    Attributes:
        to: earliest, latest or positions. A client resolves a time to positions by OFFSET_FOR_TIME at every
            partition, and says latest for the rest.
        positions: of `positions`: (partition, next offset, owner epoch of the row below it; 0: not known).
        rest: where partitions begin that no position says anything of; absent: they are refused.
        incarnation: the one that is replaced; 0: whichever there is.
        forget_parked: parked ranges are given up; without it they are a conflict.
        wait: answer when all partitions have begun, or at the deadline.
    """

    topic: str
    cohort: str
    to: str
    positions: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    rest: str | UnsetType = UNSET
    incarnation: int = 0
    forget_parked: bool = False
    wait: bool = False
    key: str = ""


class CohortSought(Message):
    """Answer to COHORT_SEEK. `waiting`: partitions that have not begun yet."""

    incarnation: int
    generation: int
    waiting: list[int] = msgspec.field(default_factory=list)


# ---- parked ranges ------------------------------------------------------------------------------------


class CohortParked(Message):
    """COHORT_PARKED: list, retry, discard, begin or exported.

    Attributes:
        action: `begin` says that an export under `scope` began, `exported` that it was committed.
        items: (partition, number); absent: all. begin and exported name one.
        force: also where it is not known whether an export before was committed.
        after: pages of a list: (partition, number) of the last one.
    """

    topic: str
    cohort: str
    action: str
    items: list[tuple[int, int]] | UnsetType = UNSET
    scope: int = 0
    force: bool = False
    after: tuple[int, int] | UnsetType = UNSET


class ParkedRange(Message, array_like=True):
    """A range of rows that is not delivered.

    `count` deliveries failed, the last one for `reason`, at `time_ms`. `state`: parked or exporting, under
    `scope`. `gone`: rows of it that the log does not have any more.
    """

    partition: int
    number: int
    first: int
    rows: int
    count: int
    reason: str
    time_ms: int
    state: str
    gone: int = 0
    scope: int = 0


class ParkedListed(Message):
    """Answer to `list`. `unknown`: partitions whose owners did not answer."""

    parked: list[ParkedRange]
    more: bool = False
    unknown: list[int] = msgspec.field(default_factory=list)


class ParkedSettled(Message):
    """Answer to the other actions: (partition, number) of items with which something else is so.

    Attributes:
        done: number of ranges with which the action was carried out.
        not_parked: they are not parked any more.
        gone: carried out, but rows of it are not in the log any more.
        exported: an export was committed before.
        exporting: an export is under way.
        unknown: it is not known whether an export was committed, or the owner did not answer.
    """

    done: int
    not_parked: list[tuple[int, int]] = msgspec.field(default_factory=list)
    gone: list[tuple[int, int]] = msgspec.field(default_factory=list)
    exported: list[tuple[int, int]] = msgspec.field(default_factory=list)
    exporting: list[tuple[int, int]] = msgspec.field(default_factory=list)
    unknown: list[tuple[int, int]] = msgspec.field(default_factory=list)


# ---- details of refusals ------------------------------------------------------------------------------


class MissedRows(Message):
    """`details` of the refusal `truncated` to FETCH of a member: parents that were pruned unread.

    `pruned`: (partition, end offset). A member that goes on acknowledges through `begin`.
    """

    pruned: list[tuple[int, int]]
    begin: int


class StorePosition(Message):
    """`details` of the refusal `conflict` to FETCH of a checkpoint member that asked where the cohort stands.

    `settled`: absent if nobody settled anything. `parents`: (partition, end offset, how): 1 read, 2 pruned
    and not read.
    """

    begin: int
    settled: int | UnsetType = UNSET
    parents: list[tuple[int, int, int]] = msgspec.field(default_factory=list)


prepare_messages(globals())
