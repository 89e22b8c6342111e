"""Scopes in the metadata: one driver, ascending epochs, each decided once, and what awaits its publish."""

from __future__ import annotations

from typing import Any

import structlog.testing
from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import Index, NodeId, PartitionId, ScopeId, TopicId
from ringfence.control.model.results import ScopeBegun, ScopeDecided
from ringfence.control.model.scopes import BeginScope, ExpireScope, PendingCommit, StagedPart
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.transactions.requests import (
    PUBLISHES_MAX,
    PUBLISHES_PER_PARTITION_MAX,
    PendingPart,
    log_forgotten,
    next_round,
    pending_parts,
    scope_rule,
)
from ringfence.control.state_machines.metadata.scopes import FENCED_MAX, KEPT_MAX, PENDING_MAX
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import NODE, STORE, create
from tests.fakes.scope_log import TOKEN, TOPIC, ScopeLog

HERE = Replica(node=NODE, store=STORE)


def test_an_epoch_is_committed_once_and_waits_for_its_publish() -> None:
    log = ScopeLog()
    begun = log.begun()
    assert (begun.committed, begun.decided) == (0, 0)
    assert log.do(log.commit(begun, 3)) == ScopeDecided(already=False)
    again = replace(log.commit(begun, 3), tokens=(b"x" * 16,))
    before = log.state
    assert log.do(again) == ScopeDecided(already=True)
    assert log.do(log.commit(begun, 2)) == ScopeDecided(already=True), "an earlier epoch is decided by it"
    assert log.state is before
    scope = log.state.scopes[begun.scope]
    assert scope_rule(scope) == (begun.scope, begun.driver, 3, 0, 0, [3], [])
    assert [(due.commit, due.is_deleted) for due in pending_parts(log.state, HERE)] == [
        (PendingCommit(3, (TOKEN,), (StagedPart(TOPIC, log.partition, 5),)), False)
    ]
    assert list(pending_parts(log.state, Replica(node=NodeId(9), store=STORE))) == [], "another node owns it"
    log.do(log.confirm(begun, 3))
    assert log.state.scopes[begun.scope].pending == ()
    before = log.state
    log.do(log.confirm(begun, 3))
    assert log.state is before, "confirming again is no change"


def test_a_later_driver_fences_and_the_same_instance_is_the_same_driver() -> None:
    log = ScopeLog()
    first = log.begun(instance=b"run-1")
    assert log.begun(instance=b"run-1") == first
    second = log.begun(instance=b"run-2")
    assert second.scope == first.scope
    assert second.driver > first.driver
    assert log.refused(log.commit(first, 1)).code == Code.FENCED_PRODUCER
    assert log.refused(BeginScope(name="s", instance=b"run-1")).code == Code.FENCED_PRODUCER
    assert log.do(log.commit(second, 1)) == ScopeDecided(already=False)
    assert log.do(log.commit(first, 1)) == ScopeDecided(already=True), "what is committed is told to anybody"


def test_a_begin_that_comes_late_fences_none_that_it_did_not_know() -> None:
    log = ScopeLog()
    newest = log.begun(instance=b"run-0", after=Index(0))
    late = BeginScope(name="s", instance=b"late", after=newest.driver)
    for number in range(1, 2 * FENCED_MAX):
        newest = log.begun(instance=b"run-%d" % number, after=newest.driver)
    for after in (late.after, Index(0), Index(newest.driver + 1)):
        refused = log.refused(replace(late, after=after))
        assert refused.code == Code.CONFLICT
        assert str(newest.driver) in refused.message
    assert log.do(log.commit(newest, 1)) == ScopeDecided(already=False)
    again = log.begun(instance=b"run-%d" % (2 * FENCED_MAX - 1), after=Index(0))
    assert again.driver == newest.driver, "the same instance is the same driver, whatever it knows"
    assert log.begun(instance=b"late", after=newest.driver).driver > newest.driver


def test_an_older_clients_begin_names_no_driver_and_fences_any() -> None:
    log = ScopeLog()
    first = log.begun(instance=b"run-1", after=Index(0))
    assert log.begun(instance=b"run-2").driver > first.driver


