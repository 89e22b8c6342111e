"""A transaction over layout changes: rows that were staged before are staged again, at the real engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ringfence
from ringfence.control.runtime.node_process import Node
from ringfence.native import messages, wire
from tests.fakes.admin_api import PLACE, TOPIC, Api
from tests.harness.layout_node import settled, topic_of, with_node

Patch = pytest.MonkeyPatch
KEYS = 40


def rows(send: int) -> pa.RecordBatch:
    """One row of each key; `n` is the number of the send."""
    return pa.record_batch(
        {"id": pa.array(range(KEYS), pa.int64()), "n": pa.array([send] * KEYS, pa.int64())}
    )


def sends_by_key(client: ringfence.Client) -> dict[int, list[int]]:
    """Numbers of sends in the order in which a reader gets the rows of each key."""
    found: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    for batch in client.read("t"):
        for key, send in zip(batch.column("id").to_pylist(), batch.column("n").to_pylist(), strict=True):
            found[key].append(send)
    return found


async def created(api: Api) -> None:
    columns = [{"name": name, "type": "int64", "nullable": True} for name in ("id", "n")]
    assert (await api("POST", "/admin/topics", {**TOPIC, "columns": columns})).status == 201


async def split_all(api: Api, node: Node, partitions: int) -> None:
    changed = await api("POST", f"{PLACE}/repartition", {"partitions": partitions, "wait_s": 0})
    assert changed.status in {200, 202}, changed
    await settled(node)
    assert len(topic_of(node).layout.active()) == partitions


def test_rows_that_were_staged_before_layout_changes_are_committed_once_and_in_order(tmp_path: Path) -> None:

    async def work(api: Api, node: Node) -> None:
        await created(api)
        turn = asyncio.get_running_loop()

        def cut(partitions: int) -> None:
            asyncio.run_coroutine_threadsafe(split_all(api, node, partitions), turn).result(60)

        def write(address: str) -> dict[int, list[int]]:
            with ringfence.connect(address, timeout_s=60) as client:
                with client.producer("t") as producer:
                    producer.send(rows(0)).result(20)
                with client.transaction("t", scope="s") as transaction:
                    for send in range(1, 7):
                        transaction.send(rows(send))
                        if send == 2:
                            cut(5)
                        if send == 4:
                            cut(2)
                    cut(4)
                with client.producer("t") as producer:
                    producer.send(rows(7)).result(20)
                return sends_by_key(client)

        found = await asyncio.to_thread(write, node.addresses[0])
        assert found == {key: [0, 1, 2, 3, 4, 5, 6, 7] for key in range(KEYS)}
        published = node.parts.data_plane.native_node.node.counters()["published"]
        assert published == len(topic_of(node).layout.active()), "sealed partitions publish nothing"

    with_node(tmp_path, work)


def test_an_aborted_transaction_of_a_sealed_partition_leaves_no_row(tmp_path: Path) -> None:

    async def work(api: Api, node: Node) -> None:
        await created(api)
        turn = asyncio.get_running_loop()

        def write(address: str) -> dict[int, list[int]]:
            with ringfence.connect(address, timeout_s=60) as client:
                with contextlib.suppress(KeyError), client.transaction("t", scope="s") as transaction:
                    transaction.send(rows(1))
                    asyncio.run_coroutine_threadsafe(split_all(api, node, 5), turn).result(60)
                    raise KeyError("the program gives up")
                with client.transaction("t", scope="s") as transaction:
                    transaction.send(rows(2))
                return sends_by_key(client)

        assert await asyncio.to_thread(write, node.addresses[0]) == {key: [2] for key in range(KEYS)}

    with_node(tmp_path, work)


def old_client(monkeypatch: Patch) -> None:
    """HELLO of a library that knows nothing of layout changes."""
    encode: Callable[[Any], bytes] = messages.encode

    def without_features(message: Any) -> bytes:
        if isinstance(message, messages.Hello):
            message = messages.Hello(version_min=1, version_max=1, client="old")
        return encode(message)

    monkeypatch.setattr(messages, "encode", without_features)


def test_an_older_client_is_refused_where_it_would_go_wrong(tmp_path: Path, monkeypatch: Patch) -> None:
    old_client(monkeypatch)

    async def work(api: Api, node: Node) -> None:
        await created(api)

        def before(address: str) -> None:
            with ringfence.connect(address, timeout_s=20) as client:
                with client.producer("t", name="loader") as producer:
                    producer.send(rows(1)).result(20)
                assert sum(map(len, sends_by_key(client).values())) == KEYS

        def after(address: str) -> list[ringfence.RingfenceError]:
            found = []
            with ringfence.connect(address, timeout_s=20) as client:
                with pytest.raises(ringfence.RingfenceError) as refused, client.producer("t", name="loader"):
                    pass
                found.append(refused.value)
                with pytest.raises(ringfence.RingfenceError) as unread:
                    sends_by_key(client)
                found.append(unread.value)
                with client.producer("t") as producer:
                    producer.send(rows(2)).result(20)
            return found

        await asyncio.to_thread(before, node.addresses[0])
        await split_all(api, node, 5)
        for error in await asyncio.to_thread(after, node.addresses[0]):
            assert error.code is wire.Code.NOT_SUPPORTED, error
            assert "newer client library" in error.message

    with_node(tmp_path, work)
