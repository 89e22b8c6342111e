"""Where a named producer resumes: what an owner says of its predecessor, by slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from ringfence.control.model.ranges import SlotRange
from ringfence.native.messages import ResumePoint


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
