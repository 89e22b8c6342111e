"""A whole node over a gated native one with topic `t` of three partitions; a JOIN makes cohort `etl`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ringfence.native import messages
from ringfence.native.cohort_messages import Join, Joined
from ringfence.native.wire import Opcode
from tests.fakes import gated_node
from tests.fakes.gated_node import GatedNode
from tests.fakes.node_bench import CREATE, Bench, run

Patch = pytest.MonkeyPatch
Work = Callable[[Bench, GatedNode, list[int]], Awaitable[None]]


def with_cohorts(root: Path, monkeypatch: Patch, work: Work) -> None:
    gated_node.install(monkeypatch)

    async def whole(bench: Bench) -> None:
        info = await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        assert isinstance(bench.native, GatedNode)
        await work(bench, bench.native, [part.partition for part in info.partitions])

    run(root, monkeypatch, whole)


def joins(member: str, instance: int = 1, **more: object) -> Join:
    fields = {"cohort": "etl", "mode": "stream", "instance": bytes([instance]) * 16, **more}
    return Join(topic="t", member=member, **fields)  # type: ignore[arg-type]


async def joined(bench: Bench, request: Join) -> Joined:
    return await bench.ok(Opcode.JOIN, request, Joined)
