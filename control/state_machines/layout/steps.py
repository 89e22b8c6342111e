"""Coordinate one layout change: observations of the leader in, orders and the next entry out.

    PREPARED   CreateChild at all places of the children    all created
               Inherit at their owners, a first time        all have inherited -> short wait for open stages
               LookLayout at the owners of the sources      -> HoldLayout
    HELD       Seal at the owners of the sources, all at once; then Inherit the rest     -> CommitLayout
    COMMITTED  LookLayout at the live owners of the children                             -> ConfirmLayout
    OPENED     sources are drained, clients have adopted, or do not in time              -> FinalizeLayout

Pure: `advance(state, transition, observed, now_ms, is_adopted)`. Observations are soft state: a new leader
begins without any and asks again, since every order may be repeated.

Before the COMMIT any doubt aborts, by an entry. After it a transition only goes forward, and waits for no
node that may never answer: an owner that is not LIVE, or a child that is sealed again or quarantined. The
owners of the sources are not asked after the COMMIT: the ends are in the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.layout_commands import (
    AbortLayout,
    CommitLayout,
    ConfirmLayout,
    FinalizeLayout,
    HoldLayout,
)
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.layout.messages import (
    CreateChild,
    Created,
    Inherit,
    Inherited,
    LayoutAnswer,
    LayoutOrder,
    LookLayout,
    Seal,
    SealedEnds,
)
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.drained import is_transition_drained
from ringfence.control.state_machines.metadata.layout_checks import waiting_scope
from ringfence.control.state_machines.reassignment.messages import Failed, OrderDone

# Bytes of readers' gates that one child inherits at most, over all sources whose heir it is.
READER_BYTES_MAX: Final = 2 << 20
# Partitions or nodes that a reason names; the entry is in every journal.
NAMED: Final = 8

Ends = Mapping[PartitionId, LogEnd]
TransitionStep = HoldLayout | CommitLayout | ConfirmLayout | AbortLayout | FinalizeLayout


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Observations of one leader about one transition in one phase.

    `since_ms` is the time of the first observation in `phase`, `begun_ms` that of the first one of the
    transition, `based_ms` the time when all children had inherited a first time, `drained_ms` the time since
    which the sources have been drained; all by the leader's monotonic clock, 0 before.
    """

    change: ChangeId
    phase: ChangePhase
    since_ms: int
    begun_ms: int
    created: Ends = {}
    based: frozenset[PartitionId] = frozenset()
    reader_bytes: Mapping[PartitionId, int] = {}
    based_ms: int = 0
    quiet: frozenset[NodeId] = frozenset()
    ends: Ends = {}
    stopped_us: int = 0
    inherited: Ends = {}
    opened: frozenset[NodeId] = frozenset()
    drained_ms: int = 0
    failure: str = ""


class Decision(NamedTuple):
    """Orders that nodes should have now, and an entry to propose."""

    orders: tuple[LayoutOrder, ...] = ()
    entry: TransitionStep | None = None


def begin_phase(transition: Transition, now_ms: int, previous: Observed | None = None) -> Observed:
    """The observations for the transition's present phase: `previous` if it is of this phase, else new ones.

    A new phase keeps which children exist and have inherited a first time.
    """
    if previous is None or previous.change != transition.change:
        return Observed(change=transition.change, phase=transition.phase, since_ms=now_ms, begun_ms=now_ms)
    if previous.phase is transition.phase:
        return previous
    return Observed(
        change=transition.change,
        phase=transition.phase,
        since_ms=now_ms,
        begun_ms=previous.begun_ms,
        created=previous.created,
        based=previous.based,
    )


