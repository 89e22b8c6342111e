"""Build the metrics of cohorts. Labels are topic and cohort, never a member or a partition.

Lag, parked rows and leases are sums over the gates that this node owns: sum them over the nodes. The states
of members are known to the leader only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ringfence.control.metrics.prometheus_text import Family, Labels
from ringfence.control.model.cohorts import Cohort, CohortId
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.cohorts.parts import CohortParts
from ringfence.control.runtime.rpc.cohort_messages import GateFigures
from ringfence.control.state_machines.cohorts.gates import barrier_of
from ringfence.control.state_machines.cohorts.plans import unassigned
from ringfence.control.state_machines.metadata.cohort_lineage import is_through, members_of, waits_for
from ringfence.control.state_machines.metadata.drained import is_overdue

Samples = tuple[tuple[Labels, float], ...]


def cohort_families(state: MetadataState, cohorts: CohortParts) -> Iterator[Family]:
    """Nothing while the cluster has no cohort."""
    if not state.cohorts:
        return
    yield from _of_metadata(state)
    yield from _of_gates(state, cohorts)
    yield from _of_members(state, cohorts)
    yield Family(
        "ringfence_cohort_plan_seconds",
        "gauge",
        "seconds that the newest large plan took, on the node that made it",
        (((), cohorts.leader.plan_s),),
    )
    yield Family(
        "ringfence_cohort_assign_pushes",
        "counter",
        "slices that this node has sent to members unasked",
        (((), cohorts.pushes.count),),
    )


def labels_of(state: MetadataState, cohort: Cohort) -> Labels:
    return ("topic", state.topics[cohort.topic].name), ("cohort", cohort.name)


def _each(state: MetadataState, value: Callable[[Cohort], float]) -> Samples:
    return tuple((labels_of(state, cohort), value(cohort)) for _, cohort in sorted(state.cohorts.items()))


def _of_metadata(state: MetadataState) -> Iterator[Family]:
    """What every node has alike."""
    for name, text, value in (
        ("generation", "generation of a cohort's plan", lambda cohort: cohort.generation),
        (
            "unassigned_partitions",
            "partitions that should be read and that no member has",
            lambda cohort: unassigned(state, cohort),
        ),
        (
            "blocked_partitions",
            "partitions that wait for their parents or for a seek",
            lambda cohort: _blocked(state, cohort),
        ),
        (
            "overdue_partitions",
            "sealed partitions that do not wait for the cohort any longer",
            lambda cohort: _overdue(state, cohort),
        ),
    ):
        yield Family(f"ringfence_cohort_{name}", "gauge", text, _each(state, value))


def _blocked(state: MetadataState, cohort: Cohort) -> int:
    layout = state.topics[cohort.topic].layout
    parts = layout.by_id()
    barrier = barrier_of(cohort, parts)
    return sum(
        part.partition in barrier or (cohort.mode.is_ordered and waits_for(state, cohort, parts, part) != ())
        for part in layout.partitions
    )


def _overdue(state: MetadataState, cohort: Cohort) -> int:
    return sum(
        not part.is_active
        and not is_through(state, cohort, part)
        and is_overdue(state, cohort.topic, part.partition)
        for part in state.topics[cohort.topic].layout.partitions
    )


def _of_gates(state: MetadataState, cohorts: CohortParts) -> Iterator[Family]:
    """Sums over this node's gates. A former owner's figures are left out."""
    none: dict[CohortId, list[GateFigures]] = {number: [] for number in state.cohorts}
    gates = none | cohorts.own_figures(state)
    for name, text, value in (
        ("lag_rows", "rows that are not settled", lambda gate: gate.lag_rows),
        ("parked_rows", "rows that are parked", lambda gate: gate.parked_rows),
        ("leased_rows", "rows of a queue that members work on", lambda gate: gate.leased_rows),
        ("paused_partitions", "partitions whose queue gives no new rows", lambda gate: bool(gate.paused)),
    ):
        samples = tuple(
            (labels_of(state, state.cohorts[number]), float(sum(map(value, found))))
            for number, found in sorted(gates.items())
        )
        yield Family(f"ringfence_cohort_{name}", "gauge", f"{text}, of this node's gates", samples)
    ages = (
        (labels_of(state, state.cohorts[number]), max(known) / 1_000)
        for number, found in sorted(gates.items())
        if (known := [gate.lag_ms for gate in found if gate.lag_ms >= 0])
    )
    text = "age of the oldest row that is not settled, of this node's gates"
    yield Family("ringfence_cohort_lag_seconds", "gauge", text, tuple(ages))


def _of_members(state: MetadataState, cohorts: CohortParts) -> Iterator[Family]:
    samples: list[tuple[Labels, float]] = []
    for number, cohort in sorted(state.cohorts.items()):
        told = cohorts.leader.connected(number)
        if told.is_leader:
            count, connected = len(members_of(state, number)), len(told.connected)
            for name, value in (("connected", connected), ("grace", count - connected)):
                samples.append(((*labels_of(state, cohort), ("state", name)), value))
    text = "registered members, on the node that leads: connected, or not heard and in grace"
    yield Family("ringfence_cohort_members", "gauge", text, tuple(samples))
