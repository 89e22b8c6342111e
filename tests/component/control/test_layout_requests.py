"""LAYOUT_CHANGE and LAYOUT_DESCRIBE at the data address of a whole node over a fake native one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.model.state import canonical_bytes
from ringfence.control.runtime.handlers import layout_requests
from ringfence.native import messages
from ringfence.native.layout_messages import LayoutChange, LayoutChanged, LayoutDescribe, LayoutDescribed
from ringfence.native.wire import Code, Opcode
from tests.fakes import layout_engine
from tests.fakes.node_bench import CREATE, Bench, run

Patch = pytest.MonkeyPatch


def with_topic(root: Path, monkeypatch: Patch, work: Callable[[Bench, list[int]], Awaitable[None]]) -> None:
    layout_engine.install(monkeypatch)

    async def whole(bench: Bench) -> None:
        info = await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        await work(bench, [part.partition for part in info.partitions])

    run(root, monkeypatch, whole)


def asked(action: str, partitions: list[int] | None = None, **more: Any) -> LayoutChange:
    fields = {"wait_ms": 5_000, **more}
    return LayoutChange(topic="t", action=action, partitions=partitions or [], **fields)


async def changed(bench: Bench, request: LayoutChange) -> LayoutChanged:
    return await bench.ok(Opcode.LAYOUT_CHANGE, request, LayoutChanged)


def test_partitions_are_split_merged_and_described(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, parts: list[int]) -> None:
        done = await changed(bench, asked("split", [parts[0]], into=3, key="k"))
        assert (done.version, len(done.partitions)) == (2, 3)
        assert done.phase in {"COMMITTED", "OPENED"}
        again = await changed(bench, asked("split", [parts[0]], into=3, key="k", wait_ms=0))
        assert again.change == done.change, "the same key is the same request"
        other = asked("split", [parts[1]], key="k")
        assert await bench.refused(Opcode.LAYOUT_CHANGE, other) == Code.CONFLICT
        merged = await changed(bench, asked("merge", [parts[2], parts[1]]))
        assert [entry.parents for entry in merged.partitions] == [[parts[1], parts[2]]]
        nothing = await changed(bench, asked("repartition", into=4))
        assert (nothing.change, nothing.version) == (0, 3)
        would = await changed(bench, asked("repartition", into=2, preview=True))
        assert [nodes for *_, nodes in would.would] == [[1], [1]]  # type: ignore[union-attr]
        shown = await bench.ok(Opcode.LAYOUT_DESCRIBE, LayoutDescribe(topic="t"), LayoutDescribed)
        assert (shown.version, shown.more) == (3, False)
        sealed = {entry.partition: entry.end_offset for entry in shown.partitions if entry.state == "SEALED"}
        assert sealed == dict.fromkeys(parts, 100)
        monkeypatch.setattr(layout_requests, "DESCRIBED_MAX", 3)
        pages, after = [], 0
        while True:
            body = LayoutDescribe(topic="t", after=after)
            page = await bench.ok(Opcode.LAYOUT_DESCRIBE, body, LayoutDescribed)
            pages += [entry.partition for entry in page.partitions]
            after = pages[-1]
            if not page.more:
                break
        assert pages == sorted(entry.partition for entry in shown.partitions)

    with_topic(tmp_path, monkeypatch, work)


def test_a_change_that_goes_on_is_described_and_aborted(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, parts: list[int]) -> None:
        bench.native.holds.add("open")
        begun = await changed(bench, asked("split", [parts[0]], wait_ms=50))
        assert begun.phase == "PREPARED"
        await asyncio.sleep(0.2)
        shown = await bench.ok(Opcode.LAYOUT_DESCRIBE, LayoutDescribe(topic="t"), LayoutDescribed)
        [one] = shown.transitions
        assert (one.change, one.waits) == (begun.change, ["an answer of nodes 1"])
        ended = await changed(bench, asked("abort", change=begun.change))
        assert ended.phase == "ABORTED"
        again = await changed(bench, asked("abort", change=begun.change))
        assert again.phase == "ABORTED", "a repeat finds what it asks for"
        bench.native.holds.clear()
        bench.native.release()

    with_topic(tmp_path, monkeypatch, work)


@pytest.mark.parametrize(
    ("action", "count", "more", "code"),
    [
        ("split", 0, {}, Code.INVALID_ARGUMENT),
        ("split", 2, {}, Code.INVALID_ARGUMENT),
        ("split", 1, {"at": [5], "into": 2}, Code.INVALID_ARGUMENT),
        ("split", 1, {"at": [-1]}, Code.INVALID_ARGUMENT),
        ("split", 1, {"at": [1 << 40]}, Code.INVALID_ARGUMENT),
        ("split", 1, {"into": 1 << 40}, Code.INVALID_ARGUMENT),
        ("merge", 1, {}, Code.INVALID_ARGUMENT),
        ("merge", 3, {}, Code.INVALID_ARGUMENT),
        ("repartition", 1, {"into": 2}, Code.INVALID_ARGUMENT),
        ("repartition", 0, {"into": 0}, Code.INVALID_ARGUMENT),
        ("repartition", 0, {"into": -3}, Code.INVALID_ARGUMENT),
        ("close", 1, {}, Code.INVALID_ARGUMENT),
        ("abort", 0, {"change": 99}, Code.UNKNOWN_PARTITION),
        ("split", 1, {"key": "k" * 201}, Code.INVALID_ARGUMENT),
        ("split", 1, {"key": "\n"}, Code.INVALID_ARGUMENT),
        ("split", 1, {"topic": "missing"}, Code.UNKNOWN_TOPIC),
        ("split", 1, {"partitions": [99]}, Code.UNKNOWN_PARTITION),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(
    action: str, count: int, more: dict[str, Any], code: Code, tmp_path: Path, monkeypatch: Patch
) -> None:
    async def work(bench: Bench, parts: list[int]) -> None:
        before = canonical_bytes(bench.node.proposer.state)
        fields = {"topic": "t", "partitions": parts[:count], **more}
        request = LayoutChange(action=action, **fields)
        assert await bench.refused(Opcode.LAYOUT_CHANGE, request) == code
        assert canonical_bytes(bench.node.proposer.state) == before

    with_topic(tmp_path, monkeypatch, work)


def test_a_token_with_a_prefix_reaches_its_own_topics_only(tmp_path: Path, monkeypatch: Patch) -> None:
    async def work(bench: Bench, parts: list[int]) -> None:
        bench.native.prefix = "acme/"
        request = asked("split", [parts[0]])
        assert await bench.refused(Opcode.LAYOUT_CHANGE, request) == Code.UNAUTHORIZED
        assert await bench.refused(Opcode.LAYOUT_DESCRIBE, LayoutDescribe(topic="t")) == Code.UNAUTHORIZED

    with_topic(tmp_path, monkeypatch, work)
