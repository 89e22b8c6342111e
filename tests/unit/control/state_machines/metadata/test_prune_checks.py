"""When a layout change is finalized, and a sealed partition pruned."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Index, PartitionId
from ringfence.control.model.reassignment_commands import AbortChange, ConfirmLeft, PrepareChange
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.results import Refused
from ringfence.control.model.scopes import PendingCommit, StagedPart
from ringfence.control.state_machines.metadata import drained
from ringfence.native.wire import Code
from tests.fakes.layout_log import END, LayoutLog, scoped


class Reader:
    """A registered reader that has read these partitions."""

    def __init__(self, created: int, *read: PartitionId) -> None:
        self.name, self.created, self.read = "group", Index(created), read

    def has_read(self, partition: PartitionId) -> bool:
        return partition in self.read


def test_registered_readers_hold_finalize_and_prune_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LayoutLog(3)
    source = log.active[0].partition
    number = log.done(log.split(log.active[0]), upto="opened")
    readers = [Reader(1), Reader(log.at + 5)]
    monkeypatch.setattr(drained, "registered_readers", lambda *_: tuple(readers))
    log.refuses(log.finalize(), "registered readers are not through")
    readers[0] = Reader(1, source)
    log.must(log.finalize(number))  # the later reader holds the prune only
    log.time_ms += 1_200_000
    log.refuses(log.prune(source), "readers group are not through it")
    log.time_ms += 86_400_000
    log.must(log.prune(source))


def test_a_reader_that_never_returns_holds_a_finalize_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LayoutLog(3)
    log.done(log.split(log.active[0]), upto="opened")
    monkeypatch.setattr(drained, "registered_readers", lambda *_: (Reader(1),))
    log.refuses(log.finalize())
    log.time_ms += 86_400_000
    log.must(log.finalize())


def test_parents_are_pruned_first_and_children_note_where_they_ended() -> None:
    log = LayoutLog(3, replication=3)
    first = log.active[0]
    log.done(log.split(first))
    second = log.active[0]
    log.done(log.split(second))
    log.refuses(log.prune(first.partition), "sealed 0 ms ago", "`resolve_keep_s`")
    log.time_ms += 1_200_000
    log.refuses(log.prune(second.partition), f"its parents {first.partition}")
    log.refuses(log.prune(first.partition, second.partition), "its parents")
    log.refuses(log.prune(log.active[0].partition), "is ACTIVE")
    log.refuses(log.prune(), "0 partitions to prune")
    version = log.now.layout.version
    log.must(log.prune(first.partition))
    assert (log.now.layout.version, log.now.changed) == (version, log.at)
    assert first.partition not in log.now.assignments
    assert log.refuses(log.prune(first.partition), "no partition").code == Code.UNKNOWN_PARTITION
    [old] = log.now.pruned_parents(second.partition)
    assert (old.partition, old.offset) == (first.partition, END.offset)
    assert len(log.state.leftovers[first.partition]) == 3
    log.must(log.prune(second.partition))
    assert log.now.pruned_parents(second.partition) == ()
    assert all(len(log.now.pruned_parents(part.partition)) == 1 for part in log.active[:3])
    log.agree()


def test_nothing_is_pruned_that_an_open_change_a_leftover_or_a_scope_needs() -> None:
    log = LayoutLog(3)
    scope, source = scoped(log), log.active[0].partition
    number = log.done(log.split(log.active[0]), upto="opened")
    log.time_ms += 2_000_000
    log.refuses(log.prune(source), "not finalized")
    log.must(log.finalize(number))
    other = next(node for node in log.nodes if node != log.now.assignments[source].owner.node)
    log.must(
        PrepareChange(
            topic=log.topic, partition=source, epoch=log.epoch(source), owner=other, replicas=(other,)
        )
    )
    log.refuses(log.prune(source), "is in an open change")
    log.must(AbortChange(partition=source, change=ChangeId(log.at - 1), why="test"))
    log.refuses(log.prune(source), "a step of one left")
    log.must(ConfirmLeft(partition=source, change=ChangeId(log.at - 3), store=log.place(int(other)).store))
    waiting = PendingCommit(1, (b"t" * 16,), (StagedPart(log.topic, source, 3),))
    before, held = log.state, replace(log.state.scopes[scope[0]], committed=1, pending=(waiting,))
    log.state = log.twin = replace(log.state, scopes={scope[0]: held})
    log.refuses(log.prune(source), "scope 's'")
    log.state = log.twin = before
    log.must(log.prune(source))


def test_a_failed_command_says_which_step_it_was() -> None:
    log = LayoutLog(3)
    for command in (log.hold(ChangeId(5)), log.opened(ChangeId(5)), log.finalize(ChangeId(5))):
        result = log.do(command)
        assert isinstance(result, Refused)
        assert result.message == "layout change 5 is over, or never began"
