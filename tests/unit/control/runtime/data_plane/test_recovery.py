"""Partitions that a start finds on disk: those that the metadata names give no reason for alarm."""

from __future__ import annotations

from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.runtime.data_plane.recovery import report_partitions
from ringfence.control.runtime.process.health import Health
from tests.fakes.layout_log import LayoutLog


def reasons(log: LayoutLog, *partitions: tuple[TopicId, PartitionId]) -> str:
    health = Health()
    found = [
        {"topic": topic, "partition": partition, "start_offset": 2, "end_offset": 5}
        for topic, partition in partitions
    ]
    report_partitions(found, log.state, health)
    return "; ".join(health.reasons)


def test_children_are_known_before_their_commit_and_until_they_are_released() -> None:
    log = LayoutLog(3)
    log.must(log.split(log.active[0]))
    child = log.transition.children[0].partition
    assert reasons(log, (log.topic, log.active[0].partition), (log.topic, child)) == ""
    log.must(log.abort())
    assert reasons(log, (log.topic, child)) == ""
    strange = PartitionId(child + 7)
    assert f"3 rows of partition {strange} of topic {log.topic}" in reasons(log, (log.topic, strange))
    log.done(log.split(log.active[0]))
    sealed = log.now.layout.partitions[0].partition
    log.time_ms += 1_200_000
    log.must(log.prune(sealed))
    assert reasons(log, (log.topic, sealed)) == "", "its stores shall release it"
