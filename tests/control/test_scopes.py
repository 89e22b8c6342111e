"""Scopes in the metadata: one driver, ascending epochs, each decided once, and what awaits its publish."""

from __future__ import annotations

from typing import Any

import structlog.testing
from msgspec.structs import replace

from ringfence.control.machines.metadata import apply
from ringfence.control.machines.metadata_scopes import PENDING_MAX
from ringfence.control.model.commands import Command, SetConfig
from ringfence.control.model.ids import Index, NodeId, PartitionId, ScopeId, TopicId
from ringfence.control.model.results import Refused, ScopeBegun, ScopeDecided
from ringfence.control.model.scopes import (
    BeginScope,
    CommitScope,
    ConfirmPublished,
    ExpireScope,
    PendingCommit,
    StagedPart,
)
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.scope_requests import due_of, rule_of, tell_forgotten
from ringfence.native.wire import Code
from tests.control.commands import INIT, NODE, STORE, create, entry

TOPIC, TOKEN = TopicId(2), b"t" * 16


class Log:
    """Entries one after the other."""

    def __init__(self) -> None:
        self.state, self.index = EMPTY, 0
        self.do(INIT)
        self.do(create("public/default/t"))
        self.partition = PartitionId(self.state.topics[TOPIC].layout.partitions[0].partition)

    def do(self, command: Command) -> Any:
        self.index += 1
        self.state, result = apply(self.state, entry(self.index, command))
        return result

    def refused(self, command: Command) -> Refused:
        before = self.state
        result = self.do(command)
        assert isinstance(result, Refused), result
        assert self.state is before, "a refusal changes nothing (I15)"
        return result

    def begun(self, name: str = "s", instance: bytes = b"", *, one_off: bool = False) -> ScopeBegun:
        result = self.do(BeginScope(name=name, instance=instance, one_off=one_off))
        assert isinstance(result, ScopeBegun), result
        return result

    def commit(self, begun: ScopeBegun, epoch: int, rows: int = 5) -> CommitScope:
        part = StagedPart(TOPIC, self.partition, rows)
        return CommitScope(
            scope=begun.scope, driver=begun.driver, epoch=epoch, tokens=(TOKEN,), parts=(part,)
        )

    def confirm(self, begun: ScopeBegun, epoch: int) -> ConfirmPublished:
        return ConfirmPublished(scope=begun.scope, epoch=epoch, parts=((TOPIC, self.partition),))


HERE = Replica(node=NODE, store=STORE)


def test_an_epoch_is_committed_once_and_waits_for_its_publish() -> None:
    log = Log()
    begun = log.begun()
    assert (begun.committed, begun.decided) == (0, 0)
    assert log.do(log.commit(begun, 3)) == ScopeDecided(already=False)
    again = replace(log.commit(begun, 3), tokens=(b"x" * 16,))
    before = log.state
    assert log.do(again) == ScopeDecided(already=True)
    assert log.do(log.commit(begun, 2)) == ScopeDecided(already=True), "an earlier epoch is decided by it"
    assert log.state is before
    scope = log.state.scopes[begun.scope]
    assert rule_of(scope) == (begun.scope, begun.driver, 3, 0, [3])
    assert [(due.commit, due.gone) for due in due_of(log.state, HERE)] == [
        (PendingCommit(3, (TOKEN,), (StagedPart(TOPIC, log.partition, 5),)), False)
    ]
    assert list(due_of(log.state, Replica(node=NodeId(9), store=STORE))) == [], "another node owns it"
    log.do(log.confirm(begun, 3))
    assert log.state.scopes[begun.scope].pending == ()
    before = log.state
    log.do(log.confirm(begun, 3))
    assert log.state is before, "confirming again is no change"


def test_a_later_driver_fences_and_the_same_instance_is_the_same_driver() -> None:
    log = Log()
    first = log.begun(instance=b"run-1")
    assert log.begun(instance=b"run-1") == first
    second = log.begun(instance=b"run-2")
    assert second.scope == first.scope
    assert second.driver > first.driver
    assert log.refused(log.commit(first, 1)).code == Code.FENCED_PRODUCER
    assert log.refused(BeginScope(name="s", instance=b"run-1")).code == Code.FENCED_PRODUCER
    assert log.do(log.commit(second, 1)) == ScopeDecided(already=False)
    assert log.do(log.commit(first, 1)) == ScopeDecided(already=True), "what is committed is told to anybody"


def test_what_expired_is_never_committed_and_what_is_committed_never_expires() -> None:
    log = Log()
    begun = log.begun()
    assert log.do(ExpireScope(scope=begun.scope, epoch=4)) == ScopeDecided(already=False)
    assert "expired" in log.refused(log.commit(begun, 4)).message
    assert log.do(log.commit(begun, 5)) == ScopeDecided(already=False)
    assert log.do(ExpireScope(scope=begun.scope, epoch=5)) == ScopeDecided(already=True)
    assert log.begun().decided == 5


