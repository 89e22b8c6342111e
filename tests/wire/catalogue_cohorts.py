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
    place: dict[str, Any] = {"topic": TOPIC, "partition": PARTITION, "owner_epoch": EPOCH}
    hold = EPOCH << 20
    yield (
        "acknowledge",
        request(
            Op.ACKNOWLEDGE, request_id=24, **place, producer_id=SESSION, producer_epoch=hold, sequence=15
        ),
    )
    yield "acknowledge_ok", answer(Op.ACKNOWLEDGE, St.OK, request_id=24, topic=TOPIC, partition=PARTITION)


ENTRY = cohorts.CohortEntry(
    topic="public/default/lineitem",
    cohort=COHORT_NAME,
    id=COHORT,
    mode="stream",
    start="earliest",
    settings=cohorts.CohortSettings(),
    version=44,
    incarnation=COHORT,
    generation=1,
    members=1,
)
NAMED: dict[str, Any] = {"topic": TOPIC_NAME, "cohort": COHORT_NAME}


def administration() -> Iterator[tuple[str, dict[str, Any]]]:
    """A cohort is created, shown, changed, sought, and deleted."""
    create = cohorts.CohortCreate(**NAMED, mode="stream")
    yield "cohort_create", control(Op.COHORT_CREATE, create, request_id=50)
    yield "cohort_create_ok", reply(Op.COHORT_CREATE, ENTRY, request_id=50)
    yield "cohort_list", control(Op.COHORT_LIST, cohorts.CohortList(topic=TOPIC_NAME), request_id=51)
    summary = cohorts.CohortSummary(entry=ENTRY, lag_rows=3, lag_ms=1_500)
    yield "cohort_list_ok", reply(Op.COHORT_LIST, cohorts.CohortListed(cohorts=[summary]), request_id=51)
    yield "cohort_describe", control(Op.COHORT_DESCRIBE, cohorts.CohortDescribe(**NAMED), request_id=52)
    member = cohorts.CohortMember(
        member=MEMBER, session=SESSION, state="connected", home=1, since_ms=1_767_225_600_000, partitions=1
    )
    part = cohorts.CohortPartition(
        partition=PARTITION,
        name="0000-ffff-9",
        state="ACTIVE",
        gate=1,
        member=MEMBER,
        settled=12,
        end=15,
        lag_rows=3,
        lag_ms=1_500,
        holder=SESSION,
        fencing_token=EPOCH << 20,
    )
    described = cohorts.CohortDescribed(summary=summary, members=[member], partitions=[part])
    yield "cohort_describe_ok", reply(Op.COHORT_DESCRIBE, described, request_id=52)
    change = cohorts.CohortChange(
        **NAMED, mode="stream", settings=cohorts.CohortSettings(handover_ms=90_000), version=44
    )
    yield "cohort_change", control(Op.COHORT_CHANGE, change, request_id=53)
    positions = [(PARTITION, 12, EPOCH)]
    seek = cohorts.CohortSeek(**NAMED, to="positions", positions=positions, rest="latest")
    yield "cohort_seek", control(Op.COHORT_SEEK, seek, request_id=54)
    sought = cohorts.CohortSought(incarnation=47 << 16, generation=2, waiting=[PARTITION])
    yield "cohort_seek_ok", reply(Op.COHORT_SEEK, sought, request_id=54)
    evict = cohorts.CohortEvict(**NAMED, member=MEMBER)
    yield "cohort_evict", control(Op.COHORT_EVICT, evict, request_id=55)
    yield "cohort_delete", control(Op.COHORT_DELETE, cohorts.CohortDelete(**NAMED), request_id=56)
    yield "cohort_delete_ok", reply(Op.COHORT_DELETE, cohorts.CohortDeleted(deleted=True), request_id=56)


def parked() -> Iterator[tuple[str, dict[str, Any]]]:
    """Parked ranges of a queue: a list, and a range that is given to members again."""
    number = EPOCH << 20
    yield (
        "cohort_parked",
        control(Op.COHORT_PARKED, cohorts.CohortParked(**NAMED, action="list"), request_id=57),
    )
    range_ = cohorts.ParkedRange(
        partition=PARTITION,
        number=number,
        first=13,
        rows=1,
        count=5,
        reason="lease over",
        time_ms=1_767_225_600_000,
        state="parked",
    )
    listed = cohorts.ParkedListed(parked=[range_])
    yield "cohort_parked_ok", reply(Op.COHORT_PARKED, listed, request_id=57)
    retry = cohorts.CohortParked(**NAMED, action="retry", items=[(PARTITION, number)])
    yield "cohort_retry", control(Op.COHORT_PARKED, retry, request_id=58)
    yield "cohort_retry_ok", reply(Op.COHORT_PARKED, cohorts.ParkedSettled(done=1), request_id=58)
