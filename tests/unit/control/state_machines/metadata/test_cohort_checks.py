"""What commands of cohorts need: names, bounds, sizes, and a plan that is fit to be obeyed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.cohort_commands import (
    CreateCohort,
    MarkDrained,
    PublishPlan,
    RegisterMembers,
    RemoveMembers,
    SliceChange,
)
from ringfence.control.model.cohorts import CohortMode, CohortSettings, StartKind
from ringfence.control.model.ids import TopicId, drawn
from ringfence.control.model.results import Refused
from ringfence.control.model.state import canonical_bytes
from ringfence.control.state_machines.metadata.state_machine import validate
from ringfence.native.wire import Code
from tests.fakes.cohort_log import CohortLog
from tests.fakes.layout_log import LayoutLog

STREAM, QUEUE = CohortMode.STREAM, CohortMode.QUEUE


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "ä", "a/b", "a\n", "\u0378", "\u0661"])
def test_names_are_ascii_by_one_table(name: str) -> None:
    log = CohortLog()
    number = log.create()
    log.refuses(CreateCohort(topic=log.topic, name=name, mode=STREAM), "cohort name")
    log.refuses(RegisterMembers(members=(log.item(number, name, "p"),)), "member name")


def test_what_a_cohort_needs_is_checked_before_it_is_made() -> None:
    log = CohortLog()
    made = CreateCohort(topic=log.topic, name="a", mode=STREAM)
    log.refuses(replace(made, topic=TopicId(99)), "no topic has the id")
    log.refuses(replace(made, start=StartKind.POSITIONS), "EARLIEST or LATEST")
    for name, values in (
        ("handover_ms", (10_999, 3_600_001)),
        ("lease_ms", (999, 3_600_001)),
        ("limit", (-1, 101)),
    ):
        for value in values:
            log.refuses(replace(made, settings=CohortSettings(**{name: value})), f"{name}={value}")
    log.must(log.config(topic_cohorts_max=2))
    log.create("a")
    log.create("b")
    log.refuses(replace(made, name="c"), "topic_cohorts_max")
    assert log.took(made).already, "a cohort that exists is no new one"
    log.must(log.config(topic_cohorts_max=64, cohorts_max=2))
    log.refuses(replace(made, name="c"), "cohorts_max")


def test_unsound_batches_are_refused_whole() -> None:
    log = CohortLog()
    number = log.create()
    item = log.item(number, "a")
    log.refuses(RegisterMembers(members=()), "1 to 512")
    log.refuses(RegisterMembers(members=(item,) * 513), "1 to 512")
    log.refuses(RegisterMembers(members=(item, item._replace(instance=b"short"))), "an instance of 5 bytes")
    log.refuses(RemoveMembers(members=()), "1 to 512")
    log.refuses(MarkDrained(marks=()), "1 to 4096")
    assert not log.members(number)


def test_a_plan_that_is_not_fit_to_be_obeyed_is_refused() -> None:
    log = CohortLog()
    number, queue = log.create(), log.create("q", QUEUE)
    log.join(number, "a", "b")
    ids = [part.partition for part in log.active]
    log.must(log.publish(number, a=(ids, [])))
    refused = {
        "changes nothing": log.publish(number),
        "or nothing of one": log.publish(number, a=([], ids[:1]), b=([], [])),
        "not registered": log.publish(number, c=(ids[:1], [])),
        "has no partition": log.publish(number, b=([7], [])),
        "would be with 'a' and 'b'": log.publish(number, b=(ids[:1], [])),
        "does not have partitions": log.publish(number, b=([], ids[:1])),
        "gives it back": log.publish(number, a=(ids[:1], ids[:1])),
        "named twice": log.publish(number, a=([], [ids[0], ids[0]])),
        "names a member twice": PublishPlan(
            cohort=number, generation=1, changes=(SliceChange("a", (), (ids[0],)),) * 2
        ),
        "which is not planned": log.publish(queue, a=(ids[:1], [])),
    }
    for words, command in refused.items():
        log.refuses(command, words)
    log.refuses(replace(refused["changes nothing"], cohort=drawn(1, 3)), "no cohort")


def test_both_of_two_members_that_are_given_a_partition_at_once_are_seen() -> None:
    log = CohortLog()
    number = log.create()
    log.join(number, "a", "b")
    first = log.active[0].partition
    log.refuses(log.publish(number, a=([first], []), b=([first], [])), "would be with 'a' and 'b'")


def test_a_refusal_is_known_before_a_proposal() -> None:
    log = CohortLog()
    refusal = validate(log.state, CreateCohort(topic=log.topic, name="", mode=STREAM))
    assert isinstance(refusal, Refused)
    assert refusal.code == Code.INVALID_ARGUMENT


def test_below_their_level_every_command_is_refused_and_the_state_has_the_bytes_of_before() -> None:
    old = LayoutLog(3)
    before = canonical_bytes(old.state)
    for command in (
        CreateCohort(topic=old.topic, name="etl", mode=STREAM),
        RegisterMembers(members=()),
        MarkDrained(marks=()),
    ):
        assert "run `ringfence cluster finalize`" in old.refuses(command, "the cluster's level is 2").message
    assert canonical_bytes(old.state) == before
    assert b"cohort" not in before
