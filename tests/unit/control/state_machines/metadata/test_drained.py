"""Which registered readers are through a sealed partition, and for how long they hold it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Index, PartitionId
from ringfence.control.model.results import Refused
from ringfence.control.state_machines.metadata import drained
from ringfence.control.state_machines.metadata.state_machine import validate
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
