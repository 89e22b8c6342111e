"""Layout changes of a whole node over the real engine: what is inherited, sealed and served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

import ringfence
from ringfence.control.runtime.node_process import Node
from tests.fakes.admin_api import PLACE, TOPIC, Api
from tests.fakes.layout_level import raise_program
from tests.harness.layout_node import check, settled, topic_of, until, with_node

Patch = pytest.MonkeyPatch


def test_layout_changes_over_the_real_engine_and_a_restart(tmp_path: Path, monkeypatch: Patch) -> None:
    raise_program(monkeypatch)

    async def work(api: Api, node: Node) -> None:
        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        first, second, third = (part.partition for part in topic_of(node).layout.active())
        split = await api("POST", f"{PLACE}/split/{first}", {"into": 3})
        assert split.status == 200, split
        assert len(split.body["partitions"]) == 3
        await settled(node)
        check(node)
        merged = await api("POST", f"{PLACE}/merge/{second}/{third}", {})
        assert merged.status == 200, merged
        spread = await api("POST", f"{PLACE}/repartition", {"partitions": 7})
        assert spread.status == 200, spread
        await settled(node)
        check(node)
        assert len(topic_of(node).layout.active()) == 7

    async def again(_: Api, node: Node) -> None:
        await settled(node)
        check(node)
        assert len(topic_of(node).layout.active()) == 7

    with_node(tmp_path, work)
    with_node(tmp_path, again)


def test_rows_and_names_from_before_a_split_are_known_to_its_children(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    raise_program(monkeypatch)

    def publish(address: str) -> int:
        with ringfence.connect(address) as client:
            batch = pa.record_batch({"id": pa.array(range(1_000), pa.int64())})
            with client.producer("t", name="loader") as producer:
                producer.send(batch).result(20)
            with client.producer("t") as producer:
                producer.send(batch).result(20)
            return sum(part.end_offset for part in client.topic("t").partitions)

    async def work(api: Api, node: Node) -> None:
        schema = [{"name": "id", "type": "int64", "nullable": True}]
        topic = {**TOPIC, "columns": schema}
        assert (await api("POST", "/admin/topics", topic)).status == 201
        assert await asyncio.to_thread(publish, node.addresses[0]) == 2_000
        first, *_ = (part.partition for part in topic_of(node).layout.active())
        split = await api("POST", f"{PLACE}/split/{first}", {"into": 2})
        assert split.status == 200, split
        await settled(node)
        check(node)
        seal = topic_of(node).seal(first)
        assert seal is not None
        assert 0 < seal.end.offset < 2_000
        native = node.parts.data_plane.native_node.node
        producers = {part["partition"]: part["producers"] for part in native.partitions()}
        for child in split.body["partitions"]:
            assert producers[child["partition"]] == producers[first] == 2
        spread = await api("POST", f"{PLACE}/repartition", {"partitions": 5})
        assert spread.status == 200, spread
        await settled(node)
        check(node)

    with_node(tmp_path, work)


def test_an_aborted_split_leaves_nothing_at_the_real_engine(tmp_path: Path, monkeypatch: Patch) -> None:
    raise_program(monkeypatch)

    async def work(api: Api, node: Node) -> None:
        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        first, *_ = (part.partition for part in topic_of(node).layout.active())
        leader = node.parts.layouts.leader
        ask = leader._send

        async def send(term: int, order: object) -> object:
            if type(order).__name__ == "Seal":
                await asyncio.sleep(60)  # the HOLD ends by an ABORT
            return await ask(term, order)  # type: ignore[arg-type]

        leader._send = send  # type: ignore[assignment]
        begun = await api("POST", f"{PLACE}/split/{first}", {"wait_s": 0})
        change = begun.body["change"]
        await until(lambda: node.proposer.state.transitions[change].phase == "HELD")
        assert (await api("POST", f"/admin/transitions/{change}/abort")).status == 200
        await until(lambda: not node.proposer.state.leftovers)
        check(node)
        leader._send = ask
        assert (await api("POST", f"{PLACE}/split/{first}", {})).status == 200
        await settled(node)
        check(node)

    with_node(tmp_path, work)
