"""Commands of layout changes: the way of one change, and what each step needs."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, NodeId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.ranges import tile
from ringfence.control.model.reassignment_commands import AbortChange, CommitChange, HoldChange
from ringfence.control.model.reassignments import ChangeId, ChangeKind, ChangePhase, Proof
from ringfence.control.model.topics import Assignment
from ringfence.native.wire import Code
from tests.fakes.layout_log import END, LayoutLog

# ---- the way of one change --------------------------------------------------------------------------


def test_a_split_makes_the_next_version_under_its_own_number_in_five_entries() -> None:
    log = LayoutLog(3, replication=3)
    source, before = log.active[1], log.now
    log.must(log.split(source))
    number = log.number()
    assert log.now is before, "a PREPARE leaves the topic, and so its table, as it is"
    seal = log.state.changes[source.partition]
    assert (seal.change, seal.kind, seal.phase) == (number, ChangeKind.SEAL, ChangePhase.PREPARED)
    assert [child.partition for child in log.transition.children] == [number << 16, number << 16 | 1]
    log.must(log.hold())
    assert (log.transition.phase, log.state.changes[source.partition].phase) == (ChangePhase.HELD,) * 2
    places = [child.replicas for child in log.transition.children]
    log.must(log.commit())
    assert log.state.changes == {}
    assert (log.transition.version, log.transition.before, log.transition.after) == (2, 4, 5)
    assert (log.transition.adoption_generation, log.transition.stopped_us) == (log.at, 17)
    assert [child.replicas for child in log.transition.children] == [(), ()]
    parts = log.now.layout.by_id()
    sealed, children = parts[source.partition], log.active[1:3]
    assert (sealed.sealed_version, sealed.children) == (2, tuple(part.partition for part in children))
    assert log.now.seal(source.partition) is not None
    assert log.now.seal(source.partition).end == END  # type: ignore[union-attr]
    assert log.now.assignments[source.partition] == before.assignments[source.partition]
    for child, replicas in zip(children, places, strict=True):
        assigned = log.now.assignments[child.partition]
        assert (child.parents, child.created_version) == ((source.partition,), 2)
        assert assigned == Assignment(owner=replicas[0], epoch=Epoch(number), replicas=replicas)
    assert log.now.changed == log.at
    log.must(log.opened())
    log.must(log.finalize())
    assert (log.state.transitions, log.at) == ({}, number + 4)
    log.agree()


def test_many_sources_and_many_children_are_one_change() -> None:
    log = LayoutLog(3, partitions=6)
    log.done(log.repartition(tile(4)))
    assert [part.slots for part in log.active] == list(tile(4))
    assert (log.now.layout.version, len(log.now.layout.partitions)) == (2, 10)
    assert not {*tile(4)} & {*tile(6)}, "no partition could stay"
    # A child has the sources that overlap it as parents, and no others.
    for part in log.active:
        overlapping = {
            old.partition
            for old in log.now.layout.partitions
            if not old.is_active and old.slots.lo <= part.slots.hi and part.slots.lo <= old.slots.hi
        }
        assert {*part.parents} == (overlapping if part.created_version == 2 else set())


def test_two_splits_commit_in_any_order_and_each_makes_one_version() -> None:
    log = LayoutLog(3)
    log.must(log.split(log.active[0]))
    first = log.number()
    log.must(log.split(log.active[2]))
    second = log.number()
    for number in (second, first):
        log.must(log.hold(number))
        log.must(log.commit(number))
    versions = [log.state.transitions[number].version for number in (first, second)]
    assert versions == [3, 2]
    assert [part.partition for part in log.now.layout.partitions] == sorted(log.now.layout.by_id())


# ---- later steps ------------------------------------------------------------------------------------


def test_each_step_needs_the_phase_before_it() -> None:
    log = LayoutLog(3)
    steps = ("hold", "commit", "opened", "finalize", "abort")
    allowed = {
        ChangePhase.PREPARED: {"hold", "abort"},
        ChangePhase.HELD: {"commit", "abort"},
        ChangePhase.COMMITTED: {"opened"},
        ChangePhase.OPENED: {"finalize"},
    }
    for reached, phase in zip(("prepare", "hold", "commit", "opened"), allowed, strict=True):
        log = LayoutLog(3)
        log.done(log.split(log.active[0]), upto=reached)
        for step in steps:
            if step not in allowed[phase]:
                refusal = log.refuses(getattr(log, step)(), f"is {phase}")
                assert ("only goes forward" in refusal.message) == (not log.transition.may_abort)
    command = log.finalize()
    log.must(command)
    assert log.refuses(command, "is over").code == Code.TOO_OLD


def test_a_commit_needs_the_ends_of_all_sources_and_all_children_under_the_number() -> None:
    log = LayoutLog(3)
    number = log.done(log.merge(log.active[0], log.active[1]), upto="hold")
    ready = log.commit()
    child = ready.created[0][0]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"ends": ready.ends[:1]}, "its COMMIT has the ends of"),
        ({"ends": (*ready.ends, ready.ends[0])}, "its COMMIT has the ends of"),
        ({"created": ()}, "its COMMIT has"),
        ({"created": ((child, LogEnd(Epoch(number - 1), 2, 0, 5)),)}, "created under its number"),
        (
            {"ends": tuple((source, replace(END, epoch=Epoch(number + 1))) for source, _ in ready.ends)},
            "fence",
        ),
    ]
    for values, words in wrong:
        assert log.refuses(replace(ready, **values), words).code == Code.INVALID_ARGUMENT
    log.refuses(replace(ready, change=ChangeId(number - 1)), "is over, or never began")
    log.must(ready)


def test_a_seal_is_neither_held_nor_aborted_nor_committed_alone() -> None:
    log = LayoutLog(3)
    number = log.done(log.split(log.active[0]), upto="hold")
    part = log.active[0].partition
    which: dict[str, Any] = {"partition": part, "change": number}
    alone: list[Command] = [
        HoldChange(**which),
        AbortChange(**which, why="test"),
        CommitChange(
            **which, epoch=log.epoch(part), owner=NodeId(1), end=END, proofs=(Proof(log.place(1), END),)
        ),
    ]
    for command in alone:
        log.refuses(command, "part of a layout change")
