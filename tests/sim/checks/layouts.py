"""What must hold of splits and merges in peace: none is open, sealed ends are those of COMMITs, no orphan.

L1 a SEALED partition has exactly the records and the chain of its end; D1 no store has a partition that
neither layout, open change, leftover nor tombstone names.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ringfence.control.model.layout import Partition
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from tests.sim.checks.ledger import Forced
from tests.sim.checks.lineage_ledger import LineageLedger
from tests.sim.checks.lineage_scopes import LineageScopes
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.lineage_consumer import LineageConsumer

if TYPE_CHECKING:
    from tests.sim.world.machine import Machine
    from tests.sim.world.world import World

Machines = dict[int, "Machine"]
"""By their nodes."""


def ended(before: MetadataState, after: MetadataState) -> Counter[str]:
    """What an entry did to layout changes, to be counted."""
    found = Counter[str]()
    if before.transitions is not after.transitions:
        for change, was in before.transitions.items():
            now = after.transitions.get(change)
            if was.may_abort and now is None:
                found["layout_aborted"] += 1
                found["layout_aborted_held"] += was.phase is ChangePhase.HELD
            elif was.may_abort and now is not None and not now.may_abort:
                found["layout_committed"] += 1
            elif now is None:
                found["layout_finalized"] += 1
    for number, topic in before.topics.items():
        newest = after.topics.get(number)
        if newest is not None and newest is not topic:
            found["pruned"] += len(topic.assignments.keys() - newest.assignments.keys())
    return +found


def note(world: World, ledger: LineageLedger, before: MetadataState, after: MetadataState) -> None:
    """An entry was applied for the first time: count what it ended, tell the ledger of newer layouts."""
    world.counts.update(ended(before, after))
    try:
        for number, topic in after.topics.items():
            was = before.topics.get(number)
            if was is not topic:
                if was is not None:
                    _note_lowered(world, ledger, was, topic)
                ledger.has_layout(topic)
    except ViolationError as broken:
        world.violate(broken)


def _note_lowered(world: World, ledger: LineageLedger, before: Topic, after: Topic) -> None:
    """An operator accepted that a sealed partition ends earlier. ViolationError: nobody did."""
    for part in after.layout.partitions:
        known, seal = before.seal(part.partition), after.seal(part.partition)
        if known is None or seal is None or seal.lowered == known.lowered:
            continue
        number, end = int(part.partition), seal.end
        if (number, end) not in world.accepted_ends:
            raise ViolationError("L1", f"sealed partition {number} ends at {end}, which nobody has accepted")
        ledger.forced(number, Forced(int(seal.lowered), int(end.epoch), int(end.offset)))
        world.count("sealed_lowered")


def unfinished(state: MetadataState, machines: Machines) -> str:
    """What is not over yet; empty when everything is."""
    return (
        open_changes(state)
        or unsealed(state, machines)
        or without_sources(state, machines)
        or strays(state, machines)
    )


def uneven(state: MetadataState, machines: Machines, consumer: object, topic: Topic | None) -> str:
    """What is not over yet of splits and merges, and what the reader of a lineage has not read yet."""
    if not isinstance(consumer, LineageConsumer):
        return ""
    missing = unfinished(state, machines)
    return missing if missing or topic is None else consumer.lagging(active_ends(topic, machines))


def reckon(ledger: object, scopes: object, consumer: object, topic: Topic | None) -> None:
    """All was read: each row once, in the order of its key. Of a topic that was deleted nothing is left."""
    if isinstance(ledger, LineageLedger) and isinstance(consumer, LineageConsumer) and topic is not None:
        if isinstance(scopes, LineageScopes):
            scopes.settle()
        ledger.check_lineage(topic.layout)
        consumer.check()


def open_changes(state: MetadataState) -> str:
    """Which layout change is not over; empty when all are."""
    for number, transition in state.transitions.items():
        return f"layout change {number} ({transition.kind}) is {transition.phase}"
    return ""


def unsealed(state: MetadataState, machines: Machines) -> str:
    """Which owner does not serve its sealed partition yet. ViolationError where one serves another log."""
    for topic in state.topics.values():
        for part in topic.layout.partitions:
            seal, assignment = topic.seal(part.partition), topic.assignments[part.partition]
            for place in assignment.replicas if seal is not None else ():
                known = _status(machines.get(int(place.node)), int(part.partition))
                name = f"sealed partition {part.partition} at node {place.node}"
                if known is None:
                    return f"{name} is not there"
                if known["quarantined"] is not None:
                    continue
                if known["sealed"] is None or not known["sealed"]["reached"]:
                    return f"{name} has {known['records']} records, sealed {known['sealed']}"
                end = (seal.end.records, seal.end.chain)  # type: ignore[union-attr]
                if (known["records"], known["chain"]) != end:
                    what = f"{name} has (records, chain) {known['records'], known['chain']}, the end is {end}"
                    raise ViolationError("L1", what)
                if known["open"]:
                    raise ViolationError("L2", f"{name} takes rows")
    return ""


def without_sources(state: MetadataState, machines: Machines) -> str:
    """Which owner of a child lacks what a parent knew of its producers; empty when none does."""
    for topic in state.topics.values():
        for part in topic.layout.active():
            known = _status(
                machines.get(int(topic.assignments[part.partition].owner.node)), int(part.partition)
            )
            if known is None or known["quarantined"] is not None:
                continue
            missing = _missing_sources(topic, part, known)
            if missing:
                return missing
    return ""


def _missing_sources(topic: Topic, part: Partition, known: dict[str, Any]) -> str:
    wanted = {int(one) for one in part.parents} | {
        int(one.partition) for one in topic.pruned_parents(part.partition)
    }
    has = {int(source) for source, _ in known.get("sources", ())}
    if wanted <= has:
        return ""
    return f"partition {part.partition} has inherited of {sorted(has)}, its parents are {sorted(wanted)}"


def check_owner(
    state: MetadataState | None, topic: int, partition: int, epoch: int, machine: Machine
) -> None:
    """Its owner of this epoch takes rows. ViolationError: it lacks what a parent knew of its producers."""
    known = _status(machine, partition)
    found = None if state is None else state.topics.get(topic)  # type: ignore[call-overload]
    if found is None or known is None or not known["open"] or known["owner_epoch"] != epoch:
        return
    for part in found.layout.active():
        if int(part.partition) == partition and (missing := _missing_sources(found, part, known)):
            raise ViolationError("K8", f"{missing}, and it takes rows")


def strays(state: MetadataState, machines: Machines) -> str:
    """A partition on a disk that no part of the metadata names; empty when there is none."""
    named = {int(part) for topic in state.topics.values() for part in topic.assignments}
    named |= {int(part) for part in state.leftovers}
    named |= {int(part) for tombstone in state.tombstones.values() for part in tombstone.partitions}
    named |= {int(child.partition) for one in state.transitions.values() for child in one.children}
    for number, machine in sorted(machines.items()):
        for status in machine.host.node.partitions() if machine.host.running else ():
            if int(status["partition"]) not in named:
                return f"node {number} has partition {status['partition']} of topic {status['topic']}"
    return ""


def active_ends(topic: Topic, machines: Machines) -> dict[int, int]:
    """The end offset of each ACTIVE partition of a topic, as its owner has it."""
    ends: dict[int, int] = {}
    for part in topic.layout.active():
        owner = machines.get(int(topic.assignments[part.partition].owner.node))
        known = _status(owner, int(part.partition))
        ends[int(part.partition)] = 0 if known is None else int(known["end_offset"])
    return ends


def _status(machine: Machine | None, partition: int) -> dict[str, Any] | None:
    if machine is None or not machine.host.running:
        return None
    found = (each for each in machine.host.node.partitions() if int(each["partition"]) == partition)
    return next(found, None)
