"""Worked messages of cohorts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringfence.native import cohort_messages as cohorts
from ringfence.native import wire
from tests.wire.codec import EPOCH, PARTITION, TOPIC, VERSION, answer, control, reply, request

if TYPE_CHECKING:
    from collections.abc import Iterator

Op, St = wire.Opcode, wire.Status
TOPIC_NAME, COHORT_NAME, MEMBER = "lineitem", "loaders", "m-1"
COHORT, SESSION = 44 << 16, 46 << 16
INSTANCE = bytes(range(0x40, 0x50))
SLICE = cohorts.Slice(partition=PARTITION, lo=0, hi=65535, name="0000-ffff-9")


def members() -> Iterator[tuple[str, dict[str, Any]]]:
    join = cohorts.Join(
        topic=TOPIC_NAME, cohort=COHORT_NAME, mode="stream", member=MEMBER, instance=INSTANCE, start="latest"
    )
    yield "join", control(Op.JOIN, join, request_id=22)
    joined = cohorts.Joined(
        version=VERSION,
        generation=0,
        slices=[],
        cohort=COHORT,
        session=SESSION,
        incarnation=COHORT,
        lease_ms=10_000,
        home=1,
        settings=cohorts.CohortSettings(),
        not_begun=[PARTITION],
    )
    yield "join_ok", reply(Op.JOIN, joined, request_id=22)
    leave = cohorts.Leave(topic=TOPIC_NAME, cohort=COHORT_NAME, member=MEMBER, session=SESSION)
    yield "leave", control(Op.LEAVE, leave, request_id=23)
    yield "leave_ok", reply(Op.LEAVE, cohorts.Left(removed=True), request_id=23)
    assign = cohorts.Assign(
        version=VERSION, cohort=COHORT, generation=1, incarnation=COHORT, session=SESSION, slices=[SLICE]
    )
    yield "assign", reply(Op.ASSIGN, assign, St.PUSH, topic=TOPIC, sequence=1)


def acknowledgements() -> Iterator[tuple[str, dict[str, Any]]]:
    """A member settles the rows below offset 15 of one partition, under its hold."""
    place = {"topic": TOPIC, "partition": PARTITION, "owner_epoch": EPOCH}
    hold = EPOCH << 20
    yield (
        "acknowledge",
        request(
            Op.ACKNOWLEDGE, request_id=24, **place, producer_id=SESSION, producer_epoch=hold, sequence=15
        ),
    )
    yield "acknowledge_ok", answer(Op.ACKNOWLEDGE, St.OK, request_id=24, topic=TOPIC, partition=PARTITION)
