"""Failovers of many partitions at once: few entries, few looks, and the same end as one by one."""

from __future__ import annotations

import itertools
from hashlib import blake2b

from msgspec.structs import replace

from ringfence.control.model.commands import Command, SetAddresses
from ringfence.control.model.ids import Epoch, Index, NodeId
from ringfence.control.model.reassignment_commands import (
    ChangeSteps,
    CleanChange,
    CommitChange,
    ConfirmOpened,
)
from ringfence.control.model.reassignments import Change, ChangeId, ChangePhase, Proof
from ringfence.control.model.results import Refused
from ringfence.control.model.state import EMPTY, MetadataState, canonical_bytes, fields_of, packed
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.reassignments import ChangeStep, execute, validate
from ringfence.control.state_machines.metadata.state_hash import StateDigests
from ringfence.control.state_machines.node_orders import LocateNode, between
from ringfence.control.state_machines.reassignment.coordinator import Coordinator, combine_steps
from ringfence.control.state_machines.reassignment.messages import (
    Ended,
    Fence,
    LookOpen,
    OrderDone,
    ReassignmentAnswer,
    ReassignmentOrder,
)
from tests.fakes.metadata_log import END, MetadataLog

PARTITIONS = 40
HASHED_BY_ENTRY = {
    "nodes",
    "topics",
    "names",
    "producers",
    "tombstones",
    "sessions",
    "config",
    "removed",
    "changes",
    "leftovers",
    "moves",
    "kept",
    "witnesses",
}


def wide(level: int) -> MetadataLog:
    """A topic of three replicas, all owned by node 1, which has failed."""
    lab = MetadataLog(replication=3, partitions=PARTITIONS)
    lab.state = replace(lab.state, level=level)
    lab.must(lab.fail(1))
    assert len(lab.state.changes) == PARTITIONS
    return lab


def commits(lab: MetadataLog) -> tuple[CommitChange, ...]:
    def proofs(change: Change) -> tuple[Proof, ...]:
        return tuple(Proof(place, END) for place in change.replicas if place.node != 1)

    return tuple(
        CommitChange(
            partition=change.partition,
            change=change.change,
            epoch=change.epoch,
            owner=proofs(change)[0].place.node,
            end=END,
            proofs=proofs(change),
        )
        for change in lab.state.changes.values()
    )


def test_steps_of_many_partitions_in_one_entry_end_as_one_by_one() -> None:
    lab = wide(1)
    index = lab.at
    lab.must(ChangeSteps(steps=commits(lab)))
    owners = {one.owner.node for one in lab.state.topics[lab.topic].assignments.values()}
    epochs = {one.epoch for one in lab.state.topics[lab.topic].assignments.values()}
    assert (1 not in owners, epochs) == (True, {index + 1}), "each is owned anew, under the entry's index"
    opened = tuple(
        ConfirmOpened(partition=number, change=change.change, epoch=index + 1)  # type: ignore[arg-type]
        for number, change in lab.state.changes.items()
    )
    lab.must(ChangeSteps(steps=opened))
    cleaned = tuple(
        CleanChange(partition=number, change=change.change) for number, change in lab.state.changes.items()
    )
    lab.must(ChangeSteps(steps=cleaned))
    assert not lab.state.changes
    alone = wide(1)
    for step in commits(alone):
        alone.must(step)
    for number, one in alone.state.topics[alone.topic].assignments.items():
        change = alone.state.changes[number].change
        alone.must(ConfirmOpened(partition=number, change=change, epoch=one.epoch))
    for clean in cleaned:
        alone.must(clean)
    shown = [
        [(one.owner, {*one.replicas}) for one in state.topics[lab.topic].assignments.values()]
        for state in (lab.state, alone.state)
    ]
    assert shown[0] == shown[1]


def test_an_entry_with_several_steps_gives_the_bytes_of_the_same_steps_one_after_the_other() -> None:
    """Failovers are taken with one copy of each map, a planned change as if it stood alone."""
    lab = wide(1)
    first, second, late, *others = commits(lab)
    for done in (first, second):
        lab.must(done)
    lab.partition = second.partition
    clean_late = CleanChange(partition=late.partition, change=ChangeId(1))
    opened = ConfirmOpened(partition=first.partition, change=first.change, epoch=Epoch(lab.at - 1))
    lab.must(lab.opened())
    cleaned = lab.clean()
    handed = first.partition
    for step in (opened, CleanChange(partition=handed, change=first.change)):
        lab.must(step)
    lab.partition = handed
    lab.must(lab.prepare(1, 2, 5, owner=5))
    lab.must(lab.hold())
    planned = lab.commit({2: END, 5: END})
    steps: tuple[ChangeStep, ...] = (planned, cleaned, clean_late, *others[:6])
    index, before = Index(lab.at + 1), canonical_bytes(lab.state)
    expected = lab.state
    for one in steps:
        if validate(expected, one) is None:
            expected, _ = execute(expected, one, index)
    after, _ = execute(lab.state, ChangeSteps(steps=steps), index)
    assert canonical_bytes(after) == canonical_bytes(expected) != before
    assert canonical_bytes(lab.state) == before, "the state before is as it was"
    assert after.changes[handed].phase is ChangePhase.COMMITTED
    assert second.partition not in after.changes
    assert after.changes[late.partition].phase is ChangePhase.PREPARED, "of another change"
    assert [*after.changes] == [*expected.changes], "in the same order, too"


