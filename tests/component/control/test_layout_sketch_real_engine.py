"""Splits where the load is, over the real engine: its sketches place splits by hand, and name a hot slot."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import ringfence
from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.ranges import SlotRange
from ringfence.control.runtime.layout import auto
from ringfence.control.runtime.layout.engine import NativeEngine
from ringfence.control.runtime.node_process import Node
from ringfence.control.state_machines.layout.plan import BUCKETS, weight_of
from ringfence.control.state_machines.rebalance.loads import PartitionLoad
from ringfence.native.slots import slots
from tests.fakes.admin_api import PLACE, TOPIC, Api
from tests.harness.layout_node import settled, topic_of, until, with_node

Patch = pytest.MonkeyPatch
IDS: Final = np.arange(1_000_000)
SLOTS: Final = slots(pa.record_batch({"id": pa.array(IDS)}), "id")
# Sampled rows from which on shares are known to some percent.
WEIGHT: Final = 20_000


class Load:
    """Rows with these ids, again and again, from a thread until `stop`."""

    def __init__(self, address: str, ids: NDArray[np.int64]) -> None:
        self._address, self._batch = address, pa.record_batch({"id": pa.array(ids)})
        self._ends = threading.Event()

    def run(self) -> None:
        with ringfence.connect(self._address) as client, client.producer("t") as producer:
            while not self._ends.is_set():
                producer.send(self._batch).result(20)
                time.sleep(0.005)

    def stop(self) -> None:
        self._ends.set()


def ids_in(lo: int, hi: int, count: int) -> NDArray[np.int64]:
    """Ids with slots in the range, each of its slots as often as the others, about."""
    found = IDS[(lo <= SLOTS) & (hi >= SLOTS)]
    assert found.size
    return np.resize(found, count)


def weights_of(node: Node, part: PartitionId) -> tuple[int, ...]:
    """As the owner's engine tells them."""
    place = topic_of(node).topic, part
    return NativeEngine(node.parts.data_plane.native_node).figures([place])[place].weights


def by_slots(node: Node) -> list[Partition]:
    return sorted(topic_of(node).layout.active(), key=lambda part: part.slots)


def test_a_split_without_slots_halves_the_load_and_a_hot_slot_is_named(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    # The test looks itself, at times of its own.
    monkeypatch.setattr(auto, "LOOK_S", 3_600.0)

    async def work(api: Api, node: Node) -> None:
        columns = [{"name": "id", "type": "int64", "nullable": True}]
        assert (await api("POST", "/admin/topics", {**TOPIC, "columns": columns})).status == 201
        first, second, _ = by_slots(node)
        # The first partition has its load in an eighth of its slots. A child of the second one has 512 slots.
        eighth = (first.slots.hi - first.slots.lo + 1) // 8
        lo = first.slots.lo + 3 * eighth
        narrow = [second.slots.lo + 4_000, second.slots.lo + 4_512]
        assert (await api("POST", f"{PLACE}/split/{second.partition}", {"at": narrow})).status == 200
        await settled(node)
        child = next(part for part in by_slots(node) if part.slots.lo == narrow[0])
        assert child.slots == SlotRange(narrow[0], narrow[1] - 1)
        hot = child.slots.lo + 77
        rows = (ids_in(lo, lo + eighth - 1, 2_000), ids_in(hot, hot, 1_900), ids_in(*child.slots, 100))
        load = Load(node.addresses[0], np.concatenate(rows))
        flowing = asyncio.ensure_future(asyncio.to_thread(load.run))
        parts = first.partition, child.partition
        # It exists after ten seconds.
        await until(lambda: flowing.done() or all(sum(weights_of(node, part)) > WEIGHT for part in parts))
        await hot_slot_is_named(node, child, hot)
        await split_at_half(api, node, first, (lo, lo + eighth - 1))
        load.stop()
        await flowing
        for counters in node.parts.data_plane.native_node.node.partitions():
            sealed = counters["sealed"] is not None
            assert not sealed or "sketch" not in counters, "a sealed partition has none"

    with_node(tmp_path, work)


async def hot_slot_is_named(node: Node, child: Partition, hot: int) -> None:
    """The policy asks the engine over the whole way, names the slot, and does not split."""
    layouts: Any = node.parts.layouts.auto
    layouts._loads = lambda _, __: {child.partition: PartitionLoad(90_000_000, 1)}
    await node.proposer.propose(SetConfig(values={"auto_split": 1, "policy_grace_s": 0}))
    said, now_ms = "", 1_000
    for _ in range(600):
        now_ms += 2_000
        decision = await layouts.look(now_ms)
        await asyncio.gather(*layouts._asking.values())
        assert not decision.commands
        said = " ".join(str(key) for topic in decision.topics.values() for key in topic.hot_keys)
        if said:
            break
    assert f"slot {hot:#06x} takes 9" in said, said
    await node.proposer.propose(SetConfig(values={"auto_split": 0}))


async def split_at_half(api: Api, node: Node, part: Partition, loaded: tuple[int, int]) -> None:
    """Half of the load is in the middle of the slots that have load, far from the middle of all."""
    weights = weights_of(node, part.partition)
    assert len(weights) == BUCKETS
    done = await api("POST", f"{PLACE}/split/{part.partition}", {})
    assert done.status == 200, done
    left, right = sorted(done.body["partitions"], key=lambda child: int(child["lo"]))
    assert part.slots == SlotRange(left["lo"], right["hi"])
    share = weight_of(part.slots, SlotRange(left["lo"], left["hi"]), weights) / sum(weights)
    assert 0.45 < share < 0.55, f"{share:.0%} of the load is in {left}"
    size = part.slots.hi - part.slots.lo + 1
    assert abs(right["lo"] - sum(loaded) / 2) < size / 100, f"{right} of {loaded}"
    assert abs(right["lo"] - (part.slots.lo + size / 2)) > size / 20
    # What the engine counted is where the rows are.
    for bucket, weight in enumerate(weights):
        begin = part.slots.lo + bucket * size // BUCKETS
        is_loaded = begin + size // BUCKETS + 1 >= loaded[0] and begin <= loaded[1]
        assert is_loaded or not weight, f"bucket {bucket} from {begin} on has {weight}"
