"""Commands of changes: PREPARE, HOLD, COMMIT, OPEN, CLEAN, ABORT, each by compare-and-set.

`state_machines.reassignment` decides them; the rules that hold for every proposer are here and in
`reassignment_checks`. A repeated step finds the change in another phase, or ended, and is refused. Its
proposer then decides on the newer state.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, Index, NodeId, PartitionId, TopicId
from ringfence.control.model.reassignment_commands import (
    AbortChange,
    ChangeCommand,
    ChangeSteps,
    CleanChange,
    CommitChange,
    ConfirmLeft,
    ConfirmOpened,
    FailOver,
    ForceOwner,
    HoldChange,
    PrepareChange,
    ReleaseKept,
)
from ringfence.control.model.reassignments import (
    Change,
    ChangeId,
    ChangeKind,
    ChangePhase,
    LeftoverKind,
    LogEnd,
)
from ringfence.control.model.rebalances import MoveState
from ringfence.control.model.results import ChangesPrepared, Done, Refused, Result
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Assignment, Replica, Topic
from ringfence.control.state_machines.metadata import reassignment_checks
from ringfence.control.state_machines.metadata.move_records import try_fault, with_step, with_try
from ringfence.control.state_machines.metadata.reassignment_rules import (
    abort,
    assignment_of,
    clean,
    release_copies,
    take_up_copies,
    with_assignment,
    with_change,
    with_failovers,
    with_leftovers,
    without_adopts,
    without_leftover,
)
from ringfence.control.state_machines.metadata.refusals import conflict, invalid, stale
from ringfence.control.state_machines.metadata.topics import with_start_epochs

# Partitions of one ReleaseKept: an entry of 20 KB.
RELEASES_MAX = 1_024
# Steps of one ChangeSteps: COMMITs with three proofs each make an entry of 100 KB.
STEPS_MAX = 256
# The cluster's level from which on all nodes know ChangeSteps.
STEPS_LEVEL = 1
ChangeStep = CommitChange | ConfirmOpened | CleanChange


def validate(state: MetadataState, command: ChangeCommand) -> Refused | None:
    match command:
        case PrepareChange():
            return reassignment_checks.prepare_fault(state, command) or try_fault(state, command)
        case FailOver():
            return reassignment_checks.fail_over_fault(state, command)
        case HoldChange(partition=partition, change=change):
            return reassignment_checks.open_fault(
                state, partition, change, (ChangePhase.PREPARED,), "HOLD"
            ) or _failover_fault(state, command)
        case CommitChange():
            return reassignment_checks.commit_fault(state, command)
        case ForceOwner():
            return reassignment_checks.force_fault(state, command)
        case ConfirmOpened():
            return check_opened(state, command)
        case CleanChange(partition=partition, change=change):
            return reassignment_checks.open_fault(state, partition, change, (ChangePhase.OPENED,), "CLEAN")
        case ReleaseKept():
            return check_release(state, command)
        case AbortChange(partition=partition, change=change):
            phases = (ChangePhase.PREPARED, ChangePhase.HELD)
            return reassignment_checks.open_fault(
                state, partition, change, phases, "ABORT"
            ) or _failover_fault(state, command)
        case _:
            return check_several(state, command)


def check_several(state: MetadataState, command: ChangeSteps | ConfirmLeft) -> Refused | None:
    return check_steps(state, command) if isinstance(command, ChangeSteps) else check_leftover(state, command)


def execute(state: MetadataState, command: ChangeCommand, index: Index) -> tuple[MetadataState, Result]:
    match command:
        case PrepareChange():
            return prepare(state, command, index)
        case FailOver():
            return fail_over(state, command, index)
        case HoldChange(partition=partition):
            changed = replace(state.changes[partition], phase=ChangePhase.HELD)
            return with_step(with_change(state, changed), changed, MoveState.VERIFYING), Done()
        case CommitChange(partition=partition):
            change = state.changes[partition]
            change = replace(change, stopped_us=command.stopped_us)
            done = commit(state, change, command.owner, command.end, index)
            copied = {"rows": command.rows, "bytes": command.bytes}
            return with_step(done, change, MoveState.COMMITTED, error="", **copied), Done()
        case ForceOwner():
            return force(state, command, index), Done()
        case ConfirmOpened(partition=partition):
            return with_change(state, replace(state.changes[partition], phase=ChangePhase.OPENED)), Done()
        case CleanChange(partition=partition, gap_us=gap_us):
            return clean(state, state.changes[partition], gap_us), Done()
        case ReleaseKept(kept=kept):
            return release(state, kept), Done()
        case AbortChange(partition=partition, why=why):
            return abort(state, state.changes[partition], index, why), Done()
        case ChangeSteps(steps=steps):
            return take_steps(state, steps, index), Done()
        case ConfirmLeft(partition=partition, change=change, store=store):
            return without_leftover(state, partition, change, store), Done()


def prepare(state: MetadataState, command: PrepareChange, index: Index) -> tuple[MetadataState, Result]:
    now = state.topics[command.topic].assignments[command.partition]
    present = {place.node: place for place in now.replicas}
    replicas = tuple(present.get(node) or _replica_on(state, node) for node in command.replicas)
    owner = next(place for place in replicas if place.node == command.owner)
    attempt = 1
    if command.run:
        state, attempt = with_try(state, command.partition)
    change = Change(
        change=ChangeId(index),
        kind=_kind(now, owner, replicas),
        topic=command.topic,
        partition=command.partition,
        epoch=now.epoch,
        owner=owner,
        replicas=replicas,
        adds=tuple(place for place in replicas if place not in now.replicas),
        leaves=tuple(place for place in now.replicas if place not in replicas),
        run=command.run,
        attempt=attempt,
        before=(now.owner, *(place for place in now.replicas if place != now.owner)),
    )
    state = take_up_copies(state, change.partition, change.adds)
    return with_change(state, change), ChangesPrepared(change=index, partitions=1)


def fail_over(state: MetadataState, command: FailOver, index: Index) -> tuple[MetadataState, Result]:
    place = Replica(node=command.node, store=state.nodes[command.node].store)
    after = with_failovers(state, place, index)
    number = ChangeId(index)
    begun = sum(
        change.change == number and change.kind is ChangeKind.FAILOVER for change in after.changes.values()
    )
    return after, ChangesPrepared(change=index, partitions=begun)


def commit(
    state: MetadataState, change: Change, owner: NodeId, end: LogEnd | None, index: Index
) -> MetadataState:
    committed, assignment = assignment_at_commit(change, owner, end, index)
    topic: Topic = state.topics[change.topic]
    assigned = with_assignment(state, topic, change.partition, assignment, index)
    state = without_adopts(with_change(assigned, committed), change)
    return with_leftovers(state, change, change.adds, LeftoverKind.ADOPT)


def assignment_at_commit(
    change: Change, owner: NodeId, end: LogEnd | None, index: Index
) -> tuple[Change, Assignment]:
    """The change and the partition's assignment once `owner` is committed by entry `index`."""
    place = next(replica for replica in change.replicas if replica.node == owner)
    others = tuple(replica for replica in change.replicas if replica != place)
    assignment = Assignment(owner=place, epoch=Epoch(index), replicas=(place, *others))
    return replace(change, phase=ChangePhase.COMMITTED, owner=place, end=end), assignment