def observe(observed: Observed, order: LayoutOrder, answer: LayoutAnswer) -> Observed:
    """The observations after a node's answer. An answer about another transition changes nothing."""
    if order.change != observed.change:
        return observed
    if isinstance(answer, Failed):
        return replace(observed, failure=f"node {order.to.node}: {answer.why}")
    match order, answer:
        case CreateChild(), Created(children=children):
            return replace(observed, created={**observed.created, **dict(children)})
        case Inherit(ends=None), Inherited(children=children, reader_bytes=sizes):
            return replace(
                observed,
                based=observed.based | {child for child, _ in children},
                reader_bytes={**observed.reader_bytes, **dict(sizes)},
            )
        case Inherit(ends=ends), Inherited(children=children) if ends == tuple(observed.ends.items()):
            return replace(observed, inherited={**observed.inherited, **dict(children)})
        case Seal(), SealedEnds(sources=sources):
            return replace(
                observed,
                ends={**observed.ends, **{source: end for source, end, _ in sources}},
                stopped_us=max(observed.stopped_us, *(stopped for _, _, stopped in sources), 0),
            )
        case LookLayout(to=to, is_committed=False), OrderDone():
            return replace(observed, quiet=observed.quiet | {to.node})
        case LookLayout(to=to, is_committed=True), OrderDone():
            return replace(observed, opened=observed.opened | {to.node})
        case _:
            return observed


def observe_time(state: MetadataState, transition: Transition, observed: Observed, now_ms: int) -> Observed:
    """The observations with the times of what the state and the answers show for the first time."""
    if transition.phase is ChangePhase.OPENED:
        is_drained = is_transition_drained(state, transition)
        since_ms = (observed.drained_ms or now_ms) if is_drained else 0
        return observed if since_ms == observed.drained_ms else replace(observed, drained_ms=since_ms)
    is_based = all(child.partition in observed.based for child in transition.children)
    if transition.phase is ChangePhase.PREPARED and is_based and not observed.based_ms:
        return replace(observed, based_ms=now_ms)
    return observed


def advance(
    state: MetadataState, transition: Transition, observed: Observed, now_ms: int, *, is_adopted: bool = False
) -> Decision:
    """Decide what to do for one transition now."""
    assert (observed.change, observed.phase) == (transition.change, transition.phase), (
        "the observations are of another phase"
    )
    match transition.phase:
        case ChangePhase.PREPARED | ChangePhase.HELD:
            why = _abort_reason(state, transition, observed, now_ms)
            if why:
                return Decision(entry=AbortLayout(change=transition.change, why=why))
            if transition.phase is ChangePhase.HELD:
                return _decide_held(state, transition, observed)
            return _decide_prepared(state, transition, observed, now_ms)
        case ChangePhase.COMMITTED:
            return _decide_committed(state, transition, observed)
        case ChangePhase.OPENED:
            return _decide_opened(state, transition, observed, now_ms, is_adopted=is_adopted)


# ---- before the COMMIT -------------------------------------------------------------------------------


def _decide_prepared(
    state: MetadataState, transition: Transition, observed: Observed, now_ms: int
) -> Decision:
    missing = [child for child in transition.children if child.partition not in observed.created]
    if missing:
        places = (place for child in missing for place in child.replicas)
        return Decision(_to_each(places, CreateChild, transition))
    unbased = [child for child in transition.children if child.partition not in observed.based]
    if unbased:
        return Decision(_to_each((child.replicas[0] for child in unbased), Inherit, transition))
    restless = [place for place in _source_owners(state, transition) if place.node not in observed.quiet]
    waits = now_ms - observed.based_ms < limit(state, "stage_wait_ms")
    if restless and observed.based_ms and waits:
        return Decision(_to_each(restless, LookLayout, transition))
    return Decision(entry=HoldLayout(change=transition.change))


def _decide_held(state: MetadataState, transition: Transition, observed: Observed) -> Decision:
    if waiting_scope(state, {*transition.sources}) is not None:
        return Decision()  # owners publish these rows; a seal before that would hide them for good
    assignments = state.topics[transition.topic].assignments
    open_ones = [source for source in transition.sources if source not in observed.ends]
    if open_ones:
        return Decision(_to_each((assignments[source].owner for source in open_ones), Seal, transition))
    ends = tuple(observed.ends.items())
    missing = [child for child in transition.children if child.partition not in observed.inherited]
    if missing:
        return Decision(_to_each((child.replicas[0] for child in missing), Inherit, transition, ends=ends))
    commit = CommitLayout(
        change=transition.change,
        ends=ends,
        created=tuple(
            (child.partition, observed.inherited[child.partition]) for child in transition.children
        ),
        stopped_us=observed.stopped_us,
    )
    return Decision(entry=commit)


