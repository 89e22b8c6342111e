"""A node's part of JOIN, without its sockets: answer from the log, register in batches, or refuse.

    evaluate_join(state, join)      what the node does with a request, by its own applied log
    JoinBatches                     registrations that wait for one entry; at most 512 in it
    joined(state, cohort, name)     the answer: a page of the member's slice at one generation
    unbegun(cohort, open_logs)      partitions that a JOIN at the latest rows waits for

Reconnecting, asking for the plan again, and a lost answer are the same request, and cost no entry: the
instance is registered already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ringfence.control.model.cohort_commands import CreateCohort, RegisterMembers, Registration
from ringfence.control.model.cohorts import (
    INSTANCE_BYTES,
    Cohort,
    CohortId,
    CohortMode,
    CohortSettings,
    Incarnation,
    MemberSession,
    StartKind,
    label_fault,
)
from ringfence.control.model.ids import Index, NodeId, PartitionId, TopicId, drawn
from ringfence.control.model.layout import Partition
from ringfence.control.model.results import MembersRegistered, Refused, RegistrationOutcome
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.cohort_checks import MEMBERS_OF_ENTRY_MAX, same_fault
from ringfence.control.state_machines.metadata.cohort_lineage import is_through, members_of
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.refusals import (
    conflict,
    invalid,
    unknown_cohort,
    unknown_topic,
)
from ringfence.native.wire import Code

# Registrations are gathered for so long, or while an entry of this node is under way.
GATHER_MS: Final = 20
# JOINs a second and node that need an entry. 10 nodes take 10,000 within a second.
JOINS_PER_S: Final = 2_000
# Partitions in one answer: within a control body of 1 MiB.
PAGE_PARTITIONS_MAX: Final = 8_192


class Join(NamedTuple):
    """A request to join. `after`: the session that it replaces under its name, 0: none. `settings` None:
    those of the cohort, or the defaults.
    """

    topic: TopicId
    cohort: str
    member: str
    mode: CohortMode
    instance: bytes
    after: MemberSession = MemberSession(0)
    start: StartKind = StartKind.EARLIEST
    settings: CohortSettings | None = None


class Registered(NamedTuple):
    """The instance has this session."""

    cohort: CohortId
    session: MemberSession


class Fenced(NamedTuple):
    """A newer instance replaced this one; it never joins again."""

    message: str


class Taken(NamedTuple):
    """Another session has the name. The caller may join again with `after`, if that one is gone."""

    session: MemberSession
    message: str


JoinDecision = Refused | CreateCohort | Registered | Fenced | Taken | Registration


def evaluate_join(state: MetadataState, join: Join, here: NodeId) -> JoinDecision:
    """What the node does: refuse, create the cohort first, answer, or register. Nothing is changed here."""
    fault = form_fault(state, join)
    if fault is not None:
        return fault
    number = state.cohort_names.get(join.topic, {}).get(join.cohort)
    settings = join.settings or CohortSettings()
    if number is None:
        made = CreateCohort(
            topic=join.topic, name=join.cohort, mode=join.mode, start=join.start, settings=settings
        )
        return made if limit(state, "cohorts_by_join") else unknown_cohort(join.cohort)
    cohort = state.cohorts[number]
    if join.mode is not cohort.mode:
        return conflict(f"cohort {cohort.name!r} has mode {cohort.mode}, the member joins with {join.mode}")
    member = members_of(state, number).get(join.member)
    if member is not None and member.instance == join.instance:
        return Registered(number, member.session)
    if member is not None and join.instance in member.replaced:
        return Fenced(_fenced_text(join))
    session = MemberSession(0) if member is None else member.session
    if join.after != session:
        return Taken(session, _taken_text(join, session))
    return Registration(number, join.member, join.instance, join.after, here)


def form_fault(state: MetadataState, join: Join) -> Refused | None:
    """The refusal of an unsound request, before anything is looked up (F23)."""
    text = label_fault(join.cohort, "cohort name") or label_fault(join.member, "member name")
    if text is not None:
        return invalid(text)
    if len(join.instance) != INSTANCE_BYTES:
        return invalid(f"an instance of {len(join.instance)} bytes: {INSTANCE_BYTES}")
    if join.start is StartKind.POSITIONS:
        return invalid("a cohort begins at EARLIEST or LATEST; seek it to begin at positions")
    return None if join.topic in state.topics else unknown_topic(join.topic)


def created_fault(state: MetadataState, join: Join) -> Refused | None:
    """The refusal of a member whose settings differ from those with which another one created the cohort."""
    number = state.cohort_names.get(join.topic, {}).get(join.cohort)
    if number is None or join.settings is None:
        return None
    made = CreateCohort(topic=join.topic, name=join.cohort, mode=join.mode, settings=join.settings)
    return same_fault(state.cohorts[number], made)


def _fenced_text(join: Join) -> str:
    return f"member {join.member!r} was taken over by a newer process of its name; choose another name"


def _taken_text(join: Join, session: MemberSession) -> str:
    if not session:
        return f"member {join.member!r} is not registered any more; join with after=0"
    return (
        f"member {join.member!r} is registered with session {session}; join with it as `after` once that "
        "process is gone, or with takeover=True"
    )


# ---- registrations --------------------------------------------------------------------------------


class JoinOutcome(NamedTuple):
    """The outcome of one waiting request, by the caller's ticket."""

    ticket: int
    decision: Registered | Fenced | Taken | Refused


