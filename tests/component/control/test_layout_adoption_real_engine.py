"""A layout change of a running node is pushed over the real engine, adopted by its clients, and finalized."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pyarrow as pa

import ringfence
from ringfence import EventKind
from ringfence.control.http.endpoint import beside
from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.settings import Settings
from tests.fakes.admin_api import PLACE, TOPIC, Api
from tests.fakes.client_topic import until

SCHEMA = [{"name": "id", "type": "int64", "nullable": True}]
BATCH = pa.record_batch({"id": pa.array(range(1_000), pa.int64())})
# Well below the 30 s after which a layout change is finalized without its clients.
ADOPTED_S = 20


class Clients:
    """A producer, a reader and a watch of one topic, in a thread of their own."""

    def __init__(self, address: str, splits: int) -> None:
        self._address, self._splits = address, splits
        self.ready, self.may_end = threading.Event(), threading.Event()
        self.versions: list[int] = []
        self.rows = 0

    def run(self) -> None:
        with ringfence.connect(self._address) as client:
            with client.producer("t") as producer, client.watch("t") as watch:
                reader = client.read("t", follow=True)
                thread = threading.Thread(target=self._read, args=(reader,), daemon=True)
                thread.start()
                for number in range(self._splits + 1):
                    event = watch.next(ADOPTED_S)
                    assert event is not None
                    assert event.kind is EventKind.LAYOUT
                    assert event.layout is not None
                    self.versions.append(event.layout.version)
                    assert producer._sender.layout.version >= event.layout.version
                    producer.send(BATCH).result(20)
                    until(lambda number=number: self.rows == 1_000 * (number + 1), 20)  # type: ignore[misc]
                    self.ready.set()
                self.may_end.wait(60)
                reader.close()
                thread.join(10)
            assert client.count("t") == 1_000 * (self._splits + 1)

    def _read(self, reader: ringfence.Reader) -> None:
        for batch in reader:
            self.rows += batch.num_rows


def test_splits_are_pushed_and_adopted_without_a_redirect(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path,
        http="127.0.0.1:0",
        listen=("tcp://127.0.0.1:0",),
        budget_bytes=128 << 20,
        segment_bytes=8 << 20,
        message_bytes=1 << 20,
        direct=False,
    )

    async def work(api: Api, node: Node) -> None:
        assert (await api("POST", "/admin/topics", {**TOPIC, "columns": SCHEMA})).status == 201
        clients = Clients(node.addresses[0], splits=3)
        using = asyncio.create_task(asyncio.to_thread(clients.run))
        for into in (2, 3, 2):
            assert await asyncio.to_thread(clients.ready.wait, 30)
            clients.ready.clear()
            topic = node.proposer.state.topic_named("public/default/t")
            assert topic is not None
            first = next(iter(topic.layout.active())).partition
            split = await api("POST", f"{PLACE}/split/{first}", {"into": into})
            assert split.status == 200, split
            async with asyncio.timeout(ADOPTED_S):  # the client acknowledges: no time-out ends the change
                while node.proposer.state.transitions:  # noqa: ASYNC110 - an entry of the log ends it
                    await asyncio.sleep(0.02)
        clients.may_end.set()
        await using
        assert clients.versions == [1, 2, 3, 4]
        counters = node.parts.data_plane.native_node.node.counters()
        assert counters["redirected"] == 0, "all batches were routed by the pushed tables"

    async def whole() -> None:
        node = Node(settings)
        await node.start()
        try:
            async with beside(node) as address:
                assert address is not None
                await work(Api(address, None), node)  # type: ignore[arg-type]
        finally:
            await node.stop()

    asyncio.run(whole())
