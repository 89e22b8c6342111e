"""Worked messages of layout changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringfence.native import layout_messages as layouts
from ringfence.native import messages, wire
from tests.wire.codec import EPOCH, PARTITION, TOPIC, control, reply, request

if TYPE_CHECKING:
    from collections.abc import Iterator

Op, St = wire.Opcode, wire.Status
CHANGE, VERSION = 40, 2
LEFT, RIGHT = CHANGE << 16, CHANGE << 16 | 1
SEALED = messages.PartitionEntry(
    partition=PARTITION,
    lo=0,
    hi=65535,
    state="SEALED",
    owner=1,
    epoch=EPOCH,
    children=[LEFT, RIGHT],
    created_version=1,
    sealed_version=VERSION,
    end_offset=15,
    sealed_ms=1_767_225_600_000,
)
CHILDREN = [
    messages.PartitionEntry(
        partition=child,
        lo=lo,
        hi=lo + 32767,
        state="ACTIVE",
        owner=1,
        epoch=CHANGE,
        parents=[PARTITION],
        created_version=VERSION,
    )
    for child, lo in ((LEFT, 0), (RIGHT, 32768))
]


def layout_changes() -> Iterator[tuple[str, dict[str, Any]]]:
    sealed: dict[str, Any] = {
        "request_id": 11,
        "code": wire.RedirectReason.SEALED,
        "topic": TOPIC,
        "partition": PARTITION,
        "layout_version": VERSION,
        "owner_epoch": EPOCH,
        "generation": CHANGE + 2,
    }
    yield (
        "publish_sealed",
        reply(
            Op.PUBLISH,
            messages.Redirected(
                owner=1,
                addresses=["tcp://127.0.0.1:7411"],
                children=[LEFT, RIGHT],
                stored=5,
                answers=[(3, 9, 3), (4, 12, 3)],
                version=VERSION,
            ),
            St.REDIRECT,
            sequence=5,
            send=5,
            **sealed,
        ),
    )
    split = layouts.LayoutChange(topic="lineitem", action="split", partitions=[PARTITION], into=2, key="k-1")
    yield "layout_change", control(Op.LAYOUT_CHANGE, split, request_id=50)
    yield (
        "layout_change_ok",
        reply(
            Op.LAYOUT_CHANGE,
            layouts.LayoutChanged(
                change=CHANGE,
                kind="SPLIT",
                phase="OPENED",
                version=VERSION,
                partitions=[SEALED, *CHILDREN],
                gap_us=14_200,
            ),
            request_id=50,
        ),
    )
    yield (
        "layout_describe",
        control(Op.LAYOUT_DESCRIBE, layouts.LayoutDescribe(topic="lineitem"), request_id=51),
    )
    transition = layouts.OpenTransition(
        change=CHANGE,
        kind="SPLIT",
        phase="OPENED",
        version=VERSION,
        before=1,
        after=2,
        adoption_generation=CHANGE + 2,
        waits=["adoption by 2 connections of node 3"],
    )
    yield (
        "layout_describe_ok",
        reply(
            Op.LAYOUT_DESCRIBE,
            layouts.LayoutDescribed(
                version=VERSION, partitions=[SEALED, *CHILDREN], transitions=[transition]
            ),
            request_id=51,
        ),
    )
    listed = layouts.StagedList(scope=30, epoch=8, tokens=[bytes(range(16))])
    yield (
        "staged_list",
        request(
            Op.STAGED_LIST,
            messages.encode(listed),
            flags=wire.RequestFlags.CONTROL,
            request_id=52,
            topic=TOPIC,
            partition=PARTITION,
        ),
    )
    batches = layouts.StagedBatches(batches=[(7, 3, 0), (9, 120, 0)], sealed_version=VERSION)
    yield "staged_list_ok", reply(Op.STAGED_LIST, batches, request_id=52, topic=TOPIC, partition=PARTITION)
