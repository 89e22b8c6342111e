"""Where a named producer resumes: what an owner says of its predecessor, by slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.ranges import SlotRange
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import ProducerRule, Topic
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc.dispatch import CALLER_FEATURES
from ringfence.control.state_machines.metadata.producers import rule_of
from ringfence.native.messages import ResumePoint
from ringfence.native.wire import Code, Features


def check_client(state: MetadataState, topic: Topic, name: str) -> None:
    """Refuse a client that would not understand where the name resumes.

    Resume points of a topic that ever changed its layout have slots. A client that takes them for points of
    whole partitions leaves out rows that are not stored. It does not know rules of names either.
    """
    if CALLER_FEATURES.get() & Features.RESUME_RANGES:
        return
    newest = state.topics.get(topic.topic, topic)
    rule = rule_of(state, topic.topic, name)
    is_new = name not in state.producers.get(topic.topic, {})
    draws_rule = state.level >= LAYOUT_LEVEL and not newest.key and is_new
    if newest.layout.version > 1:
        why = f"the layout of topic {topic.name!r} has changed"
    elif rule is not ProducerRule.NONE or draws_rule:
        why = f"topic {topic.name!r} has no key, and each send of the name has a slot"
    else:
        return
    message = (
        f"producer {name!r} resumes by ranges of slots, because {why}: this client does not know of them "
        f"(bit {int(Features.RESUME_RANGES)} of `features` in HELLO); use a newer client library"
    )
    raise RequestRefused(Code.NOT_SUPPORTED, message, producer=name, features=int(Features.RESUME_RANGES))


def resume_points(
    partition: int, own: SlotRange | None, result: dict[str, Any], uncovered: Sequence[SlotRange]
) -> list[ResumePoint]:
    """The resume points of one partition, for the slots that no earlier answer has covered.

    Args:
        partition: the partition that was asked.
        own: its slots; None in a topic that never changed its layout: points have no slots there, and
            clients of older programs read them.
        result: the outcome of `open_producer`: {} where the predecessor has stored nothing, one batch, or
            `points`.
        uncovered: slots of the partition that still need a point.
    """
    if not result:
        return []
    if "points" not in result:
        point = ResumePoint(
            partition=partition,
            sequence=result["sequence"],
            send=result["send"],
            note=result.get("note"),
            first_offset=result["offset"],
            rows=result.get("rows", 0),
            lo=UNSET if own is None else own.lo,
            hi=UNSET if own is None else own.hi,
        )
        return [point]
    return [
        ResumePoint(
            partition=at,
            sequence=sequence or 0,
            send=send,
            note=note,
            first_offset=offset,
            rows=rows,
            lo=max(lo, first),
            hi=min(hi, last),
        )
        for lo, hi, at, sequence, send, note, offset, rows in result["points"]
        for first, last in uncovered
        if max(lo, first) <= min(hi, last)
    ]
