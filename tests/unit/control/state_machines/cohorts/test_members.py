"""A node's part of JOIN: what it answers, what it registers, and what it refuses."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.cohort_commands import CreateCohort, RegisterMembers, Registration
from ringfence.control.model.cohorts import CohortMode, CohortSettings, MemberSession, StartKind
from ringfence.control.model.ids import Index, NodeId, TopicId
from ringfence.control.model.results import Refused
from ringfence.control.state_machines.cohorts.members import (
    GATHER_MS,
    JOINS_PER_S,
    PAGE_PARTITIONS_MAX,
    Fenced,
    Join,
    JoinBatches,
    Registered,
    Taken,
    created_fault,
    evaluate_join,
    joined,
    unbegun,
)
from ringfence.native.wire import Code
from tests.fakes.cohort_log import CohortLog, instance

STREAM, QUEUE = CohortMode.STREAM, CohortMode.QUEUE
HERE = NodeId(1)


def join(log: CohortLog, member: str = "m", process: str = "", **fields: object) -> Join:
    made = Join(log.topic, "c", member, STREAM, instance(process or member))
    return made._replace(**fields)  # type: ignore[arg-type]


def test_the_first_member_creates_the_cohort_with_its_settings_or_the_defaults() -> None:
    log = CohortLog()
    made = evaluate_join(log.state, join(log, start=StartKind.LATEST), HERE)
    assert made == CreateCohort(topic=log.topic, name="c", mode=STREAM, start=StartKind.LATEST)
    wanted = CohortSettings(limit=9)
    made = evaluate_join(log.state, join(log, settings=wanted), HERE)
    assert isinstance(made, CreateCohort)
    assert made.settings == wanted
    log.must(log.config(cohorts_by_join=0))
    assert isinstance(evaluate_join(log.state, join(log), HERE), Refused)


def test_another_mode_or_other_settings_than_those_of_the_cohort_are_refused() -> None:
    log = CohortLog()
    log.create("c", limit=9)
    refusal = evaluate_join(log.state, join(log, mode=QUEUE), HERE)
    assert isinstance(refusal, Refused)
    assert "mode STREAM, the member joins with QUEUE" in refusal.message
    assert created_fault(log.state, join(log)) is None, "no settings: those of the cohort"
    assert created_fault(log.state, join(log, settings=CohortSettings(limit=9))) is None
    assert created_fault(log.state, join(log, settings=CohortSettings())) is not None


def test_unsound_requests_are_refused_before_anything_is_looked_up() -> None:
    log = CohortLog()
    for fields, words in (
        ({"cohort": "a b"}, "cohort name"),
        ({"member": ""}, "member name"),
        ({"instance": b"x"}, "an instance of 1 bytes"),
        ({"start": StartKind.POSITIONS}, "EARLIEST or LATEST"),
        ({"topic": TopicId(5)}, "no topic"),
    ):
        refusal = evaluate_join(log.state, join(log, **fields), HERE)
        assert isinstance(refusal, Refused)
        assert words in refusal.message


def test_reconnecting_costs_no_entry() -> None:
    log = CohortLog()
    number = log.create()
    (session,) = log.join(number, "m")
    for after in (0, session, 77):
        asked = join(log, after=MemberSession(after))
        assert evaluate_join(log.state, asked, HERE) == Registered(number, session)


def test_a_name_in_use_is_taken_over_with_its_session_and_the_older_process_never_again() -> None:
    log = CohortLog()
    number = log.create()
    (session,) = log.join(number, "m")
    told = evaluate_join(log.state, join(log, process="new"), HERE)
    assert isinstance(told, Taken)
    assert told.session == session
    made = evaluate_join(log.state, join(log, process="new", after=session), HERE)
    assert made == Registration(number, "m", instance("new"), session, HERE)
    log.must(_entry(made))
    fenced = evaluate_join(log.state, join(log), HERE)
    assert isinstance(fenced, Fenced)
    assert "taken over by a newer process" in fenced.message
    gone = evaluate_join(log.state, join(log, "other", after=session), HERE)
    assert isinstance(gone, Taken)
    assert (gone.session, "not registered any more" in gone.message) == (0, True)


def _entry(*items: Registration) -> RegisterMembers:
    batches = JoinBatches()
    for ticket, item in enumerate(items):
        assert batches.add(item, ticket, 0) is None
    made = batches.due(GATHER_MS)
    assert made is not None
    return made


# ---- batches --------------------------------------------------------------------------------------------


def test_registrations_are_gathered_for_20_ms_or_while_an_entry_is_under_way() -> None:
    log = CohortLog()
    number = log.create()
    batches = JoinBatches()
    for place in range(3):
        assert batches.add(log.item(number, f"m{place}"), place, place) is None
    assert batches.due(GATHER_MS - 1) is None
    first = batches.due(GATHER_MS)
    assert first is not None
    assert len(first.members) == 3
    batches.add(log.item(number, "late"), 9, 21)
    assert batches.due(500) is None, "one entry of this node is under way"
    outcomes = batches.end(Index(log.at + 1), log.took(first))
    sessions = [log.members(number)[f"m{place}"].session for place in range(3)]
    assert [(one.ticket, one.decision) for one in outcomes] == [
        (place, Registered(number, session)) for place, session in enumerate(sessions)
    ]
    assert batches.due(500) is not None


def test_each_request_of_a_batch_gets_its_own_outcome() -> None:
    log = CohortLog()
    number = log.create()
    (session,) = log.join(number, "m")
    batches = JoinBatches()
    gone = log.create("gone")
    items = (
        log.item(number, "m"),
        log.item(number, "m", "other"),
        log.item(gone, "n"),
        log.item(number, "new"),
    )
    log.must(log.delete(gone))
    for ticket, item in enumerate(items):
        batches.add(item, ticket, 0)
    batches.add(items[3], 4, 1)  # the same request again
    made = batches.due(GATHER_MS)
    assert made is not None
    assert len(made.members) == 4
    found = {one.ticket: one.decision for one in batches.end(Index(log.at + 1), log.took(made))}
    assert found[0] == Registered(number, session)
    assert isinstance(found[1], Taken)
    assert isinstance(found[2], Refused)
    assert found[3] == found[4] == Registered(number, log.members(number)["new"].session)


def test_a_limit_and_a_fence_are_told_to_the_member_that_meets_them() -> None:
    log = CohortLog()
    number = log.create()
    log.must(log.config(cohort_members_max=1))
    (session,) = log.join(number, "m")
    log.must(_entry(log.item(number, "m", "newer", session)))
    batches = JoinBatches()
    batches.add(log.item(number, "m"), 0, 0)
    batches.add(log.item(number, "n"), 1, 0)
    made = batches.due(GATHER_MS)
    assert made is not None
    fenced, full = batches.end(Index(log.at + 1), log.took(made))
    assert isinstance(fenced.decision, Fenced)
    assert isinstance(full.decision, Refused)
    assert "cohort_members_max" in full.decision.message


def test_an_entry_that_was_refused_or_is_not_known_is_told_to_all_and_the_next_one_may_go() -> None:
    log = CohortLog()
    number = log.create()
    batches = JoinBatches()
    batches.add(log.item(number, "m"), 0, 0)
    assert batches.due(GATHER_MS) is not None
    refusal = Refused(code=Code.STOPPING, message="the node is going down")
    assert [one.decision for one in batches.fail(refusal)] == [refusal]
    batches.add(log.item(number, "m"), 1, 30)
    assert batches.due(60) is not None


def test_ten_thousand_members_are_twenty_entries_and_a_flood_is_refused() -> None:
    log = CohortLog()
    number = log.create()
    batches, entries, taken = JoinBatches(), 0, 0
    for place in range(10_000):
        refused = batches.add(log.item(number, f"m{place}"), place, 0)
        taken += refused is None
        if refused is not None:
            assert refused.code == Code.OVERLOADED
    assert taken == JOINS_PER_S
    nodes = [JoinBatches() for _ in range(10)]
    for place in range(10_000):
        assert nodes[place % 10].add(log.item(number, f"m{place}"), place, 0) is None
    for node in nodes:
        while (made := node.due(1_000)) is not None:
            log.must(made)
            node.end(Index(log.at), log.last)  # type: ignore[arg-type]
            entries += 1
    assert (entries, len(log.members(number))) == (20, 10_000)


# ---- answers --------------------------------------------------------------------------------------------


def test_the_answer_has_the_slice_without_what_is_drained_in_pages_of_one_generation() -> None:
    log = CohortLog(partitions=3)
    number = log.create()
    log.join(number, "m")
    source = log.active[0]
    log.split_done(source)
    log.plan(number)
    log.must(log.drained(number, source.partition))
    page = joined(log.state, log.cohort(number), "m")
    assert page is not None
    assert source.partition not in page.partitions
    assert page.partitions == tuple(sorted(part.partition for part in log.active))
    assert (page.generation, int(page.incarnation), page.more) == (1, int(number), False)
    rest = joined(log.state, log.cohort(number), "m", page.partitions[0])
    assert rest is not None
    assert rest.partitions == page.partitions[1:]
    assert joined(log.state, log.cohort(number), "nobody") is None


def test_a_large_slice_is_several_pages() -> None:
    log = CohortLog(partitions=1)
    number = log.create()
    log.join(number, "m")
    log.plan(number)
    part = log.active[0]
    count = PAGE_PARTITIONS_MAX + 10
    made = tuple(replace(part, partition=number) for number in range(1, count + 1))
    topic = replace(log.now, layout=replace(log.now.layout, partitions=made))
    member = replace(log.members(number)["m"], slice=tuple(range(1, count + 1)))
    state = replace(log.state, topics={log.topic: topic}, cohort_members={number: {"m": member}})
    page = joined(state, log.cohort(number), "m")
    assert page is not None
    assert (len(page.partitions), page.more) == (PAGE_PARTITIONS_MAX, True)
    rest = joined(state, log.cohort(number), "m", page.partitions[-1])
    assert rest is not None
    assert (len(rest.partitions), rest.more) == (10, False)


def test_a_join_at_the_latest_rows_waits_for_owners_that_can_tell_where_their_logs_end() -> None:
    """PB44: a partition whose owner is away takes no rows: nobody waits for it."""
    log = CohortLog(partitions=3)
    number = log.create(start=StartKind.LATEST)
    one, two, three = log.cohort(number).resetting
    assert unbegun(log.cohort(number), {one, two}) == (one, two)
    log.must(log.begun(number, one, two))
    assert unbegun(log.cohort(number), {one, two}) == ()
    assert unbegun(log.cohort(number)) == (three,), "told as not begun"