def test_a_step_that_is_refused_holds_no_other_up() -> None:
    lab = wide(1)
    first, *others = commits(lab)
    lab.must(first)
    lab.must(ChangeSteps(steps=(first, *others)))
    before = canonical_bytes(lab.state)
    lab.refuses(ChangeSteps(steps=(first, *others)), "is COMMITTED")
    assert canonical_bytes(lab.state) == before
    lab.refuses(ChangeSteps(steps=()), "0 steps")
    lab.refuses(ChangeSteps(steps=(first, first)), "each of another partition")


def test_programs_of_level_0_are_sent_no_entry_that_they_do_not_know() -> None:
    lab = wide(0)
    lab.refuses(ChangeSteps(steps=commits(lab)), "level 0", "finalize")
    assert all(not isinstance(one, ChangeSteps) for one in worked(lab)[0])
    assert not lab.state.changes


def test_a_wide_failover_takes_a_few_entries() -> None:
    lab = wide(1)
    entries, _ = worked(lab)
    assert not lab.state.changes
    assert len(entries) <= 6, "COMMIT, OPEN and CLEAN of all partitions, and not of each"


def worked(lab: MetadataLog) -> tuple[list[Command], int]:
    """Let a coordinator work on a cluster that answers at once: its entries, and its rounds."""
    coordinator, now_ms = Coordinator(), 0
    entries: list[Command] = []
    coordinator.begin(0)
    for number in range(1_000):
        wanted = coordinator.step(lab.state, now_ms)
        entries += wanted.entries
        for command in wanted.entries:
            assert not isinstance(lab.do(command), Refused), command
        if not lab.state.changes:
            return entries, number
        for order in wanted.orders:
            answer = answered(order)
            if answer is not None:
                coordinator.observe_answer(order, answer)
        now_ms += 300
    raise AssertionError("it does not end")


def answered(order: ReassignmentOrder) -> ReassignmentAnswer | None:
    match order:
        case Fence(to=to):
            return None if to.node == 1 else Ended(end=END)
        case LookOpen():
            return OrderDone()
        case _:
            return None


def test_one_step_alone_is_the_entry_that_it_was() -> None:
    lab = wide(1)
    step = commits(lab)[0]
    assert combine_steps([step]) == (step,)
    assert combine_steps([]) == ()


def test_a_node_is_told_where_others_are_reached_when_they_become_its_partners() -> None:
    """The short look over what has changed finds what one over everything does."""
    lab = wide(1)
    states = [EMPTY, lab.state]
    moved = SetAddresses(node=NodeId(2), addresses=("tcp://127.0.0.1:9999",), http=())
    steps: list[Command] = [*commits(lab)[:3], moved, *commits(lab)[3:9]]
    for command in steps:
        lab.must(command)
        states.append(lab.state)
    for before, after in itertools.pairwise(states):
        for place in (lab.place(node) for node in lab.nodes):
            told = {
                order.node
                for phase in between(before, after, place)
                for order in phase
                if isinstance(order, LocateNode)
            }
            assert told == located(before, after, place)


def located(before: MetadataState, after: MetadataState, here: Replica) -> set[NodeId]:
    def partners(state: MetadataState) -> set[NodeId]:
        return {
            replica.node
            for topic in state.topics.values()
            if topic.replication > 1
            for one in topic.assignments.values()
            if here in (one.owner, *one.replicas)
            for replica in (one.owner, *one.replicas)
            if replica != here
        }

    moved = {
        number
        for number, node in after.nodes.items()
        if number not in before.nodes or before.nodes[number].addresses != node.addresses
    }
    return {node for node in partners(after) if node in moved or node not in partners(before)}


def test_the_hash_after_each_entry_is_that_of_the_whole_state() -> None:
    """A node keeps packed parts of a topic from state to state; one that has just started has none."""
    lab = wide(1)
    kept, seen = StateDigests(), set[bytes]()
    for command in commits(lab)[:5]:
        lab.must(command)
        seen.add(kept.of(lab.state))
        assert kept.of(lab.state) == plain_hash(lab.state)
    assert len(seen) == 5


def plain_hash(state: MetadataState) -> bytes:
    """As nodes of all versions have it: of each entry with its key, then of these hashes, map by map."""
    total = blake2b(digest_size=16)
    for name in fields_of(state):
        value = getattr(state, name)
        if name not in HASHED_BY_ENTRY:
            total.update(blake2b(packed(value), digest_size=16).digest())
            continue
        whole = blake2b(digest_size=16)
        for key in sorted(value):
            whole.update(blake2b(packed([key, value[key]]), digest_size=16).digest())
        total.update(whole.digest())
    return total.digest()