@dataclass(slots=True)
class _Item:
    """A registration, and the requests that wait for it."""

    registration: Registration
    tickets: list[int] = field(default_factory=list)


class JoinBatches:
    """Registrations of a node that wait for an entry. Times are in ms of one monotonic clock.

        add(registration, ticket, now)   None, or the refusal of one too many
        due(now)                         the entry to propose, None if there is nothing, or one is under way
        end(index, result)               the outcomes of the entry that was under way
        fail(refusal)                    the same, if it was refused or is not known

    The waiting line has no limit of its own: each item is a request that a connection has open, and the rate
    of items is limited.
    """

    def __init__(self) -> None:
        self._waiting: deque[_Item] = deque()
        self._by_key: dict[tuple[CohortId, str, bytes], _Item] = {}
        self._under_way: list[_Item] = []
        self._since_ms = 0
        # In thousandths of a registration.
        self._coins, self._filled_ms = JOINS_PER_S * 1_000, 0

    def add(self, registration: Registration, ticket: int, now_ms: int) -> Refused | None:
        """Let a request wait for the next entry. The same instance twice waits for one item."""
        key = (registration.cohort, registration.name, registration.instance)
        known = self._by_key.get(key)
        if known is not None and known.registration == registration:
            known.tickets.append(ticket)
            return None
        if not self._take_coin(now_ms):
            message = f"more than {JOINS_PER_S} members join at this node in a second; join again in a second"
            return Refused(code=Code.OVERLOADED, message=message)
        item = _Item(registration, [ticket])
        if not self._waiting:
            self._since_ms = now_ms
        self._waiting.append(item)
        self._by_key[key] = item
        return None

    @property
    def has_waiting(self) -> bool:
        """Whether a registration waits for an entry that is not under way."""
        return bool(self._waiting)

    def due(self, now_ms: int) -> RegisterMembers | None:
        is_gathered = len(self._waiting) >= MEMBERS_OF_ENTRY_MAX or now_ms - self._since_ms >= GATHER_MS
        if not self._waiting or self._under_way or not is_gathered:
            return None
        while self._waiting and len(self._under_way) < MEMBERS_OF_ENTRY_MAX:
            item = self._waiting.popleft()
            registration = item.registration
            self._by_key.pop((registration.cohort, registration.name, registration.instance), None)
            self._under_way.append(item)
        return RegisterMembers(members=tuple(item.registration for item in self._under_way))

    def end(self, index: Index, result: MembersRegistered) -> tuple[JoinOutcome, ...]:
        """The entry at `index` was applied."""
        others = {other.item: other for other in result.others}
        outcomes: list[JoinOutcome] = []
        for place, item in enumerate(self._under_way):
            other = others.get(place)
            decision: Registered | Fenced | Taken | Refused
            if other is None:
                decision = Registered(item.registration.cohort, MemberSession(drawn(index, place)))
            else:
                decision = _other_decision(item.registration, other.why, other.session)
            outcomes += [JoinOutcome(ticket, decision) for ticket in item.tickets]
        self._under_way = []
        return tuple(outcomes)

    def fail(self, refusal: Refused) -> tuple[JoinOutcome, ...]:
        """The entry was refused, or it is not known whether it was applied: the members ask again."""
        outcomes = [JoinOutcome(ticket, refusal) for item in self._under_way for ticket in item.tickets]
        self._under_way = []
        return tuple(outcomes)

    def _take_coin(self, now_ms: int) -> bool:
        filled = self._coins + (now_ms - self._filled_ms) * JOINS_PER_S
        self._coins, self._filled_ms = min(JOINS_PER_S * 1_000, filled), now_ms
        if self._coins < 1_000:
            return False
        self._coins -= 1_000
        return True


