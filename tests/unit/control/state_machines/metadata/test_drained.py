"""Which registered readers are through a sealed partition, and for how long they hold it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Index, PartitionId, TopicId
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata import cohort_lineage, drained
from ringfence.control.state_machines.metadata.state_machine import validate
from tests.fakes.cohort_walk import CohortWalk
from tests.fakes.layout_log import LayoutLog
from tests.fakes.metadata_commands import create


def test_the_hold_time_of_a_topic_is_checked_from_its_level_on() -> None:
    assert [drained.hold_fault(text) is None for text in ("3600", "86400", "2592000")] == [True] * 3
    for text in ("", "3599", "2592001", "-1", "1e5", "٣٦٠٠", "9" * 30):
        fault = drained.hold_fault(text)
        assert fault is not None and "sealed_hold_s" in fault
    made = replace(create("public/default/b"), properties={drained.HOLD_PROPERTY: "5"})
    for level, is_refused in ((1, False), (2, True)):
        refusal = validate(LayoutLog(1, level=level, partitions=1).state, made)
        assert isinstance(refusal, Refused) == is_refused


class Reader:
    def __init__(self, name: str, created: int, *, is_through: bool) -> None:
        self.name, self.created, self.is_through = name, Index(created), is_through

    def has_read(self, _: PartitionId) -> bool:
        return self.is_through


def test_readers_that_came_after_an_entry_do_not_count_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LayoutLog(3)
    source = log.active[0].partition
    log.done(log.split(log.active[0]), upto="commit")
    born = log.transition.adoption_generation
    readers = [Reader("b", born + 1, is_through=False), Reader("a", born, is_through=True)]
    monkeypatch.setattr(drained, "registered_readers", lambda *_: tuple(readers))
    assert drained.is_transition_drained(log.state, log.transition)
    assert drained.holders(log.state, log.topic, source) == ("b",)
    assert not drained.is_drained(log.state, log.topic, source)
    readers[1].is_through = False
    assert drained.holders(log.state, log.topic, source) == ("a", "b")
    assert not drained.is_transition_drained(log.state, log.transition)


def test_a_topic_sets_for_how_long_a_partition_is_held() -> None:
    log = LayoutLog(3)
    source = log.active[0].partition
    log.done(log.split(log.active[0]))
    sealed_ms = log.time_ms
    for text, expected_s in (("", 86_400), ("7200", 7_200), ("nonsense", 86_400)):
        topic = replace(log.now, properties={drained.HOLD_PROPERTY: text})
        for late_ms, is_over in ((0, True), (-1, False)):
            time_ms = sealed_ms + expected_s * 1_000 + late_ms
            state = replace(log.state, topics={log.topic: topic}, time_ms=time_ms)
            assert drained.is_overdue(state, log.topic, source) == is_over
    assert not drained.is_overdue(log.state, log.topic, log.active[0].partition), "ACTIVE"


# ---- many partitions together: the same answers as for each alone --------------------------------------

DAY_MS = 86_400_000
WALKS = 12


def held(state: MetadataState, topic: TopicId) -> set[PartitionId]:
    """SEALED partitions that some cohort is not through, and that are not overdue: by the definition."""
    return {
        part.partition
        for part in state.topics[topic].layout.partitions
        if not part.is_active
        and not drained.is_overdue(state, topic, part.partition)
        and any(
            cohort.topic == topic and not cohort_lineage.is_through(state, cohort, part)
            for cohort in state.cohorts.values()
        )
    }


def lagging(state: MetadataState) -> set[PartitionId]:
    return {
        part.partition
        for topic in state.topics
        for part in state.topics[topic].layout.active()
        if held(state, topic) & {*part.parents}
    }


def test_answers_about_many_partitions_are_those_about_each_alone() -> None:
    counts = [0, 0, 0]
    for seed in range(WALKS):
        walk = CohortWalk(seed)
        for number in range(150):
            walk.step()
            if number % 3:
                continue
            seals = [seal for topic in walk.state.topics.values() for seal in (topic.seals or {}).values()]
            ends = [seal.sealed_ms + DAY_MS for seal in seals]
            for time_ms in {walk.state.time_ms, *(end - early for end in ends for early in (0, 1))}:
                state = replace(walk.state, time_ms=time_ms)
                found = lagging(state)
                assert drained.lagging_partitions(state) == found
                counts[0] += bool(found)
                for topic, record in state.topics.items():
                    now, readers = held(state, topic), drained.registered_readers(state, topic)
                    for sealed in record.seals or {}:
                        is_drained = sealed not in now
                        assert drained.is_drained(state, topic, sealed) == is_drained
                        assert drained.is_drained(state, topic, sealed, readers=readers) == is_drained
                        counts[1 + is_drained] += 1
    assert min(counts) > 50, counts