def test_drivers_without_a_name_are_not_among_those_that_are_fenced() -> None:
    log = ScopeLog()
    newest = log.begun(instance=b"run-1", after=Index(0))
    for _ in range(2 * FENCED_MAX):
        newest = log.begun(after=newest.driver)
    late = BeginScope(name="s", instance=b"run-1", after=newest.driver)
    assert log.refused(late).code == Code.FENCED_PRODUCER
    assert log.state.scopes[newest.scope].fenced == (b"run-1",)


def test_who_commits_a_decided_epoch_again_is_told_whose_it_is() -> None:
    log = ScopeLog()
    first, second = log.begun(), log.begun()
    two = replace(log.commit(second, 2), tokens=(b"a" * 16, b"b" * 16))
    assert log.is_own(two) is None, "it is not decided yet"
    log.do(two)
    assert log.is_own(two) is True
    assert log.is_own(replace(two, tokens=two.tokens[::-1])) is True
    assert log.is_own(replace(two, driver=first.driver)) is True, "the rows are there, whoever asks"
    assert log.is_own(replace(two, tokens=two.tokens[:1])) is False
    assert log.is_own(log.commit(first, 2)) is False, "drawn by both, committed by one"
    assert log.is_own(log.commit(second, 1)) is False, "a later epoch's commit gave it up"
    none = replace(log.commit(second, 5), tokens=(), parts=())
    log.do(none)
    assert log.is_own(none) is True
    assert log.is_own(replace(none, driver=first.driver)) is False, "of another driver, just as empty"
    assert log.is_own(two) is True
    log.begun()
    assert log.is_own(two) is True, "begun anew since"


def test_whose_a_commit_was_is_known_of_the_last_ones() -> None:
    log = ScopeLog()
    begun = log.begun()
    old, *later = [
        replace(log.commit(begun, epoch), tokens=(b"%016d" % epoch,), parts=())
        for epoch in range(2, 2 * KEPT_MAX + 4, 2)
    ]
    assert len(later) == KEPT_MAX
    log.do(old)
    for each in later[:-1]:
        log.do(each)
    assert (log.is_own(replace(old, epoch=1)), log.is_own(old)) == (False, True)
    log.do(later[-1])
    assert (log.is_own(old), log.is_own(replace(old, epoch=1))) == (None, None)
    assert log.is_own(replace(old, epoch=3)) is False
    assert all(log.is_own(each) for each in later)
    assert len(log.state.scopes[begun.scope].kept) == 24 * KEPT_MAX


def test_of_an_older_programs_commits_is_not_known_whose_they_were() -> None:
    log = ScopeLog()
    begun = log.begun()
    log.do(log.commit(begun, 2))
    log.do(replace(log.commit(begun, 4), keep=False))
    log.do(log.commit(begun, 6))
    assert [log.is_own(log.commit(begun, epoch)) for epoch in range(1, 7)] == [None] * 4 + [False, True]


def test_who_is_fenced_gives_up_no_epoch_of_its_successor() -> None:
    log = ScopeLog()
    first, second = log.begun(), log.begun()
    for epoch in (1, 1 << 62):
        wish = ExpireScope(scope=first.scope, epoch=epoch, driver=first.driver)
        assert log.refused(wish).code == Code.FENCED_PRODUCER
    assert log.do(log.commit(second, 1)) == ScopeDecided(already=False)
    late = ExpireScope(scope=first.scope, epoch=1, driver=first.driver)
    assert log.do(late) == ScopeDecided(already=True), "what is committed is told to anybody"
    own = ExpireScope(scope=first.scope, epoch=2, driver=second.driver)
    assert log.do(own) == ScopeDecided(already=False)
    assert log.do(ExpireScope(scope=first.scope, epoch=3)) == ScopeDecided(already=False), "an operator's"
    assert log.state.scopes[first.scope].expired == 3


