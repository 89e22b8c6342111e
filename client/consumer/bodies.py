"""The bytes of a member's calls, and of what nodes reply. Pure.

JOIN, LEAVE and ASSIGN are MessagePack; FETCH, ATTACH, MEMBER_BEAT and ACKNOWLEDGE have packed bodies.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from ringfence.common import extension
from ringfence.common.codec import Answer
from ringfence.consumer.calls import (
    Attach,
    Attached,
    Beat,
    Claim,
    Fetch,
    Fetched,
    Joined,
    NotTaken,
    Plan,
    Refusal,
    Renewed,
    Settle,
    Settled,
    Why,
)
from ringfence.native import cohort_messages as cohort
from ringfence.native import wire
from ringfence.native.errors import MemberError, ProtocolError, RingfenceError, TruncatedError, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.consumer.calls import NodeCall

# "Where the cohort stands", as the first wanted offset of a FETCH.
STANDS: Final = 2**64 - 1
SETTLEMENT: Final = struct.Struct("<QQQQII")  # partition, hold, through, epoch, kind, zero
RELEASE: Final = 1  # kind of a settlement that ends the hold
CLAIM: Final = struct.Struct("<QQQQQII")  # partition, hold, from, through, epoch, kind, zero
CLAIM_KIND: Final = 2
NOT_TAKEN: Final = struct.Struct("<QQHHI")  # partition, hold now, code, reason, zero
HELD: Final = struct.Struct("<QQ")  # partition, hold
PARTITION: Final = struct.Struct("<Q")


class Sent(NamedTuple):
    """A request to a node: its opcode, the fields of its header, and its body."""

    opcode: wire.Opcode
    fields: dict[str, int]
    body: bytes = b""


def sent(call: NodeCall, topic: int, cohort_id: int, session: int, version: int) -> Sent:
    """The request of a call. `version`: of the layout that it was routed by."""
    match call:
        case Attach():
            fields = {"topic": topic, "producer_id": call.session, "producer_epoch": cohort_id}
            return Sent(wire.Opcode.ATTACH, fields, call.proof or b"")
        case Beat():
            fields = {"topic": topic, "producer_id": session, "producer_epoch": cohort_id}
            return Sent(wire.Opcode.MEMBER_BEAT, fields, b"".join(HELD.pack(*one) for one in call.holds))
        case Settle():
            packed = (
                SETTLEMENT.pack(one.partition, one.hold, *one.through, RELEASE if one.release else 0, 0)
                for one in call.entries
            )
            fields = {"topic": topic, "producer_id": session, "layout_version": version}
            return Sent(wire.Opcode.ACKNOWLEDGE, fields, b"".join(packed))
        case Claim():
            packed = (
                CLAIM.pack(one.partition, one.hold, one.first, *one.through, CLAIM_KIND, 0)
                for one in call.ranges
            )
            front = extension.packed({wire.ExtensionKind.STAGE: call.identity})
            fields = {
                "topic": topic,
                "producer_id": session,
                "layout_version": version,
                "extension_bytes": len(front),
            }
            return Sent(wire.Opcode.ACKNOWLEDGE, fields, front + b"".join(packed))
        case Fetch():
            flags = int(wire.RequestFlags.COHORT) | (int(wire.RequestFlags.REOPEN) if call.reopen else 0)
            fields = {
                "topic": topic,
                "partition": call.partition,
                "layout_version": version,
                "flags": flags,
                "producer_id": session,
                "producer_epoch": call.hold,
                "sequence": STANDS if call.offset is None else call.offset,
                "owner_epoch": call.epoch,
                "send": call.bytes_max,
                "schema_id": min(call.generation, 2**32 - 1),
            }
            return Sent(wire.Opcode.FETCH, fields)
        case _:
            raise AssertionError(call)


# ---- replies ----------------------------------------------------------------------------------------------


def plan_of(given: cohort.Joined | cohort.Assign) -> Plan:
    """The slice in an answer or a push."""
    partitions = tuple(one.partition for one in given.slices)
    return Plan(given.session, given.generation, given.incarnation, partitions, given.more)


def joined_of(given: cohort.Joined) -> Joined:
    """The answer to JOIN."""
    proof = given.proof if isinstance(given.proof, bytes) else None
    return Joined(plan_of(given), proof, given.lease_ms / 1000, given.settings.lease_ms / 1000)


def attached_of(answer: Answer) -> Attached:
    """The answer to ATTACH."""
    return Attached(answer.header.sequence, answer.header.send / 1000)


def renewed_of(answer: Answer) -> Renewed:
    """The answer to MEMBER_BEAT: the body lists what was not renewed."""
    without = frozenset(one for (one,) in _unpacked(PARTITION, answer))
    return Renewed(answer.header.sequence, answer.header.send / 1000, without)


def settled_of(answer: Answer, topic: str, *, is_claim: bool = False) -> Settled:
    """The answer to ACKNOWLEDGE: the body lists what was not taken."""
    refused = []
    for partition, hold, code, _reason, _zero in _unpacked(NOT_TAKEN, answer):
        error = refusal(code, "the acknowledgement was not taken", topic=topic, partition=partition)
        # The gate is locked for a COMMIT, which is decided or expires.
        is_locked = code == wire.Code.CONFLICT and not is_claim
        refused.append(NotTaken(partition, hold, Why.RETRY if is_locked else why_of(code), error))
    return Settled(tuple(refused))


def _unpacked(form: struct.Struct, answer: Answer) -> Iterable[tuple[int, ...]]:
    if answer.body.nbytes % form.size:
        raise ProtocolError(
            "the body of an answer has a part of an entry",
            opcode=answer.header.opcode,
            bytes=answer.body.nbytes,
        )
    return form.iter_unpack(answer.body)


def fetched_of(call: Fetch, answer: Answer) -> Fetched:
    """The answer to FETCH of a member. It counts from `send`; its first record may begin before that."""
    header = answer.header
    is_elsewhere = bool(header.flags & wire.AnswerFlags.ELSEWHERE)
    start = max(header.first_offset, header.send if call.offset is None else call.offset)
    return Fetched(
        hold=header.sequence,
        start=start,
        end=start if is_elsewhere else max(start, header.first_offset + header.rows),
        epoch=header.owner_epoch,
        sealed_end=header.end_offset if is_elsewhere else None,
        is_blocked=bool(header.flags & wire.AnswerFlags.BLOCKED),
        mark=header.end_offset,
        bytes=answer.body.nbytes,
        body=answer if answer.body else None,
    )


def read_of(answer: Answer) -> Fetched:
    """The answer to a plain FETCH of a sealed partition."""
    header = answer.header
    end = header.first_offset + header.rows
    return Fetched(0, header.first_offset, end, header.owner_epoch, bytes=answer.body.nbytes, body=answer)


# ---- refusals ---------------------------------------------------------------------------------------------

WHY: Final = {
    wire.Code.NOT_ASSIGNED: Why.NOT_ASSIGNED,
    wire.Code.FENCED_MEMBER: Why.NOT_ATTACHED,
    wire.Code.TRUNCATED: Why.TRUNCATED,
    wire.Code.UNKNOWN_PARTITION: Why.REDIRECT,
}


def why_of(code: int) -> Why:
    """What a member does about a code of a refusal."""
    try:
        known = wire.Code(code)
    except ValueError:
        return Why.FINAL
    if known in WHY:
        return WHY[known]
    return Why.RETRY if known in wire.RETRIABLE else Why.FINAL


def refusal_of(call: object, answer: Answer, topic: str, held: int = 0) -> Refusal:
    """An answer REFUSED or REDIRECT to a call."""
    header = answer.header
    retry_s = header.retry_after_ms / 1000
    if header.status == wire.Status.REDIRECT:
        error = answer.error(topic)
        return Refusal(
            Why.REDIRECT, error, version=int(error.details.get("version") or 0), retry_after_s=retry_s
        )
    why = why_of(header.code)
    if not isinstance(call, Fetch):
        error = answer.error(topic, held=held)
        if isinstance(call, Attach) and header.code == wire.Code.UNAUTHORIZED:
            # The key of proofs is another one: JOIN gives a new proof, or says why not.
            why = Why.NOT_ATTACHED
        elif _is_moved(error):
            why, error = Why.REPLACED, _moved(error, topic)
        return Refusal(Why.RETRY if error.retriable else why, error, retry_after_s=retry_s)
    special = SPECIAL.get(header.code)
    if special is not None and answer.body:
        with contextlib.suppress(ProtocolError):  # else it is a refusal with a text
            return special(call, answer, topic)
    if why is Why.TRUNCATED:
        error = TruncatedError(
            "rows that the cohort has not read were removed, or lost with an owner: the log begins at "
            f"{header.first_offset}; on_truncated='skip' goes on there",
            topic=topic,
            partition=call.partition,
            code=wire.Code.TRUNCATED,
            offset=call.offset,
            start_offset=header.first_offset,
        )
        return Refusal(why, error, hold=header.sequence, start=header.first_offset)
    error = answer.error(topic, held=held)
    if _is_moved(error):
        return Refusal(Why.REPLACED, _moved(error, topic))
    why = Why.RETRY if error.retriable else why
    return Refusal(why, error, hold=header.sequence, generation=header.send, retry_after_s=retry_s)


def _is_moved(error: RingfenceError) -> bool:
    """Whether a newer connection has the session. A member forgets its older ones before it attaches."""
    return error.code == wire.Code.FENCED_MEMBER and bool(error.details.get("moved"))


def _moved(error: RingfenceError, topic: str) -> MemberError:
    return MemberError(
        "another process is this member and attached later: a copy of this process, or of its machine; "
        "end this one, or create its consumer again",
        topic=topic,
        code=wire.Code.FENCED_MEMBER,
        session=error.details.get("session", 0),
    )


def _missed(call: Fetch, answer: Answer, topic: str) -> Refusal:
    """The cohort has not read parents of the partition, and they were removed."""
    missed = answer.control(cohort.MissedRows)
    error = TruncatedError(
        "partitions before this one were removed before the cohort had read them; on_truncated='skip' "
        "goes on",
        topic=topic,
        partition=call.partition,
        code=wire.Code.TRUNCATED,
        pruned=missed.pruned,
        begin=missed.begin,
    )
    details = {"begin": missed.begin, "pruned": missed.pruned}
    return Refusal(Why.TRUNCATED, error, hold=answer.header.sequence, start=missed.begin, details=details)


def _position(call: Fetch, answer: Answer, topic: str) -> Refusal:
    """The cohort is further than the application's store says."""
    given = answer.control(cohort.StorePosition)
    values: dict[str, Any] = {
        name: value for name, value in msgspec.structs.asdict(given).items() if value is not msgspec.UNSET
    }
    return Refusal(
        Why.POSITION,
        None,
        hold=answer.header.sequence,
        details={**values, "topic": topic, "partition": call.partition},
    )


# Refusals of FETCH whose bodies have values instead of a text.
SPECIAL: Final[dict[int, Callable[[Fetch, Answer, str], Refusal]]] = {
    wire.Code.TRUNCATED: _missed,
    wire.Code.CONFLICT: _position,
}