def _other_decision(
    item: Registration, why: RegistrationOutcome, session: MemberSession
) -> Registered | Fenced | Taken | Refused:
    join = Join(TopicId(0), "", item.name, CohortMode.STREAM, item.instance)
    match why:
        case RegistrationOutcome.SAME:
            return Registered(item.cohort, session)
        case RegistrationOutcome.FENCED:
            return Fenced(_fenced_text(join))
        case RegistrationOutcome.CONFLICT:
            return Taken(session, _taken_text(join, session))
        case RegistrationOutcome.UNKNOWN:
            return unknown_cohort(item.cohort)
        case RegistrationOutcome.LIMIT:
            return invalid(
                f"member {item.name!r}: the cohort has `cohort_members_max` members, or the cluster "
                "`members_max`; raise the limit, or close members"
            )


# ---- answers ----------------------------------------------------------------------------------------


class JoinedPage(NamedTuple):
    """A page of a member's slice at one generation: ascending partitions from the one that was asked for on.

    `more`: ask again from the last one on; if the generation changed meanwhile, from the start.
    """

    cohort: CohortId
    session: MemberSession
    incarnation: Incarnation
    generation: int
    partitions: tuple[PartitionId, ...]
    more: bool


def joined(
    state: MetadataState, cohort: Cohort, member: str, after: PartitionId | None = None
) -> JoinedPage | None:
    """The answer to a registered member: its slice without drained partitions, those above `after`."""
    known = members_of(state, cohort.cohort).get(member)
    if known is None:
        return None
    parts = state.topics[cohort.topic].layout.by_id()
    left = [
        number
        for number in known.slice
        if (after is None or number > after) and _is_read(state, cohort, parts, number)
    ]
    return JoinedPage(
        cohort.cohort,
        known.session,
        cohort.incarnation,
        cohort.generation,
        tuple(left[:PAGE_PARTITIONS_MAX]),
        len(left) > PAGE_PARTITIONS_MAX,
    )


def _is_read(
    state: MetadataState, cohort: Cohort, parts: dict[PartitionId, Partition], number: PartitionId
) -> bool:
    part = parts.get(number)
    return part is not None and not is_through(state, cohort, part)


def unbegun(cohort: Cohort, open_logs: Container[PartitionId] | None = None) -> tuple[PartitionId, ...]:
    """Partitions of a cohort that have not begun. With `open_logs`, only those whose owners can tell so: a
    partition whose owner is away takes no rows, so nothing that is published after the answer is missed.
    """
    return tuple(number for number in cohort.resetting if open_logs is None or number in open_logs)
