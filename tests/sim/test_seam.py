"""The control plane's own driver over a stepped node: it cannot tell the difference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.native._node import Node, Order, SimDisk, SimNode
from tests.sim.clients.content import SCHEMA

TOPIC, PARTITION = 7, 9


class Loop(asyncio.SelectorEventLoop):
    """A loop that knows the numbers of stepped nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: dict[Any, Callable[[], None]] = {}

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        self.readers[fd] = partial(callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        return self.readers.pop(fd, None) is not None


async def ended(loop: Loop, node: SimNode, order: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
    """The order's end, while the node is stepped and heard as an eventfd would be."""
    for _ in range(100):
        await asyncio.sleep(0)
        for shard in node.turn()[0]:
            node.run_job(shard)
        if node.readable:
            loop.readers[node.fileno()]()
        if order.done():
            return order.result()
    raise AssertionError("the order has no end")


async def drive(loop: Loop) -> list[dict[str, Any]]:
    node = SimNode(SimDisk(1), cluster=b"c" * 16, history=b"h" * 16, store=b"s" * 16, node=3)
    node.recover(1_000_000, 1_000)
    driver = NativeNode(
        cast("Node", node), on_request=lambda *_: None, on_event=lambda _: None, on_failed=lambda _: None
    )
    driver.start()
    orders = (
        Order.install_topic(TOPIC, [SCHEMA], [], 0, 0),
        Order.install_table(TOPIC, 5, 1, b"\x80", [(PARTITION, 0, 65_535, 3, 5)], b"\x80"),
        Order.open(TOPIC, PARTITION, 0, 65_535, 5),
    )
    results = [await ended(loop, node, loop.create_task(driver.order(order))) for order in orders]
    results.append(await ended(loop, node, loop.create_task(driver.order(orders[-1]))))
    older = loop.create_task(driver.order(Order.open(TOPIC, PARTITION, 0, 65_535, 4)))
    with pytest.raises(OrderError, match="not above"):
        await ended(loop, node, older)
    driver.close()
    return results


def test_the_driver_gives_orders_to_a_stepped_node_and_hears_their_ends() -> None:
    loop = Loop()
    try:
        results = loop.run_until_complete(drive(loop))
    finally:
        loop.close()
    opened = {"records": 1, "end_offset": 0}
    assert results == [{}, {}, opened, opened], "an open again ends with what is there"
