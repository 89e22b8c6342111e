"""Show cohorts: what the metadata has, and figures of their gates. Any node serves it, without a leader.

What an owner did not answer is named as unknown, and is not part of a sum.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.cohorts import Cohort, CohortId, NoteKind, PrunedNotes
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.cohorts.engine import GateKey
from ringfence.control.runtime.cohorts.figures import GateFigureReader, gate_owners
from ringfence.control.runtime.handlers.cohort_values import name_fault, wire_settings
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.cohort_messages import GateFigures, MembersTold
from ringfence.control.state_machines.cohorts.gates import barrier_of
from ringfence.control.state_machines.cohorts.plans import unassigned
from ringfence.control.state_machines.metadata.cohort_checks import holders_of
from ringfence.control.state_machines.metadata.cohort_lineage import (
    cohorts_of,
    is_through,
    members_of,
    waits_for,
)
from ringfence.native import cohort_messages as messages

# Partitions of one answer: each takes about 250 bytes of a control body.
PARTITIONS_MAX: Final = 2_048
# Cohorts of one answer: each takes about 400 bytes.
COHORTS_MAX: Final = 1_000
Figures = Mapping[GateKey, GateFigures]
NOT_ANSWERED: Final = "the node that owns its gate did not answer"
NOT_BEGUN: Final = "where the cohort begins in it is not settled yet"


class CohortViews:
    """The views of one node."""

    def __init__(
        self,
        proposer: RaftProposer,
        reader: GateFigureReader,
        connected: Callable[[CohortId], Awaitable[MembersTold]],
    ) -> None:
        """`connected` asks the leader which members of a cohort are connected."""
        self._proposer, self._reader, self._connected = proposer, reader, connected

    async def summaries(
        self, topics: Iterable[Topic], after: tuple[str, str] = ("", ""), token: str = ""
    ) -> tuple[list[messages.CohortSummary], bool]:
        """The cohorts of these topics that a token may see, by names, those behind `after`; whether there are
        more.
        """
        state = self._proposer.state
        found = [
            (topic, cohort)
            for topic in sorted(topics, key=lambda one: one.name)
            for cohort in cohorts_of(state, topic.topic)
            if (topic.name, cohort.name) > after and name_fault(state, token, cohort.name) is None
        ]
        page, shown = found[:COHORTS_MAX], list[messages.CohortSummary]()
        figures: dict[GateKey, GateFigures] = {}
        for topic in {topic.topic: topic for topic, _ in page}.values():
            numbers = [cohort.cohort for other, cohort in page if other is topic]
            figures |= await self._reader.gather(topic, numbers)
        for topic, cohort in page:
            shown.append(summary_of(state, topic, cohort, figures))
        return shown, len(found) > len(page)

    async def described(
        self, cohort: Cohort, *, partitions: bool = True, after: int = 0
    ) -> messages.CohortDescribed:
        """A cohort with its members, and with partitions whose ids are above `after`."""
        told = await self._connected(cohort.cohort)
        state = self._proposer.state
        topic = state.topics[cohort.topic]
        figures = await self._reader.gather(topic, [cohort.cohort])
        shown = partitions_of(state, topic, cohort, figures, after) if partitions else []
        return messages.CohortDescribed(
            summary=summary_of(state, topic, cohort, figures),
            members=members_shown(state, cohort, told),
            partitions=shown[:PARTITIONS_MAX],
            more=len(shown) > PARTITIONS_MAX,
        )


def entry_of(
    state: MetadataState, topic: Topic, cohort: Cohort, *, created: bool = False
) -> messages.CohortEntry:
    """The cohort as the metadata has it."""
    return messages.CohortEntry(
        topic=topic.name,
        cohort=cohort.name,
        id=cohort.cohort,
        mode=cohort.mode.lower(),
        start=cohort.start.kind.lower(),
        settings=wire_settings(cohort.settings),
        version=cohort.changed,
        incarnation=cohort.incarnation,
        generation=cohort.generation,
        not_begun=[*cohort.resetting],
        members=len(members_of(state, cohort.cohort)),
        idle_since_ms=cohort.idle_since_ms,
        created=created,
    )


def summary_of(
    state: MetadataState, topic: Topic, cohort: Cohort, figures: Figures
) -> messages.CohortSummary:
    """The cohort with sums over the gates whose owners answered."""
    parts = topic.layout.by_id()
    read = [part for part in topic.layout.partitions if not is_through(state, cohort, part)]
    gates = [figures[key] for part in read if (key := (cohort.cohort, part.partition)) in figures]
    barrier = barrier_of(cohort, parts)
    ages = [gate.lag_ms for gate in gates if gate.lag_ms >= 0]
    return messages.CohortSummary(
        entry=entry_of(state, topic, cohort),
        lag_rows=sum(gate.lag_rows for gate in gates),
        lag_ms=max(ages) if ages else UNSET,
        parked_rows=sum(gate.parked_rows for gate in gates),
        parked=sum(gate.parked for gate in gates),
        unassigned=unassigned(state, cohort),
        blocked=sum(
            part.partition in barrier or _waits(state, cohort, parts, part) != ()
            for part in topic.layout.partitions
        ),
        paused=sum(bool(gate.paused) for gate in gates),
        leased_rows=sum(gate.leased_rows for gate in gates),
        unknown=sorted(part.partition for part in read if (cohort.cohort, part.partition) not in figures),
    )


def _waits(
    state: MetadataState, cohort: Cohort, parts: Mapping[PartitionId, Partition], part: Partition
) -> tuple[PartitionId, ...]:
    """Parents that keep a gate closed; a QUEUE has no order."""
    return waits_for(state, cohort, parts, part) if cohort.mode.is_ordered else ()


def members_shown(state: MetadataState, cohort: Cohort, told: MembersTold) -> list[messages.CohortMember]:
    """The registered members, with what the leader knows of them."""
    connected = frozenset(told.connected)

    def state_of(session: int) -> str:
        if not told.is_leader:
            return "unknown"
        return "connected" if session in connected else "grace"

    return [
        messages.CohortMember(
            member=name,
            session=member.session,
            state=state_of(member.session),
            home=member.home,
            since_ms=member.since_ms,
            partitions=len(member.slice),
        )
        for name, member in sorted(members_of(state, cohort.cohort).items())
    ]


def partitions_of(
    state: MetadataState, topic: Topic, cohort: Cohort, figures: Figures, after: int = 0
) -> list[messages.CohortPartition]:
    """Where the cohort is in each partition, in the order of their ids."""
    parts, owners = topic.layout.by_id(), gate_owners(topic)
    barrier, holders = barrier_of(cohort, parts), holders_of(members_of(state, cohort.cohort))
    notes = state.pruned_notes.get(cohort.cohort, {})
    shown = []
    for number, part in sorted(parts.items()):
        if number <= after:
            continue
        seal, is_drained = topic.seal(number), is_through(state, cohort, part)
        gate = figures.get((cohort.cohort, number))
        end = seal.end.offset if seal is not None else None if gate is None or gate.end < 0 else gate.end
        known = messages.CohortPartition(
            partition=number,
            name=part.name,
            state="ACTIVE" if part.is_active else "SEALED",
            gate=owners[number],
            member=holders.get(number, ""),
            end=UNSET if end is None else end,
            waits_for=[*_waits(state, cohort, parts, part)],
            sought=number in barrier,
            drained=is_drained,
            missed=_missed(notes.get(number)),
        )
        shown.append(_with_figures(known, gate, owners[number]))
    return shown


def _missed(notes: PrunedNotes | None) -> list[tuple[int, int]]:
    found = () if notes is None else notes.notes
    return [(note.partition, note.offset) for note in found if note.kind is NoteKind.MISSED]


def _with_figures(
    shown: messages.CohortPartition, gate: GateFigures | None, owner: NodeId
) -> messages.CohortPartition:
    if shown.drained:
        return replace(shown, settled=shown.end, lag_rows=0)
    if gate is None:
        return replace(shown, reason=f"node {owner}: {NOT_ANSWERED}")
    has_begun = gate.settled >= 0
    return replace(
        shown,
        settled=gate.settled if has_begun else UNSET,
        lag_rows=gate.lag_rows if has_begun else UNSET,
        reason="" if has_begun else NOT_BEGUN,
        lag_ms=UNSET if gate.lag_ms < 0 else gate.lag_ms,
        holder=gate.holder,
        fencing_token=gate.hold,
        parked=gate.parked,
        parked_rows=gate.parked_rows,
        leased_rows=gate.leased_rows,
        paused=gate.paused,
    )
