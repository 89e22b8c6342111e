"""The bytes of calls and replies, as the protocol has them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ringfence.common.codec import Answer
from ringfence.consumer import bodies
from ringfence.consumer.calls import Attach, Beat, Fetch, NotTaken, Settle, Settlement, Why
from ringfence.consumer.values import Point
from ringfence.native import cohort_messages as cohort
from ringfence.native import messages, wire
from ringfence.native.errors import MemberError, ProtocolError, TruncatedError

FETCH = Fetch(1, 2, 30, hold=9, reopen=False, offset=50, epoch=4, generation=6, bytes_max=1000, poll_s=5.0)


def answer(body: bytes = b"", **fields: int) -> Answer:
    header = wire.AnswerHeader(*[0] * len(wire.AnswerHeader._fields))._replace(**fields)
    return Answer(header, memoryview(body))


def refused(code: int, message: messages.Message | None = None, **fields: int) -> Answer:
    body = b"" if message is None else messages.encode(message)
    return answer(body, status=wire.Status.REFUSED, code=code, **fields)


def test_an_attach_names_session_and_cohort_and_shows_the_proof() -> None:
    sent = bodies.sent(Attach(1, 2, 700, b"p" * 32), 5, 44, 700, 3)
    assert sent.opcode == wire.Opcode.ATTACH
    assert (sent.fields, sent.body) == ({"topic": 5, "producer_id": 700, "producer_epoch": 44}, b"p" * 32)


def test_a_beat_lists_partitions_and_holds() -> None:
    sent = bodies.sent(Beat(1, 2, ((30, 9), (31, 8))), 5, 44, 700, 3)
    assert sent.body == struct.pack("<4Q", 30, 9, 31, 8)


def test_acknowledgements_take_forty_bytes_each() -> None:
    entries = (Settlement(30, 9, Point(50, 4), release=False), Settlement(31, 8, Point(60, 5), release=True))
    sent = bodies.sent(Settle(1, 2, entries), 5, 44, 700, 3)
    assert sent.fields == {"topic": 5, "producer_id": 700, "layout_version": 3}
    assert sent.body == struct.pack("<QQQQIIQQQQII", 30, 9, 50, 4, 0, 0, 31, 8, 60, 5, 1, 0)


def test_a_fetch_says_what_the_member_has() -> None:
    fields = bodies.sent(FETCH, 5, 44, 700, 3).fields
    assert fields == {
        "topic": 5,
        "partition": 30,
        "layout_version": 3,
        "flags": wire.RequestFlags.COHORT,
        "producer_id": 700,
        "producer_epoch": 9,
        "sequence": 50,
        "owner_epoch": 4,
        "send": 1000,
        "schema_id": 6,
    }
    opening = bodies.sent(FETCH._replace(reopen=True, offset=None), 5, 44, 700, 3).fields
    assert opening["sequence"] == 2**64 - 1
    assert opening["flags"] == wire.RequestFlags.COHORT | wire.RequestFlags.REOPEN


def test_rows_before_the_wanted_one_do_not_count() -> None:
    got = bodies.fetched_of(FETCH, answer(b"rows", first_offset=40, rows=30, sequence=9, end_offset=99))
    assert (got.hold, got.start, got.end, got.mark, got.bytes) == (9, 50, 70, 99, 4)


def test_an_opening_begins_at_the_settled_position_also_in_the_middle_of_a_record() -> None:
    opening = FETCH._replace(reopen=True, offset=None)
    got = bodies.fetched_of(opening, answer(b"rows", first_offset=40, rows=30, sequence=9, send=55))
    assert (got.start, got.end) == (55, 70)
    without = bodies.fetched_of(opening, answer(first_offset=40, sequence=9, owner_epoch=3))
    assert (without.start, without.end, without.epoch) == (40, 40, 3)


def test_a_sealed_partition_has_its_end_and_no_rows() -> None:
    flags = int(wire.AnswerFlags.ELSEWHERE)
    got = bodies.fetched_of(FETCH, answer(first_offset=60, end_offset=99, sequence=9, flags=flags))
    assert (got.start, got.end, got.sealed_end, got.is_blocked) == (60, 60, 99, False)


def test_a_blocked_answer_says_so() -> None:
    assert bodies.fetched_of(FETCH, answer(flags=int(wire.AnswerFlags.BLOCKED))).is_blocked


def test_what_was_not_renewed_and_not_taken_is_listed() -> None:
    renewed = bodies.renewed_of(answer(struct.pack("<2Q", 30, 31), sequence=6, send=10_000))
    assert (renewed.generation, renewed.lease_s, renewed.without) == (6, 10.0, frozenset({30, 31}))
    packed = struct.pack("<QQHHI", 30, 12, wire.Code.NOT_ASSIGNED, 0, 0)
    (refusal,) = bodies.settled_of(answer(packed), "t").not_taken
    assert isinstance(refusal, NotTaken)
    assert (refusal.partition, refusal.hold, refusal.why) == (30, 12, Why.NOT_ASSIGNED)
    with pytest.raises(ProtocolError, match="a part of an entry"):
        bodies.settled_of(answer(packed[:-1]), "t")


@pytest.mark.parametrize(("code", "why"), [
    (wire.Code.NOT_ASSIGNED, Why.NOT_ASSIGNED), (wire.Code.FENCED_MEMBER, Why.NOT_ATTACHED),
    (wire.Code.TRUNCATED, Why.TRUNCATED), (wire.Code.HELD, Why.RETRY), (wire.Code.DISK_FULL, Why.RETRY),
    (wire.Code.UNKNOWN_PARTITION, Why.REDIRECT), (wire.Code.UNAUTHORIZED, Why.FINAL), (9999, Why.FINAL),
])  # fmt: skip
def test_each_code_has_its_reaction(code: int, why: Why) -> None:
    assert bodies.why_of(code) is why


def test_a_proof_that_holds_no_more_makes_the_member_join_again() -> None:
    message = messages.Refused(message="the proof does not hold")
    attach = bodies.refusal_of(Attach(1, 2, 700, b"p" * 32), refused(wire.Code.UNAUTHORIZED, message), "t")
    assert attach.why is Why.NOT_ATTACHED
    beat = bodies.refusal_of(Beat(1, 2, ()), refused(wire.Code.UNAUTHORIZED, message), "t")
    assert beat.why is Why.FINAL, "a right is gone"


@pytest.mark.parametrize("call", [FETCH, Beat(1, 2, ()), Settle(1, 2, ()), Attach(1, 2, 700, None)])
def test_a_session_that_a_newer_connection_has_is_not_joined_again(call: Any) -> None:
    moved = messages.Refused(message="a newer connection has it", details={"session": 700, "moved": 1})
    refusal = bodies.refusal_of(call, refused(wire.Code.FENCED_MEMBER, moved), "t")
    assert (refusal.why, type(refusal.error)) == (Why.REPLACED, MemberError)
    over = messages.Refused(message="not registered any more", details={"session": 700})
    assert bodies.refusal_of(call, refused(wire.Code.FENCED_MEMBER, over), "t").why is Why.NOT_ATTACHED


def test_a_redirect_names_the_version() -> None:
    body = messages.encode(messages.Redirected(owner=1, addresses=[], version=8))
    redirected = answer(body, status=wire.Status.REDIRECT, code=wire.RedirectReason.SEALED, retry_after_ms=50)
    refusal = bodies.refusal_of(FETCH, redirected, "t")
    assert (refusal.why, refusal.version, refusal.retry_after_s) == (Why.REDIRECT, 8, 0.05)


def test_a_refused_fetch_has_the_hold_and_the_plan_of_the_node() -> None:
    refusal = bodies.refusal_of(FETCH, refused(wire.Code.NOT_ASSIGNED, sequence=12, send=7), "t")
    assert (refusal.why, refusal.hold, refusal.generation) == (Why.NOT_ASSIGNED, 12, 7)


def test_rows_that_are_gone_are_told_with_the_log_start_or_with_what_was_missed() -> None:
    plain = bodies.refusal_of(FETCH, refused(wire.Code.TRUNCATED, first_offset=80), "t")
    assert isinstance(plain.error, TruncatedError)
    assert (plain.why, plain.start, plain.error.details["start_offset"]) == (Why.TRUNCATED, 80, 80)
    text = bodies.refusal_of(
        FETCH, refused(wire.Code.TRUNCATED, messages.Refused(message="gone"), first_offset=80), "t"
    )
    assert (text.why, text.start) == (Why.TRUNCATED, 80)
    body = cohort.MissedRows(pruned=[(7, 100)], begin=20)
    missed = bodies.refusal_of(FETCH, refused(wire.Code.TRUNCATED, body, sequence=9), "t")
    assert isinstance(missed.error, TruncatedError)
    assert (missed.hold, missed.details["begin"], missed.error.details["pruned"]) == (9, 20, [(7, 100)])


def test_a_store_that_is_behind_is_told_what_the_cohort_has() -> None:
    body = cohort.StorePosition(begin=0, settled=500, parents=[(7, 100, 1)])
    refusal = bodies.refusal_of(FETCH, refused(wire.Code.CONFLICT, body), "t")
    assert refusal.why is Why.POSITION
    assert refusal.details["settled"] == 500
    assert refusal.details["parents"] == [(7, 100, 1)]


def test_a_plan_is_read_from_an_answer_and_from_a_push() -> None:
    slices = [
        cohort.Slice(partition=30, lo=0, hi=9, name="a"),
        cohort.Slice(partition=31, lo=10, hi=19, name="b"),
    ]
    push = cohort.Assign(
        version=1, cohort=44, generation=6, incarnation=2, session=700, slices=slices, more=True
    )
    plan = bodies.plan_of(push)
    assert (plan.session, plan.generation, plan.incarnation, plan.partitions, plan.more) == (
        700,
        6,
        2,
        (30, 31),
        True,
    )