def test_commits_are_bounded_and_sound() -> None:
    log = Log()
    begun = log.begun()
    good = log.commit(begun, 1)
    for bad in (
        replace(good, epoch=0),
        replace(good, tokens=(b"short",)),
        replace(good, tokens=tuple(b"%016d" % number for number in range(16_385))),
        replace(good, tokens=(TOKEN, TOKEN)),
        replace(good, parts=(*good.parts, *good.parts)),
        replace(good, parts=(StagedPart(TOPIC, log.partition, 0),)),
        replace(good, scope=ScopeId(99)),
    ):
        assert log.refused(bad).code == Code.INVALID_ARGUMENT
    for epoch in range(1, PENDING_MAX + 1):
        log.do(log.commit(begun, epoch))
    assert log.refused(log.commit(begun, PENDING_MAX + 1)).code == Code.OVERLOADED
    assert [due.commit.epoch for due in due_of(log.state, HERE)] == list(range(1, PENDING_MAX + 1))


def test_a_commit_outlives_its_topic() -> None:
    log = Log()
    begun = log.begun()
    log.do(log.commit(begun, 1))
    gone: MetadataState = replace(log.state, topics={})
    assert [due.gone for due in due_of(gone, HERE)] == [True]


def test_scopes_longest_unused_are_forgotten_and_never_one_that_waits() -> None:
    log = Log()
    log.do(SetConfig(values={"scopes_max": 16}))
    waiting = log.begun("waiting")
    log.do(log.commit(waiting, 1))
    names = [f"s{number}" for number in range(15)]
    begun = [log.begun(name) for name in names]
    assert len(log.state.scopes) == 16
    log.begun("s0")
    log.begun("new")
    assert waiting.scope in log.state.scopes
    assert begun[1].scope not in log.state.scopes
    assert begun[0].scope in log.state.scopes, "it was used since"
    assert log.state.scopes_gone == begun[2].scope
    assert "forgotten" in log.refused(log.commit(begun[1], 1)).message
    assert log.begun("s1").scope > Index(begun[1].scope), "begun anew it is another scope"
    assert set(log.state.scope_names.values()) == set(log.state.scopes)


def test_a_named_scope_is_forgotten_only_when_no_one_off_is_left() -> None:
    log = Log()
    log.do(SetConfig(values={"scopes_max": 16}))
    nightly = log.begun("nightly")
    log.do(log.commit(nightly, 7))
    log.do(log.confirm(nightly, 7))
    for number in range(100):
        one = log.begun(f"run-{number}", one_off=True)
        assert one.scope in log.state.scopes
        log.do(log.commit(one, 1))
        log.do(log.confirm(one, 1))
    assert log.begun("nightly").committed == 7
    for number in range(15):
        before = log.state
        log.begun(f"named-{number}")
        assert log.begun("nightly").committed == 7, number
        gone = before.scopes.keys() - log.state.scopes.keys()
        assert all(before.scopes[scope].one_off for scope in gone)
    log.begun("one-more")
    assert "named-0" not in log.state.scope_names, "all are named: the longest unused goes"


def test_a_one_off_scope_that_waits_for_its_publish_is_kept_before_an_idle_named_one() -> None:
    log = Log()
    log.do(SetConfig(values={"scopes_max": 16}))
    waiting = [log.begun(f"run-{number}", one_off=True) for number in range(15)]
    for one in waiting:
        log.do(log.commit(one, 1))
    log.begun("idle")
    log.begun("new")
    assert "idle" not in log.state.scope_names
    assert all(one.scope in log.state.scopes for one in waiting)


def test_who_is_forgotten_is_told_unless_nobody_named_it() -> None:
    log = Log()
    log.do(SetConfig(values={"scopes_max": 16}))
    with structlog.testing.capture_logs() as lines:
        for number, one_off in enumerate([True] * 2 + [False] * 16):
            before = log.state
            log.begun(f"s{number}", one_off=one_off)
            tell_forgotten(before, log.state)
    told = [line["names"] for line in lines if line["event"] == "named scopes forgotten"]
    assert told == []
    with structlog.testing.capture_logs() as lines:
        before = log.state
        log.begun("new")
        tell_forgotten(before, log.state)
    assert [line["names"] for line in lines] == [["s2", "s3"]]


def test_rows_for_a_partition_that_is_not_there_are_refused_not_given_up() -> None:
    log = Log()
    begun = log.begun()
    there = log.commit(begun, 1)
    for part, code in (
        (StagedPart(TopicId(99), log.partition, 5), Code.UNKNOWN_TOPIC),
        (StagedPart(TOPIC, PartitionId(log.partition + 999), 5), Code.UNKNOWN_PARTITION),
    ):
        assert log.refused(replace(there, parts=(*there.parts, part))).code == code
    assert log.do(there) == ScopeDecided(already=False)
    gone = replace(there, parts=(StagedPart(TopicId(99), log.partition, 5),))
    assert log.do(gone) == ScopeDecided(already=True), "what is decided stays decided"
