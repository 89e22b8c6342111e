"""Commits that settle what a member consumed: what refuses them (CT5), what is due after them (CT4, CT7)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model.cohorts import CohortMode, Incarnation, MemberSession
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, PartitionId, TopicId
from ringfence.control.model.results import Refused, ScopeDecided
from ringfence.control.model.scopes import (
    BeginScope,
    ConfirmPublished,
    Consumed,
    ConsumedRange,
    PendingCommit,
)
from ringfence.control.model.state import canonical_bytes, decode_state
from ringfence.control.runtime.raft.level_gate import older_fault
from ringfence.control.state_machines.metadata import consumed_ranges
from ringfence.control.state_machines.metadata.scopes import is_own
from ringfence.native.errors import CODE_ERRORS, RetriableError
from ringfence.native.wire import RETRIABLE, Code
from tests.fakes.consumed_log import ConsumedLog, walk

WALKS = 25


def parts_of(log: ConsumedLog) -> list[PartitionId]:
    return [part.partition for part in log.active]


def pending(log: ConsumedLog, member: str = "a") -> tuple[PendingCommit, ...]:
    return log.state.scopes[log.drivers[member][0]].pending


# ---- the entry --------------------------------------------------------------------------------------


def test_rows_and_positions_wait_for_their_confirmations_and_rows_come_first() -> None:
    log = ConsumedLog()
    one, two, *_ = parts_of(log)
    command = log.commit_consumed("a", 1, log.range_of(one), log.range_of(two), rows=4)
    assert log.do(command) == ScopeDecided(already=False)
    assert log.due() == [], "CT4: rows of the commit are not published"
    log.must(log.confirm("a", 1, rows=True))
    assert log.due() == [(1, one, False), (1, two, False)]
    log.must(log.confirm("a", 1, two))
    assert log.due() == [(1, one, False)]
    (waiting,) = pending(log)
    assert waiting.parts == ()
    assert waiting.consumed == log.consumed("a", log.range_of(one))
    log.must(log.confirm("a", 1, two))
    log.must(log.confirm("a", 1, one))
    assert pending(log) == ()
    log.agree()


def test_a_commit_without_rows_waits_for_its_positions() -> None:
    log = ConsumedLog()
    one = parts_of(log)[0]
    log.must(log.commit_consumed("a", 1, log.range_of(one)))
    assert log.due() == [(1, one, False)]
    log.must(log.confirm("a", 1, one))
    assert pending(log) == ()


def test_positions_are_confirmed_before_rows_only_where_they_are_gone() -> None:
    log = ConsumedLog()
    one = parts_of(log)[0]
    log.must(log.commit_consumed("a", 1, log.range_of(one), rows=4))
    log.must(log.seek(log.clean))
    assert log.due() == [(1, one, True)]
    log.must(log.confirm("a", 1, one))
    (waiting,) = pending(log)
    assert waiting.consumed is UNSET
    assert len(waiting.parts) == 1
    log.must(log.confirm("a", 1, rows=True))
    assert pending(log) == ()


def test_a_repeated_commit_is_told_that_it_is_its_own() -> None:
    """PB28: "already" with the same tokens is success."""
    log = ConsumedLog()
    command = log.commit_consumed("a", 1, log.range_of(parts_of(log)[0]))
    log.must(command)
    log.must(log.seek(log.clean))
    log.must(log.leave(log.clean, "a"))
    assert log.do(command) == ScopeDecided(already=True), "what is decided is told whatever came after"
    assert is_own(log.state.scopes[command.scope], command) is True


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"incarnation": Incarnation(1)}, Code.CONFLICT, "was sought"),
        ({"session": MemberSession(1)}, Code.FENCED_MEMBER, "no member with session 1"),
        ({"cohort": 99}, Code.UNKNOWN_COHORT, "99"),
        ({"topic": TopicId(99)}, Code.UNKNOWN_TOPIC, "99"),
        ({"token": b"x" * 16}, Code.INVALID_ARGUMENT, "not among the tokens"),
        ({"ranges": ()}, Code.INVALID_ARGUMENT, "0 ranges"),
    ],
)
def test_another_cohort_session_incarnation_or_token_is_refused(
    change: dict[str, object], code: Code, words: str
) -> None:
    log = ConsumedLog()
    command = log.commit_consumed("a", 1, log.range_of(parts_of(log)[0]))
    assert command.consumed is not UNSET
    refused = log.refuses(replace(command, consumed=replace(command.consumed, **change)), words)
    assert refused.code == code
    log.must(command)


@pytest.mark.parametrize(
    "change", [{"first": 5}, {"first": -1}, {"through": 1 << 63}, {"hold": 0}, {"epoch": Epoch(0)}]
)
def test_a_range_that_none_could_claim_is_refused(change: dict[str, int]) -> None:
    log = ConsumedLog()
    bad = log.range_of(parts_of(log)[0])._replace(**change)  # type: ignore[arg-type]
    assert log.refuses(log.commit_consumed("a", 1, bad)).code == Code.INVALID_ARGUMENT


def test_ranges_ascend_and_name_a_gate_once() -> None:
    log = ConsumedLog()
    one, two, *_ = parts_of(log)
    command = log.commit_consumed("a", 1, log.range_of(one))
    assert command.consumed is not UNSET
    for ranges in ((log.range_of(two), log.range_of(one)), (log.range_of(one), log.range_of(one, 5, 6))):
        wrong = replace(command, consumed=replace(command.consumed, ranges=ranges))
        log.refuses(wrong, "out of order, or named twice")
    many = tuple(ConsumedRange(PartitionId(n), 1, 0, 1, Epoch(1)) for n in range(1, 4_098))
    log.refuses(replace(command, consumed=replace(command.consumed, ranges=many)), "4097 ranges")


def test_positions_of_other_modes_take_no_part() -> None:
    log = ConsumedLog()
    for mode in (CohortMode.CHECKPOINT, CohortMode.QUEUE):
        number = log.create(mode.lower(), mode)
        (session,) = log.join(number, "a")
        begun = log.took(BeginScope(name=f"consume/{number}/a"))
        log.drivers["a"] = begun.scope, begun.driver
        command = log.commit_consumed("a", 1, log.range_of(parts_of(log)[0]))
        assert command.consumed is not UNSET
        of_mode = replace(
            command.consumed, cohort=number, incarnation=log.cohort(number).incarnation, session=session
        )
        assert log.refuses(replace(command, consumed=of_mode), "STREAM").code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["nightly", "parked/{0}/1/1", "consume/{1}/a", "consume/{0}"])
def test_only_a_scope_of_the_cohort_settles_its_positions(name: str) -> None:
    """CT10."""
    log = ConsumedLog()
    own, other = log.clean, log.create("other")
    command = log.commit_consumed("a", 1, log.range_of(parts_of(log)[0]))
    begun = log.took(BeginScope(name=name.format(own, other)))
    foreign = replace(command, scope=begun.scope, driver=begun.driver)
    assert log.refuses(foreign, f"consume/{own}/").code == Code.INVALID_ARGUMENT
    log.must(replace(foreign, consumed=UNSET))
    log.must(command)


def test_the_driver_fences_as_the_session_does() -> None:
    """CT9: either one alone refuses."""
    log = ConsumedLog()
    command = log.commit_consumed("a", 1, log.range_of(parts_of(log)[0]))
    log.drivers["a"] = log.begin("a")
    assert log.refuses(command).code == Code.FENCED_PRODUCER
    by_new_driver = log.commit_consumed("a", 1, log.range_of(parts_of(log)[0]))
    log.must(log.leave(log.clean, "a"))
    assert log.refuses(by_new_driver).code == Code.FENCED_MEMBER


def test_a_claim_that_was_seen_at_another_owner_is_stale() -> None:
    log = ConsumedLog()
    one = parts_of(log)[0]
    command = log.commit_consumed("a", 1, log.range_of(one))
    owner = log.now.assignments[one].owner.node
    log.must(log.restart(owner))
    refused = log.refuses(command, f"partitions {one} ", "claim again")
    assert refused.code == Code.STALE_CLAIM
    assert Code.STALE_CLAIM in RETRIABLE
    assert CODE_ERRORS[Code.STALE_CLAIM] is RetriableError
    log.must(log.commit_consumed("a", 1, log.range_of(one)))


def test_the_gate_of_a_sealed_partition_is_at_its_heir() -> None:
    log = ConsumedLog(partitions=1)
    source = log.active[0]
    early = log.commit_consumed("a", 1, log.range_of(source.partition))
    log.split_done(source)
    assert log.refuses(early).code == Code.STALE_CLAIM
    log.must(log.commit_consumed("a", 1, log.range_of(source.partition)))
    (due,) = consumed_ranges.due_positions(log.state)
    heir_log = log.part(source.partition).children[0]
    assert (due.range.partition, due.log) == (source.partition, heir_log)
    owner = log.now.assignments[heir_log].owner
    assert [*consumed_ranges.due_positions(log.state, owner)] == [due]
    others = [log.place(node) for node in log.nodes if node != owner.node]
    assert not any([*consumed_ranges.due_positions(log.state, place)] for place in others)


def test_a_layout_change_does_not_wait_for_positions() -> None:
    log = ConsumedLog(partitions=1)
    source = log.active[0]
    log.must(log.commit_consumed("a", 1, log.range_of(source.partition)))
    heir_log, _ = log.split_done(source)
    (due,) = consumed_ranges.due_positions(log.state)
    assert due.log == heir_log.partition, "PB24: the heir has it due when it opens the gate"


# ---- what is gone -----------------------------------------------------------------------------------


def test_positions_of_a_deleted_cohort_are_gone() -> None:
    log = ConsumedLog()
    one = parts_of(log)[0]
    log.must(log.commit_consumed("a", 1, log.range_of(one), rows=4))
    log.must(log.leave(log.clean, "a", "b"))
    log.must(log.delete(log.clean))
    assert log.due() == [(1, one, True)]


# ---- levels and bytes -------------------------------------------------------------------------------


def test_commits_without_consumed_have_the_bytes_of_before() -> None:
    log = ConsumedLog()
    command = replace(log.commit_consumed("a", 1, log.range_of(parts_of(log)[0]), rows=4), consumed=UNSET)
    encoded = msgspec.msgpack.decode(msgspec.msgpack.encode(command))
    assert [*encoded] == ["do", "scope", "driver", "epoch", "tokens", "parts", "keep"]
    confirm = ConfirmPublished(scope=command.scope, epoch=1, parts=())
    assert [*msgspec.msgpack.decode(msgspec.msgpack.encode(confirm))] == ["do", "scope", "epoch", "parts"]
    log.must(command)
    assert {*msgspec.to_builtins(pending(log)[0])} == {"epoch", "tokens", "parts"}


def test_the_state_of_a_commit_with_consumed_has_one_form() -> None:
    log = ConsumedLog()
    one, two, *_ = parts_of(log)
    log.must(log.commit_consumed("a", 1, log.range_of(one), log.range_of(two), rows=4))
    read = decode_state(canonical_bytes(log.state))
    assert read == log.state
    (commit,) = read.scopes[log.drivers["a"][0]].pending
    assert isinstance(commit.consumed, Consumed)
    assert all(isinstance(one, ConsumedRange) for one in commit.consumed.ranges)


def test_older_levels_refuse_consumed() -> None:
    log = ConsumedLog()
    command = log.commit_consumed("a", 1, log.range_of(parts_of(log)[0]))
    confirm = log.confirm("a", 1, parts_of(log)[0])
    commands: tuple[Command, ...] = (command, confirm)
    for level in range(3):
        older = replace(log.state, level=level)
        for one in commands:
            fault = older_fault(older, one)
            assert fault is not None
            assert fault.code == Code.NOT_SUPPORTED
        assert command.consumed is not UNSET
        scope = log.state.scopes[command.scope].name
        entry_fault = consumed_ranges.commit_fault(older, scope, command.consumed, command.tokens)
        assert isinstance(entry_fault, Refused)
        assert entry_fault.code == Code.UNSUPPORTED_VERSION
        assert older_fault(replace(older, level=1), replace(command, consumed=UNSET)) is None
    assert older_fault(log.state, command) is None


# ---- walks ------------------------------------------------------------------------------------------


def test_random_walks_keep_every_rule_and_reach_every_refusal() -> None:
    seen = sum((walk(seed) for seed in range(WALKS)), start=walk(WALKS))
    for what, least in (
        ("decided", 300),
        ("already", 20),
        ("rows confirmed", 100),
        ("foreign", 50),
        ("positions confirmed", 200),
        ("refused STALE_CLAIM", 10),
        ("refused CONFLICT", 10),
        ("refused FENCED_MEMBER", 5),
        ("refused FENCED_PRODUCER", 10),
        ("seek", 20),
        ("split", 3),
    ):
        assert seen[what] >= least, (what, seen)