def force(state: MetadataState, command: ForceOwner, index: Index) -> MetadataState:
    """Commit an owner without a majority. New nodes among the replicas follow the owner; they have no copy to
    adopt.

    A log start of the history that ends here is not about rows of the new history at the same offsets.
    Replicas with more of the old history truncate it: the new epoch permits that.
    """
    change = state.changes[command.partition]
    state = _with_forced(_with_start_of_past(state, change), change, index)
    if command.replicas:
        present = {place.node: place for place in change.replicas}
        replicas = tuple(present.get(node) or _replica_on(state, node) for node in command.replicas)
        state = take_up_copies(state, change.partition, replicas)
        change = replace(change, replicas=replicas)
    return commit(state, change, command.owner, None, index)


def _with_start_of_past(state: MetadataState, change: Change) -> MetadataState:
    """Give a log start from a program of level 0 the epoch of the owner that is replaced."""
    topic, partition = state.topics[change.topic], change.partition
    if not state.level or partition not in topic.starts or topic.start_epoch(partition):
        return state
    topic = with_start_epochs(topic, {partition: topic.assignments[partition].epoch})
    return replace(state, topics={**state.topics, topic.topic: topic})


def _with_forced(state: MetadataState, change: Change, index: Index) -> MetadataState:
    """Record the forced epoch, from level 1 on: older programs do not know the field."""
    if not state.level:
        return state
    topic = state.topics[change.topic]
    forced = {} if topic.forced is UNSET else topic.forced
    topic = replace(topic, forced={**forced, change.partition: Epoch(index)})
    return replace(state, topics={**state.topics, topic.topic: topic})


def check_opened(state: MetadataState, command: ConfirmOpened) -> Refused | None:
    fault = reassignment_checks.open_fault(
        state, command.partition, command.change, (ChangePhase.COMMITTED,), "OPEN"
    )
    if fault is not None:
        return fault
    epoch = assignment_of(state, state.changes[command.partition]).epoch
    if command.epoch == epoch:
        return None
    return stale(f"partition {command.partition} has owner epoch {epoch}, the OPEN is for {command.epoch}")


