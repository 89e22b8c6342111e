"""Sealed partitions without rows go under load, over the real engine; clients notice nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ringfence
from ringfence.control.model.ids import PartitionId
from ringfence.control.runtime.node_process import Node
from tests.fakes.admin_api import PLACE, TOPIC, Api
from tests.harness.layout_node import topic_of, until, with_node

COLUMNS = [{"name": "id", "type": "int64", "nullable": True}]
EACH = 50


class Load:
    """A producer and a follower in threads of their own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._ends, self._has_sent_all = threading.Event(), threading.Event()
        self.sent = 0
        self.found: list[int] = []

    def produce(self) -> None:
        with ringfence.connect(self._address) as client, client.producer("t") as producer:
            while not self._ends.is_set():
                ids = range(self.sent, self.sent + EACH)
                producer.send(pa.record_batch({"id": pa.array(ids, pa.int64())})).result(30)
                self.sent += EACH
                time.sleep(0.01)
        self._has_sent_all.set()

    def follow(self) -> None:
        with ringfence.connect(self._address) as client, client.read("t", follow=True) as reader:
            while not (self._has_sent_all.is_set() and len(self.found) >= self.sent):
                batch = reader.try_next()
                if batch is None:
                    time.sleep(0.005)
                else:
                    self.found += batch.column("id").to_pylist()

    def stop(self) -> None:
        self._ends.set()


async def pruned(api: Api, node: Node, load: Load, part: int) -> None:
    """Retention takes the rows of a sealed partition once they were read, and the leader prunes it."""
    count = load.sent
    await until(lambda: len(load.found) > count)
    assert (await api("POST", f"{PLACE}/truncate", {"partition": part})).status == 200
    native: Any = node.parts.data_plane.native_node.node

    def is_empty() -> bool:
        figures = next(one for one in native.partitions() if one["partition"] == part)
        return bool(figures["start_offset"] == figures["end_offset"])

    await until(is_empty)
    await until(lambda: not node.proposer.state.transitions)
    async with asyncio.timeout(60):
        # Its leader may be told of it one round later: an owner that is busy answers nothing.
        while part in {one.partition for one in topic_of(node).layout.partitions}:
            await node.parts.layouts.leader.prune()
            await asyncio.sleep(0.1)
    await until(lambda: part not in {one["partition"] for one in native.partitions()})


def test_a_pruned_partition_leaves_its_childrens_parents_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P30, for two generations."""

    async def work(api: Api, node: Node) -> None:
        assert (await api("POST", "/admin/topics", {**TOPIC, "columns": COLUMNS})).status == 201
        load = Load(node.addresses[0])
        flowing = [asyncio.ensure_future(asyncio.to_thread(one)) for one in (load.produce, load.follow)]
        await until(lambda: load.sent > 500)
        counters = node.parts.data_plane.native_node.node.counters
        sealed: list[PartitionId] = []
        for _ in range(2):
            part = next(one for one in topic_of(node).layout.active() if one.slots.lo == 0).partition
            split = await api("POST", f"{PLACE}/split/{part}", {})
            assert split.status == 200, split
            sealed.append(part)
        now_ms, proposer = node.proposer.now_ms, node.proposer
        monkeypatch.setattr(proposer, "now_ms", lambda: now_ms() + 2_000_000)  # `resolve_keep_s` is over
        for number, part in enumerate(sealed):
            sent = load.sent
            await until(lambda sent=sent: load.sent > sent + 500)  # type: ignore[misc]
            before, version = counters()["redirected"], topic_of(node).layout.version
            children = [one for one in topic_of(node).layout.partitions if part in one.parents]
            assert len(children) == 2
            await pruned(api, node, load, part)
            sent = load.sent
            await until(lambda sent=sent: load.sent > sent + 500)  # type: ignore[misc]
            topic = topic_of(node)
            assert topic.layout.version == version
            assert counters()["redirected"] == before, "a prune redirects nobody"
            left = {one.partition: one for one in topic.layout.partitions}
            for child in children:
                assert left[child.partition].parents == ()
            assert part not in left
            shown = await api("GET", f"{PLACE}/partitions/{part}")
            assert (shown.status, shown.body["pruned"]) == (404, True), number
        assert not any(one.done() for one in flowing)
        load.stop()
        await asyncio.wait_for(asyncio.gather(*flowing), 60)
        assert sorted(load.found) == [*range(load.sent)], "each row was read once"

    with_node(tmp_path, work)
