"""What happens in a cell of `cohort_matrix`: acts that lead to a step, the steps, and harms of members."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.state_machines.metadata.cohort_lineage import has_mark
from tests.sim.checks.cohorts import CohortRecord
from tests.sim.clients.queue_cast import QueueCast
from tests.sim.cohort_steps import LAYOUT, SEEKS

if TYPE_CHECKING:
    from ringfence.control.model.ids import PartitionId
    from tests.sim.checks.cohort_state import CohortState
    from tests.sim.clients.member_process import MemberProcess
    from tests.sim.cohort_matrix import StruckCohort

SECOND_JOINS_US: Final = 1_200_000
ACTS_US: Final = 2_000_000
AGAIN_US: Final = 500_000
BUSY_US: Final = 20_000_000
STILL_US: Final = 3_000_000
BAD: Final = 25
"""One row of so many can never be worked on, where a step is about parked rows."""
LIMIT: Final = 2
LEASE_S: Final = 2.0


# ---- acts ----


def prepare(world: StruckCohort) -> None:
    """Settings of the cohort, before its first member joins."""
    cast = world.cast
    if isinstance(cast, QueueCast):
        cast._bad = BAD if world.cell.step in {"parked", "put_back"} else 0
        cast.record.limit, cast.record.lease_s = LIMIT, LEASE_S


def play(world: StruckCohort, step: str) -> None:
    """Ask for what leads to this step."""
    after = world.agenda.after
    after(SECOND_JOINS_US, partial(_second, world))
    if step in LAYOUT:
        after(ACTS_US, partial(_layout, world, step))
    elif step in SEEKS:
        after(ACTS_US, partial(_seek, world))
    elif step == "left":
        after(ACTS_US, partial(_leave, world))
    elif step == "moved":
        after(ACTS_US, partial(_move, world))
    elif step == "failed_over":
        after(ACTS_US, partial(_kill_owner, world))
    elif step in {"parked", "put_back"}:
        after(ACTS_US, partial(_operate, world))


def _second(world: StruckCohort) -> None:
    if not world.healed and "m2" not in world.cast.processes:
        world.cast.begin("m2", takeover=False)


def _layout(world: StruckCohort, step: str) -> None:
    """A split, or by the seed a merge, until the log has it; of `heir_committed` another split after it."""
    state = world.watch.newest[1]
    topic = world.topic_of(state)
    if world.healed or world.struck_us or state is None or topic is None:
        return
    sealed = len(topic.layout.partitions) - len(topic.layout.active())
    parts = [int(part.partition) for part in topic.layout.active()]
    if not state.transitions and (not sealed or step == "heir_committed"):
        if len(parts) > 1 and not sealed and world.plan.seed % 4 == 3:
            world.layouter.ask_for("merge", parts[:2])
        else:
            world.layouter.ask_for("split", parts[:1], into=2)
        if step == "heir_committed":  # nothing is drained before the heir is split, too
            for process in world.cast.processes.values():
                process.pause(STILL_US)
    world.agenda.after(AGAIN_US, partial(_layout, world, step))


def _seek(world: StruckCohort) -> None:
    if not world.healed and not world.struck_us and len(world.cast.record.incarnations) < 2:
        world.cast._seek(world.cast.processes["m1"], Random(0))
        world.agenda.after(2 * AGAIN_US, partial(_seek, world))


def _leave(world: StruckCohort) -> None:
    process = world.cast.processes["m1"]
    process.member.close(leave=True)
    world.agenda.after(4 * AGAIN_US, process.kill)
    world.agenda.after(8 * AGAIN_US, partial(world.cast.again, "m1"))


def _move(world: StruckCohort) -> None:
    """Another replica becomes the owner, until the log has it."""
    topic = world.topic_of(world.watch.newest[1])
    if world.healed or world.struck_us or topic is None:
        return
    assignment = topic.assignments[world.partition]
    owner, *others = [int(place.node) for place in assignment.replicas]
    world.mover.chosen([(world.partition, (*others, owner))])
    world.agenda.after(2 * AGAIN_US, partial(_move, world))


def _kill_owner(world: StruckCohort) -> None:
    topic = world.topic_of(world.watch.newest[1])
    machine = world.by_node(int(topic.assignments[world.partition].owner.node))
    if machine is not None:
        machine.crash(power=True)
        world.boot_later(machine, 8 * AGAIN_US)


def _operate(world: StruckCohort) -> None:
    """An operator of what is parked, each half second until the strike."""
    if not world.healed and not world.struck_us and isinstance(world.cast, QueueCast):
        if world.cell.step == "put_back":
            world.cast.operator.operate(Random(f"operate {world.agenda.now_us}"))
        world.agenda.after(AGAIN_US, partial(_operate, world))


# ---- steps ----


def steps_between(record: CohortState, before: Any, after: Any, partition: PartitionId) -> Iterator[str]:
    """What an entry of the metadata did to the cohort and to the partition."""
    was, now = record.cohort(before), record.cohort(after)
    if now is not None:
        yield from _of_members(_members(before, was), _members(after, now))
        if was is not None and was.incarnation != now.incarnation:
            yield "sought"
        if was is not None and was.resetting and not now.resetting and len(record.incarnations) > 1:
            yield "begun"
        if has_mark(after, now.cohort, partition) and (
            was is None or not has_mark(before, was.cohort, partition)
        ):
            yield "drained"
    yield from _of_layouts(before, after)
    yield from _of_owners(before, after, partition)


def _members(state: Any, cohort: Any) -> Any:
    return {} if cohort is None else state.cohort_members.get(cohort.cohort, {})


def _of_members(was: Any, now: Any) -> Iterator[str]:
    if "m1" in now and "m1" not in was:
        yield "joined"
    if "m2" in now and "m2" not in was:
        yield "second_joined"
    if "m1" in was and "m1" not in now:
        yield "left"
    slices = [set(members["m1"].slice) if "m1" in members else set() for members in (was, now)]
    if slices[1] - slices[0]:
        yield "planned"
    if "m2" in now and now["m2"].slice and not ("m2" in was and was["m2"].slice):
        yield "revoked"


def _of_layouts(before: Any, after: Any) -> Iterator[str]:
    for change, one in after.transitions.items():
        known = before.transitions.get(change)
        if known is not None and known.phase is one.phase:
            continue
        match str(one.phase).lower():
            case "prepared":
                yield from ("prepared", "queue_prepared")
            case "held":
                yield "sealing"
            case "committed":
                is_second = len(after.topics[one.topic].layout.partitions) > FIRST_LAYOUT
                yield from ("heir_committed",) if is_second else ()
                yield from ("committed", "queue_committed", "checkpoint_committed")


FIRST_LAYOUT: Final = 4
"""Partitions of a lineage after one layout change, at most."""


def _of_owners(before: Any, after: Any, partition: int) -> Iterator[str]:
    owners = [
        topic.assignments[partition].owner.node
        for state in (before, after)
        for topic in state.topics.values()
        if partition in topic.assignments
    ]
    if len(owners) == 2 and owners[0] != owners[1]:
        yield from ("moved", "failed_over")


COUNTED: Final = {
    "leased": "rows_leased",
    "done": "rows_done",
    "parked": "rows_parked",
    "put_back": "parked_put_back",
    "saved": "rows_saved",
}


def steps_counted(world: StruckCohort) -> Iterator[str]:
    """What has happened by what is counted."""
    yield from (step for step, name in COUNTED.items() if world.counts[name])
    record = world.cast.record
    if isinstance(record, CohortRecord) and record._numbers:
        yield "acknowledging"


# ---- harms of members ----


def strike_member(world: StruckCohort, process: MemberProcess, harm: str, lasts_us: int) -> None:
    after, name = world.agenda.after, process.member_name
    machines = [machine.name for machine in world.machines]
    match harm:
        case "kill":
            process.kill()
            after(lasts_us, partial(world.cast.again, name))
        case "pause":
            process.pause(lasts_us)
        case "partition":
            world._cut([process.name], machines, lasts_us)
        case "answers_late":
            _hold_up(world, [(machine, process.name) for machine in machines], lasts_us)
        case "requests_late":
            _hold_up(world, [(process.name, machine) for machine in machines], lasts_us)
        case "hang_up":
            for machine in machines:
                process.hang_up(machine, 1.0)
        case "takeover":
            world.cast.begin(name, takeover=True)
        case "busy":
            known = process.habits
            process.habits = replace(known, work_us=BUSY_US)  # type: ignore[call-arg]
            after(SECOND_JOINS_US, lambda: setattr(process, "habits", known))


def _hold_up(world: StruckCohort, pairs: list[tuple[str, str]], lasts_us: int) -> None:
    """What is sent this way comes when the time is over, in order."""
    world.network.cut.update(pairs)
    world.agenda.after(lasts_us, lambda: world.network.cut.difference_update(pairs))