def _abort_reason(state: MetadataState, transition: Transition, observed: Observed, now_ms: int) -> str:
    """The reason to abort; empty if the transition goes on."""
    if observed.failure:
        return observed.failure
    for place in (*_source_owners(state, transition), *transition.owners):
        node = state.nodes.get(place.node)
        if node is None or node.life is not Life.LIVE:
            return f"node {place.node} is {'gone' if node is None else node.life}"
    if transition.phase is ChangePhase.HELD:
        held_ms = now_ms - observed.since_ms
        if held_ms < limit(state, "hold_timeout_ms"):
            return ""
        return f"held for {held_ms} ms, the limit `hold_timeout_ms`; {_waits(state, transition, observed)}"
    too_many = _reader_bytes_reason(state, transition, observed)
    if too_many:
        return too_many
    ran_ms = now_ms - observed.begun_ms
    if ran_ms < limit(state, "layout_timeout_ms"):
        return ""
    return f"prepared for {ran_ms} ms, the limit `layout_timeout_ms`; {_waits(state, transition, observed)}"


def _waits(state: MetadataState, transition: Transition, observed: Observed) -> str:
    """Who has not answered, for the reason of an abort."""
    scope = waiting_scope(state, {*transition.sources})
    if transition.phase is ChangePhase.HELD and scope is not None:
        return f"rows of scope {scope!r} wait for their publish"
    orders = (
        _decide_held(state, transition, observed).orders
        if transition.phase is ChangePhase.HELD
        else _decide_prepared(state, transition, observed, observed.based_ms).orders
    )
    return f"no answer of nodes {listed(sorted({order.to.node for order in orders}), NAMED)}"


def _reader_bytes_reason(state: MetadataState, transition: Transition, observed: Observed) -> str:
    """Of each source one child, which has its lowest slot, inherits the gates of readers."""
    parts = state.topics[transition.topic].layout.by_id()
    for child in transition.children:
        sources = [
            source
            for source in transition.sources
            if child.slots.lo <= parts[source].slots.lo <= child.slots.hi
        ]
        size = sum(observed.reader_bytes.get(source, 0) for source in sources)
        if size > READER_BYTES_MAX:
            return (
                f"registered readers of partitions {listed(sources, NAMED)} have {size} bytes of gates, a "
                f"child takes {READER_BYTES_MAX}: drain or delete some"
            )
    return ""


def _source_owners(state: MetadataState, transition: Transition) -> tuple[Replica, ...]:
    assignments = state.topics[transition.topic].assignments
    return tuple(dict.fromkeys(assignments[source].owner for source in transition.sources))


# ---- after the COMMIT --------------------------------------------------------------------------------


def _decide_committed(state: MetadataState, transition: Transition, observed: Observed) -> Decision:
    assignments = state.topics[transition.topic].assignments
    owners = (
        assignments[child.partition].owner for child in transition.children if child.partition in assignments
    )
    asked = [
        place
        for place in owners
        if place.node not in observed.opened
        and place.node in state.nodes
        and state.nodes[place.node].life is Life.LIVE
    ]
    if asked:
        return Decision(_to_each(asked, LookLayout, transition, is_committed=True))
    return Decision(entry=ConfirmLayout(change=transition.change))


def _decide_opened(
    state: MetadataState, transition: Transition, observed: Observed, now_ms: int, *, is_adopted: bool
) -> Decision:
    if not observed.drained_ms:
        return Decision()
    waited_ms = now_ms - observed.drained_ms
    if not is_adopted and waited_ms < limit(state, "repartition_adoption_timeout_ms"):
        return Decision()
    return Decision(
        entry=FinalizeLayout(change=transition.change, timed_out=not is_adopted, waited_ms=waited_ms)
    )


def _to_each(
    places: Iterable[Replica], kind: type[Any], transition: Transition, **more: Any
) -> tuple[LayoutOrder, ...]:
    """One order for each of the stores."""
    return tuple(
        kind(to=place, topic=transition.topic, change=transition.change, **more)
        for place in dict.fromkeys(places)
    )