def check_steps(state: MetadataState, command: ChangeSteps) -> Refused | None:
    """Refuse the entry if all of its steps are refused, with the reason of the first one."""
    if state.level < STEPS_LEVEL:
        return conflict(
            f"the cluster has level {state.level}, entries with several steps need level {STEPS_LEVEL}; "
            "send each step alone, or finalize the upgrade"
        )
    partitions = {step.partition for step in command.steps}
    if not 0 < len(command.steps) <= STEPS_MAX or len(partitions) != len(command.steps):
        return invalid(
            f"{len(command.steps)} steps of {len(partitions)} partitions: an entry has 1 to {STEPS_MAX}, "
            "each of another partition"
        )
    first: Refused | None = None
    for step in command.steps:
        fault = validate(state, step)
        if fault is None:
            return None
        first = first or fault
    return first


def take_steps(state: MetadataState, steps: tuple[ChangeStep, ...], index: Index) -> MetadataState:
    """Execute the steps that are valid; another entry may have made the others invalid.

    Each step is about another partition, so the steps before it do not change its verdict.
    """
    failovers: list[ChangeStep] = []
    before = state
    for step in steps:
        if validate(before, step) is not None:
            continue
        if before.changes[step.partition].kind is ChangeKind.FAILOVER:
            failovers.append(step)
        else:
            state, _ = execute(state, step, index)
    return take_failover_steps(state, failovers, index) if failovers else state


def take_failover_steps(state: MetadataState, steps: list[ChangeStep], index: Index) -> MetadataState:
    """Like `execute` for each step, with one copy of each map: an entry may end hundreds of failovers.

    A failover adds and removes no replica, and belongs to no run.
    """
    changes, assigned = dict(state.changes), dict[TopicId, dict[PartitionId, Assignment]]()
    for step in steps:
        partition = step.partition
        change = changes[partition]
        match step:
            case CommitChange():
                change = replace(change, stopped_us=step.stopped_us)
                changes[partition], assignment = assignment_at_commit(change, step.owner, step.end, index)
                assigned.setdefault(change.topic, {})[partition] = assignment
            case ConfirmOpened():
                changes[partition] = replace(change, phase=ChangePhase.OPENED)
            case CleanChange():
                del changes[partition]
    topics = dict(state.topics) if assigned else state.topics
    for number, new_assignments in assigned.items():
        topic = topics[number]
        topics[number] = replace(topic, assignments={**topic.assignments, **new_assignments}, changed=index)
    return replace(state, changes=changes, topics=topics)


def check_release(state: MetadataState, command: ReleaseKept) -> Refused | None:
    if len(command.kept) > RELEASES_MAX:
        return invalid(f"{len(command.kept)} releases, {RELEASES_MAX} at most in one entry")
    if any(_is_kept(state, *pair) for pair in command.kept):
        return None
    return stale(f"none of these {len(command.kept)} changes can be reversed any more")


def release(state: MetadataState, kept: tuple[tuple[PartitionId, ChangeId], ...]) -> MetadataState:
    """Release the copies that are still kept; another change may have replaced some of them."""
    for partition, change in kept:
        if _is_kept(state, partition, change):
            state = release_copies(state, partition)
    return state


def _is_kept(state: MetadataState, partition: PartitionId, change: ChangeId) -> bool:
    current = state.kept.get(partition)
    return current is not None and current.change == change


def check_leftover(state: MetadataState, command: ConfirmLeft) -> Refused | None:
    listed = state.leftovers.get(command.partition, ())
    if any(left.change == command.change and left.place.store == command.store for left in listed):
        return None
    return invalid(
        f"change {command.change} of partition {command.partition} has no step left for store "
        f"{command.store.hex()}"
    )


def _failover_fault(state: MetadataState, command: HoldChange | AbortChange) -> Refused | None:
    """Refuse to hold or abort a FAILOVER."""
    change = state.changes[command.partition]
    if change.kind is not ChangeKind.FAILOVER:
        return None
    return conflict(f"change {change.change} is a FAILOVER; it can be neither held nor aborted")


def _replica_on(state: MetadataState, node: NodeId) -> Replica:
    return Replica(node=node, store=state.nodes[node].store)


def _kind(now: Assignment, owner: Replica, replicas: tuple[Replica, ...]) -> ChangeKind:
    if set(replicas) == set(now.replicas):
        return ChangeKind.HAND_OVER
    return ChangeKind.REPLICAS if owner == now.owner else ChangeKind.MOVE
