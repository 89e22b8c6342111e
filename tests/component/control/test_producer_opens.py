"""PRODUCER_OPEN of a name that partitions do not know any more, on a node with a fake native side."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.native import messages
from ringfence.native.wire import Code, Opcode
from tests.fakes.node_bench import CREATE, Bench, run

Patch = pytest.MonkeyPatch


def test_a_name_that_partitions_forgot_is_no_new_one_unless_the_caller_accepts_that(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(bench: Bench) -> None:
        info = await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        parts = [part.partition for part in info.partitions]
        bench.native.forgets_producers = {*parts}
        body = messages.ProducerOpen(topic="t", name="loader")
        bench.native.refuses["open_producer"] = "the disk is gone"
        for _ in range(2):
            assert await bench.refused(Opcode.PRODUCER_OPEN, body) == Code.INTERNAL
        del bench.native.refuses["open_producer"]
        first = await bench.ok(Opcode.PRODUCER_OPEN, body, messages.ProducerOpened)
        assert first.resume == [], "opens that ended half-way left no entry anywhere: the name is new"
        bench.native.forgets_producers = {parts[2]}
        for _ in range(2):
            assert await bench.refused(Opcode.PRODUCER_OPEN, body) == Code.RESUME_UNKNOWN
        accepted = messages.ProducerOpen(topic="t", name="loader", accept_fresh_start=True)
        again = await bench.ok(Opcode.PRODUCER_OPEN, accepted, messages.ProducerOpened)
        assert again.producer_id == first.producer_id
        assert again.producer_epoch > first.producer_epoch

    run(tmp_path, monkeypatch, work)
