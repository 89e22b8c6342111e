"""Layout changes of a whole node over the real engine: what is inherited, sealed and served."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import ringfence
from ringfence.control.cli.program import run as run_command
from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.settings import Settings
from ringfence.native import _node
from tests.fakes.admin_api import PLACE, TOPIC, Api
from tests.harness.layout_node import check, settled, topic_of, until, with_node


def test_layout_changes_over_the_real_engine_and_a_restart(tmp_path: Path) -> None:

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


def test_the_log_of_a_stopped_node_tells_what_is_sealed_without_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S11."""
    ends = {}

    async def work(api: Api, node: Node) -> None:
        assert (await api("POST", "/admin/topics", TOPIC)).status == 201
        first = topic_of(node).layout.active()[0].partition
        assert (await api("POST", f"{PLACE}/split/{first}", {})).status == 200
        await settled(node)
        ends.update({part: seal.end for part, seal in (topic_of(node).seals or {}).items()})

    with_node(tmp_path, work)
    assert len(ends) == 1
    log = Settings(data_dir=tmp_path).data_dir / "log"
    told = {part["partition"]: part["sealed"] for part in _node.fsck(str(log))["partitions"]}
    assert {part for part, seal in told.items() if seal is not None} == {*ends}
    [(part, end)] = ends.items()
    assert (told[part]["records"], told[part]["end_offset"]) == (end.records, end.offset)
    capsys.readouterr()
    assert run_command(["fsck", "--data", str(tmp_path)]) == 0
    assert "1 partition is sealed" in capsys.readouterr().out


def test_rows_and_names_from_before_a_split_are_known_to_its_children(tmp_path: Path) -> None:

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
        every = native.partitions()
        places = [(part["topic"], part["partition"]) for part in reversed(every)]
        assert native.partitions_of([*places, (places[0][0], 1 << 50)]) == every[::-1]
        for child in split.body["partitions"]:
            assert producers[child["partition"]] == producers[first] == 2
        spread = await api("POST", f"{PLACE}/repartition", {"partitions": 5})
        assert spread.status == 200, spread
        await settled(node)
        check(node)

    with_node(tmp_path, work)


class Flow:
    """Rows that a producer sends from a thread until `stop`: sends of `KEYS` keys, numbered."""

    KEYS: Final = 40

    def __init__(self, address: str, name: str | None) -> None:
        self._address, self._name = address, name
        self._ends = threading.Event()
        self.sends = 0

    def run(self) -> None:
        ids = pa.array(range(self.KEYS), pa.int64())
        with ringfence.connect(self._address) as client, client.producer("t", name=self._name) as producer:
            while not self._ends.is_set() or self.sends < 10:
                numbers = pa.array([self.sends] * self.KEYS, pa.int64())
                producer.send(pa.record_batch({"id": ids, "send": numbers}))
                self.sends += 1
                time.sleep(0.002)

    def stop(self) -> None:
        self._ends.set()

    def check(self) -> None:
        """Each row is there once, and those of a key are in the order of the sends."""
        found: dict[int, list[int]] = {key: [] for key in range(self.KEYS)}
        with ringfence.connect(self._address) as client:
            for batch in client.read("t"):
                for key, number in zip(*(batch[name].to_pylist() for name in ("id", "send")), strict=True):
                    found[key].append(number)
        for key, numbers in found.items():
            assert numbers == [*range(self.sends)], f"key {key}: {len(numbers)} rows of {self.sends} sends"


@pytest.mark.parametrize("name", [None, "loader"])
def test_rows_that_flow_through_layout_changes_are_there_once_and_in_order(
    name: str | None, tmp_path: Path
) -> None:

    async def work(api: Api, node: Node) -> None:
        columns = [{"name": column, "type": "int64", "nullable": True} for column in ("id", "send")]
        assert (await api("POST", "/admin/topics", {**TOPIC, "columns": columns})).status == 201
        flow = Flow(node.addresses[0], name)
        flowing = asyncio.ensure_future(asyncio.to_thread(flow.run))
        await until(lambda: flow.sends > 20 or flowing.done())
        first, second, third = (part.partition for part in topic_of(node).layout.active())
        for path, body in (
            (f"split/{first}", {"into": 3}),
            (f"merge/{second}/{third}", {}),
            ("repartition", {"partitions": 5}),
            ("repartition", {"partitions": 2}),
        ):
            before = flow.sends
            changed = await api("POST", f"{PLACE}/{path}", body)
            assert changed.status == 200, changed
            await settled(node)
            await until(lambda: flow.sends > before + 20 or flowing.done())  # noqa: B023 - called in this turn
        flow.stop()
        await flowing
        check(node)
        assert all(topic_of(node).seal(part).end.offset for part in (first, second, third))  # type: ignore[union-attr]
        await asyncio.to_thread(flow.check)

    with_node(tmp_path, work)


def test_an_aborted_split_leaves_nothing_at_the_real_engine(tmp_path: Path) -> None:

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
