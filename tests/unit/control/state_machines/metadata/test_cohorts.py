"""Commands of cohorts, one rule a test. A refused command leaves every byte (`LayoutLog.do` holds it)."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.cohort_commands import (
    ChangeCohort,
    CreateCohort,
    DeleteCohort,
    RegisterMembers,
    Removal,
    RemovalReason,
    RemoveMembers,
)
from ringfence.control.model.cohorts import REPLACED_MAX, CohortMode, CohortSettings, MemberSession, StartKind
from ringfence.control.model.commands import DeleteTopic
from ringfence.control.model.ids import TopicId, drawn
from ringfence.control.model.results import (
    CohortCreated,
    Done,
    ItemsTaken,
    NotRegistered,
    RegistrationOutcome,
)
from ringfence.control.state_machines.metadata.etags import tag_of
from ringfence.control.state_machines.metadata.state_hash import StateDigests
from ringfence.native.wire import Code
from tests.fakes.cohort_log import CohortLog, instance

STREAM, CHECKPOINT, QUEUE = CohortMode.STREAM, CohortMode.CHECKPOINT, CohortMode.QUEUE
LATEST = StartKind.LATEST


# ---- the cohort -----------------------------------------------------------------------------------------


def test_a_cohort_is_created_once_and_found_by_whoever_asks_for_the_same() -> None:
    log = CohortLog()
    number = log.create("etl")
    assert number == drawn(log.at, 0)
    cohort = log.cohort(number)
    assert int(cohort.incarnation) == number
    assert (cohort.generation, cohort.layout_version) == (0, 1)
    assert cohort.idle_since_ms > 0
    again = log.took(CreateCohort(topic=log.topic, name="etl", mode=STREAM, start=LATEST))
    assert again == CohortCreated(cohort=number, already=True)
    assert log.cohort(number) is cohort
    for other in (
        CreateCohort(topic=log.topic, name="etl", mode=QUEUE),
        CreateCohort(topic=log.topic, name="etl", mode=STREAM, settings=CohortSettings(limit=6)),
    ):
        assert log.refuses(other, "exists with mode STREAM").code == Code.ALREADY_EXISTS


def test_settings_change_by_the_version_that_was_read_and_the_same_ones_need_none() -> None:
    log = CohortLog()
    number = log.create("etl")
    first = log.cohort(number).changed
    assert tag_of(log.state, f"cohort/{number}") == str(first)
    log.refuses(log.change(number, first - 1, limit=9), "of version")
    assert log.took(log.change(number, first, limit=9)) == Done()
    changed = log.cohort(number)
    assert (changed.settings.limit, changed.changed) == (9, log.at)
    assert changed.generation == 0
    log.must(log.change(number, 1, limit=9))
    assert log.cohort(number) is changed, "equal settings are there already, whatever is expected"
    other_mode = ChangeCohort(cohort=number, mode=QUEUE, settings=CohortSettings(), expected=changed.changed)
    assert log.refuses(other_mode, "never changes").code == Code.ALREADY_EXISTS
    log.refuses(log.change(number, changed.changed, limit=101), "limit=101")
    log.refuses(replace(other_mode, cohort=drawn(1, 7)), "no cohort")


def test_a_cohort_that_was_deleted_and_made_again_is_another_one() -> None:
    log = CohortLog()
    number = log.create("etl")
    log.join(number, "a")
    log.plan(number)
    gone = log.delete(number)
    log.must(gone)
    assert not log.state.cohorts
    assert not log.state.cohort_members
    assert not log.state.cohort_names
    log.refuses(gone, "no cohort 'etl'")
    again = log.create("etl")
    assert again > number
    assert "created again" in log.refuses(gone, str(again)).message
    log.refuses(DeleteCohort(topic=TopicId(99), name="etl", cohort=again), "no topic")


def test_a_topic_with_members_is_deleted_by_force_only_and_takes_its_cohorts_along() -> None:
    log = CohortLog()
    number = log.create("etl")
    log.create("idle", QUEUE, LATEST)
    log.join(number, "b", "a")
    refusal = log.refuses(DeleteTopic(topic=log.topic), "etl/a, etl/b", "--force")
    assert refusal.code == Code.ALREADY_EXISTS
    log.must(DeleteTopic(topic=log.topic, force=True))
    assert not (log.state.cohorts or log.state.cohort_names or log.state.cohort_members)


# ---- members --------------------------------------------------------------------------------------------


def test_a_session_is_drawn_from_the_entry_and_the_place_of_its_item() -> None:
    log = CohortLog()
    number = log.create()
    assert log.join(number, "b", "a") == [drawn(log.at, 0), drawn(log.at, 1)]
    assert log.cohort(number).idle_since_ms == 0
    assert log.cohort(number).generation == 0, "a registration with an empty slice changes no slice"


def test_the_same_instance_is_the_same_session_and_no_new_entry_of_it() -> None:
    log = CohortLog()
    number = log.create()
    (session,) = log.join(number, "a")
    before = log.state.cohort_members
    result = log.took(RegisterMembers(members=(log.item(number, "a"),)))
    assert result.others == (NotRegistered(0, RegistrationOutcome.SAME, session),)
    assert log.state.cohort_members is before


def test_a_name_is_taken_over_by_naming_the_session_that_has_it() -> None:
    log = CohortLog()
    number = log.create()
    (first,) = log.join(number, "a")
    log.plan(number)
    share = log.members(number)["a"].slice
    generation = log.cohort(number).generation
    for after in (MemberSession(0), MemberSession(first + 1)):
        result = log.took(RegisterMembers(members=(log.item(number, "a", "new", after),)))
        assert result.others == (NotRegistered(0, RegistrationOutcome.CONFLICT, first),)
    result = log.took(RegisterMembers(members=(log.item(number, "a", "new", first),)))
    member = log.members(number)["a"]
    assert (result.others, member.session) == ((), drawn(log.at, 0))
    assert (member.instance, member.replaced) == (instance("new"), (instance("a"),))
    assert (member.slice, log.cohort(number).generation) == (share, generation), "slices are by name"
    result = log.took(RegisterMembers(members=(log.item(number, "a", "a", member.session),)))
    assert result.others == (NotRegistered(0, RegistrationOutcome.FENCED, member.session),)


def test_a_member_remembers_its_last_replaced_instances() -> None:
    log = CohortLog()
    number = log.create()
    (session,) = log.join(number, "a")
    for turn in range(REPLACED_MAX + 2):
        log.must(RegisterMembers(members=(log.item(number, "a", f"p{turn}", session),)))
        session = log.members(number)["a"].session
    known = log.members(number)["a"].replaced
    assert known == tuple(instance(f"p{turn}") for turn in range(1, REPLACED_MAX + 1))


def test_an_item_that_is_refused_does_not_spoil_the_others() -> None:
    log = CohortLog()
    number = log.create()
    log.join(number, "a")
    gone = drawn(1, 9)
    items = (
        log.item(number, "b"),
        log.item(number, "a", "other"),
        log.item(gone, "c"),  # type: ignore[arg-type]
        log.item(number, "b", "twice"),
        log.item(number, "d"),
    )
    result = log.took(RegisterMembers(members=items))
    assert [(other.item, other.why) for other in result.others] == [
        (1, RegistrationOutcome.CONFLICT),
        (2, RegistrationOutcome.UNKNOWN),
        (3, RegistrationOutcome.CONFLICT),
    ]
    members = log.members(number)
    assert (members["b"].session, members["d"].session) == (drawn(log.at, 0), drawn(log.at, 4))


def test_members_are_limited_by_cohort_and_by_cluster_and_a_take_over_is_no_new_one() -> None:
    log = CohortLog()
    one, other = log.create("one"), log.create("other")
    log.must(log.config(cohort_members_max=2, members_max=3))
    (first, _) = log.join(one, "a", "b")
    result = log.took(RegisterMembers(members=(log.item(one, "c"), log.item(one, "a", "new", first))))
    assert [(item.item, item.why) for item in result.others] == [(0, RegistrationOutcome.LIMIT)]
    result = log.took(RegisterMembers(members=(log.item(other, "a"), log.item(other, "b"))))
    assert [(item.item, item.why) for item in result.others] == [(1, RegistrationOutcome.LIMIT)]


def test_a_member_is_removed_by_its_session_and_its_partitions_are_with_nobody() -> None:
    log = CohortLog()
    number = log.create()
    first, _ = log.join(number, "a", "b")
    log.plan(number)
    generation = log.cohort(number).generation
    late = Removal(number, "a", MemberSession(first - 1), RemovalReason.SILENT)
    assert log.took(RemoveMembers(members=(late,))) == ItemsTaken(count=0)
    assert log.cohort(number).generation == generation
    assert log.took(log.leave(number, "a", "b")) == ItemsTaken(count=2)
    cohort = log.cohort(number)
    assert cohort.generation == generation + 1, "one entry, one generation"
    assert cohort.idle_since_ms > 0
    log.join(number, "c")
    log.must(log.leave(number, "c"))
    assert log.cohort(number).generation == generation + 1, "it had no partition"


# ---- plans ----------------------------------------------------------------------------------------------


def test_a_plan_is_published_once_and_an_equal_one_is_no_entry() -> None:
    log = CohortLog()
    number = log.create()
    log.join(number, "a", "b")
    ids = [part.partition for part in log.active]
    first = log.publish(number, a=(ids[:2], []), b=(ids[2:], []))
    log.must(first)
    assert log.cohort(number).generation == 1
    before = log.state
    for _ in range(100):  # F19
        log.refuses(first, "has generation 1")
        log.refuses(replace(first, generation=1), "would be with")
    assert log.state is before
    log.must(log.publish(number, a=([], ids[:1]), b=(ids[:1], [])))
    assert log.slices(number) == {"a": (ids[1],), "b": tuple(sorted([ids[0], *ids[2:]]))}


def test_sealed_partitions_are_planned_until_they_are_drained() -> None:
    log = CohortLog()
    number = log.create()
    log.join(number, "a")
    source = log.active[0]
    heir, other = log.split_done(source)
    log.must(log.publish(number, a=([source.partition, heir.partition, other.partition], [])))
    log.must(log.drained(number, source.partition))
    assert source.partition in log.slices(number)["a"], "it leaves with the next plan"
    generation = log.cohort(number).generation
    log.plan(number)
    assert source.partition not in log.slices(number)["a"]
    assert log.cohort(number).generation == generation + 1
    log.refuses(log.publish(number, a=([source.partition], [])), "is through it")


# ---- what all nodes must have alike -----------------------------------------------------------------------


def test_equal_states_have_equal_hashes_in_whatever_order_marks_came() -> None:
    """A set in the state would be listed in another order by a node that took a snapshot (PB42)."""
    logs = []
    for order in (1, -1):
        log = CohortLog(partitions=8)
        number = log.create()
        sources = log.active
        for part in sources:
            log.done(log.split(part), upto="opened")
        log.must(log.drained(number, *[part.partition for part in sources][::order]))
        log.agree()
        logs.append(log)
    assert StateDigests().of(logs[0].state) == StateDigests().of(logs[1].state)
