"""The hash of a topic keeps packed bytes of partitions, assignments and seals: they equal the whole."""

from __future__ import annotations

from ringfence.control.model.ranges import tile
from ringfence.control.model.state import array_head, packed
from ringfence.control.state_machines.metadata.state_hash import StateDigests, _PackedTopic
from tests.fakes.layout_log import LayoutLog


def test_kept_bytes_are_those_of_the_whole_topic() -> None:
    log, kept, digests = LayoutLog(3, partitions=2), _PackedTopic(), StateDigests()
    for count in (9, 20, 3):
        log.done(log.repartition(tile(count)))
        assert kept.of(log.now) == packed(log.now)
        assert digests.of(log.state) == StateDigests().of(log.state)
    log.time_ms += 1_200_000
    log.must(log.prune(*(part.partition for part in log.now.layout.partitions[:2])))
    assert kept.of(log.now) == packed(log.now)
    assert log.now.gone


def test_heads_of_arrays() -> None:
    assert [array_head(size) for size in (0, 15, 16, 65_535, 65_536)] == [
        b"\x90",
        b"\x9f",
        b"\xdc\x00\x10",
        b"\xdc\xff\xff",
        b"\xdd\x00\x01\x00\x00",
    ]