def test_what_expired_is_never_committed_and_what_is_committed_never_expires() -> None:
    log = ScopeLog()
    begun = log.begun()
    assert log.do(ExpireScope(scope=begun.scope, epoch=4)) == ScopeDecided(already=False)
    assert "expired" in log.refused(log.commit(begun, 4)).message
    assert log.do(log.commit(begun, 5)) == ScopeDecided(already=False)
    assert log.do(ExpireScope(scope=begun.scope, epoch=5)) == ScopeDecided(already=True)
    assert log.begun().decided == 5


def test_commits_are_bounded_and_sound() -> None:
    log = ScopeLog()
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
    assert [due.commit.epoch for due in pending_parts(log.state, HERE)] == list(range(1, PENDING_MAX + 1))
    assert [due.after for due in pending_parts(log.state, HERE)] == list(range(PENDING_MAX))


def test_an_epoch_is_published_behind_those_that_have_rows_in_its_partition() -> None:
    log = ScopeLog()
    begun = log.begun()
    elsewhere = (StagedPart(TopicId(99), PartitionId(7), 5),)
    log.do(log.commit(begun, 1))
    log.do(replace(log.commit(begun, 2), parts=elsewhere))
    log.do(log.commit(begun, 3))
    here = [due for due in pending_parts(log.state, HERE) if not due.is_deleted]
    assert [(due.commit.epoch, due.after) for due in here] == [(1, 0), (3, 1)]
    log.do(log.confirm(begun, 1))
    here = [due for due in pending_parts(log.state, HERE) if not due.is_deleted]
    assert [(due.commit.epoch, due.after) for due in here] == [(3, 0)]


def test_a_commit_outlives_its_topic() -> None:
    log = ScopeLog()
    begun = log.begun()
    log.do(log.commit(begun, 1))
    gone: MetadataState = replace(log.state, topics={})
    assert [due.is_deleted for due in pending_parts(gone, HERE)] == [True]


def test_below_level_1_scopes_longest_unused_are_forgotten_and_never_one_that_waits() -> None:
    log = ScopeLog()
    log.state = replace(log.state, level=0)
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


def test_below_level_1_a_named_scope_is_forgotten_only_when_no_one_off_is_left() -> None:
    log = ScopeLog()
    log.state = replace(log.state, level=0)
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


def test_below_level_1_a_one_off_scope_that_waits_is_kept_before_an_idle_named_one() -> None:
    log = ScopeLog()
    log.state = replace(log.state, level=0)
    log.do(SetConfig(values={"scopes_max": 16}))
    waiting = [log.begun(f"run-{number}", one_off=True) for number in range(15)]
    for one in waiting:
        log.do(log.commit(one, 1))
    log.begun("idle")
    log.begun("new")
    assert "idle" not in log.state.scope_names
    assert all(one.scope in log.state.scopes for one in waiting)


def of_tenant(log: ScopeLog, prefix: str, name: str, *, one_off: bool = False) -> ScopeId:
    result = log.do(BeginScope(name=name, one_off=one_off, prefix=prefix))
    assert isinstance(result, ScopeBegun), result
    return result.scope


def test_a_tenant_that_fills_the_table_evicts_no_named_scope_of_another_one() -> None:
    log = ScopeLog()
    log.state = replace(log.state, level=1)
    log.do(SetConfig(values={"scopes_max": 16}))
    nightly = log.begun("nightly")
    log.do(log.commit(nightly, 7))
    log.do(log.confirm(nightly, 7))
    theirs = of_tenant(log, "acme/", "hourly")
    for number in range(14):
        of_tenant(log, "rival/", f"flood-{number}")
    assert len(log.state.scopes) == 16
    assert log.refused(BeginScope(name="flood-14", prefix="rival/")).code == Code.OVERLOADED
    assert theirs in log.state.scopes
    assert log.begun("nightly").committed == 7, "its epochs are still known"
    refused = log.refused(BeginScope(name="late", prefix="third/"))
    assert refused.code == Code.OVERLOADED
    assert "scopes_max" in refused.message
    assert "ringfence scope forget" in refused.message
    log.do(SetConfig(values={"scopes_max": 17}))
    for number in range(100):
        of_tenant(log, "rival/", f"run-{number}", one_off=True)
    assert of_tenant(log, "third/", "late") in log.state.scopes, "one-off scopes make room for all"
    assert theirs in log.state.scopes


