"""A whole node in this process over the real engine, for tests of layout changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from ringfence.control.http.endpoint import beside
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.settings import Settings
from tests.fakes.admin_api import Api


def with_node(root: Path, work: Callable[[Api, Node], Awaitable[None]]) -> None:
    async def whole() -> None:
        settings = Settings(
            data_dir=root,
            http="127.0.0.1:0",
            listen=("tcp://127.0.0.1:0",),
            budget_bytes=128 << 20,
            segment_bytes=8 << 20,
            message_bytes=1 << 20,
            direct=False,
        )
        node = Node(settings)
        await node.start()
        try:
            async with beside(node) as address:
                assert address is not None
                api = Api(address, None)  # type: ignore[arg-type]
                # No change ends by its time because the machine is busy.
                limits = {"values": {"hold_timeout_ms": 60_000}}
                assert (await api("PATCH", "/admin/config", limits)).status == 200
                await work(api, node)
        finally:
            await node.stop()

    asyncio.run(whole())


def topic_of(node: Node) -> Topic:
    topic = node.proposer.state.topic_named("public/default/t")
    assert topic is not None
    return topic


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - many things may make it true
            await asyncio.sleep(0.02)


async def settled(node: Node) -> None:
    """Until no layout change holds a partition."""
    await until(lambda: all(one.phase == "OPENED" for one in node.proposer.state.transitions.values()))


def check(node: Node) -> None:
    """ACTIVE partitions take rows and have all of their sources; SEALED ones end where the layout says."""
    topic = topic_of(node)
    native = node.parts.data_plane.native_node.node
    counters = {part["partition"]: part for part in native.partitions()}
    assert counters.keys() == topic.assignments.keys()
    for part in topic.layout.partitions:
        known, seal = counters[part.partition], topic.seal(part.partition)
        assert known["quarantined"] is None
        if seal is None:
            assert known["open"], f"{part.partition} takes no rows"
            assert {source for source, _ in known.get("sources", ())} == {*part.parents}
        else:
            assert not known["open"]
            assert known["sealed"]["reached"]
            assert (known["records"], known["chain"]) == (seal.end.records, seal.end.chain)
    assert node.health.reasons == []