def test_a_scope_is_used_by_tokens_of_its_prefix_and_by_those_without_one() -> None:
    log = ScopeLog()
    log.state = replace(log.state, level=1)
    log.do(create("acme/sales/orders"))
    topic = log.state.names["acme/sales/orders"]
    of_tenant(log, "acme/sales/", "hourly")
    of_tenant(log, "acme/", "hourly")
    of_tenant(log, "", "hourly")
    of_tenant(log, "acme/", f"nightly@{topic}")
    log.begun("of-all")
    for prefix, name in [
        ("rival/", "hourly"),
        ("acme/hr/", "hourly"),
        ("acme/", "of-all"),
        ("rival/", f"nightly@{topic}"),
        ("acme/hr/", f"nightly@{topic}"),
        ("acme/", f"nightly@{TOPIC}"),
        ("acme/", "nightly@999999"),
    ]:
        assert log.refused(BeginScope(name=name, prefix=prefix)).code == Code.UNAUTHORIZED, (prefix, name)


def test_below_level_1_scopes_have_no_owner_and_are_forgotten_as_before() -> None:
    log = ScopeLog()
    log.state = replace(log.state, level=0)
    log.do(SetConfig(values={"scopes_max": 16}))
    for number in range(17):
        of_tenant(log, "rival/" if number else "acme/", f"s{number}")
    assert "s0" not in log.state.scope_names
    assert all(scope.prefix is UNSET for scope in log.state.scopes.values())


def test_who_is_forgotten_is_told_unless_nobody_named_it() -> None:
    log = ScopeLog()
    log.state = replace(log.state, level=0)
    log.do(SetConfig(values={"scopes_max": 16}))
    with structlog.testing.capture_logs() as lines:
        for number, one_off in enumerate([True] * 2 + [False] * 16):
            before = log.state
            log.begun(f"s{number}", one_off=one_off)
            log_forgotten(before, log.state)
    told = [line["names"] for line in lines if line["event"] == "named scopes forgotten"]
    assert told == []
    with structlog.testing.capture_logs() as lines:
        before = log.state
        log.begun("new")
        log_forgotten(before, log.state)
    assert [line["names"] for line in lines] == [["s2", "s3"]]


def test_rows_for_a_partition_that_is_not_there_are_refused_not_given_up() -> None:
    log = ScopeLog()
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


def dues(scopes: int, epochs: int, partitions: int) -> list[PendingPart]:
    return [
        PendingPart(ScopeId(scope), PendingCommit(epoch, (), parts), part, is_deleted=False)
        for scope in range(scopes)
        for epoch in range(1, epochs + 1)
        for parts in [tuple(StagedPart(TOPIC, PartitionId(each), 1) for each in range(partitions))]
        for part in parts
    ]


def test_what_is_published_at_once_is_bounded_in_each_partition_and_ascends() -> None:
    due = dues(scopes=40, epochs=3, partitions=2)
    stuck = {(ScopeId(7), TOPIC, PartitionId(1))}
    rounds, left = 0, due
    seen: dict[Any, list[int]] = {}
    while left:
        chosen, rest = next_round(left, stuck)
        if not chosen:
            break
        assert len(chosen) + len(rest) == len(left)
        assert len({one.sequence for one in chosen}) == len(chosen) <= PUBLISHES_MAX
        for place in {one.part.partition for one in chosen}:
            assert sum(one.part.partition == place for one in chosen) <= PUBLISHES_PER_PARTITION_MAX
        for one in chosen:
            seen.setdefault(one.sequence, []).append(one.commit.epoch)
        rounds, left = rounds + 1, rest
    assert [one.sequence for one in left] == [*stuck] * 3, "only what is stuck is left"
    assert all(epochs == [1, 2, 3] for epochs in seen.values())
    assert len(seen) == 79
    assert rounds <= 6
