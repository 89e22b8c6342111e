"""Whole nodes in one loop over fake native ones: real logs, consensus, transport and admin APIs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.control.http.endpoint import beside
from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.settings import Settings
from ringfence.native import _node
from tests.fakes.admin_api import Api
from tests.fakes.native_node import FakeNode
from tests.fakes.node_bench import Bench
from tests.harness.processes import free_port

Patch = pytest.MonkeyPatch


class NodeCluster:
    """Three nodes; `apis` by node id. A stopped node is started again over its directory."""

    def __init__(self, root: Path, monkeypatch: Patch) -> None:
        self._root = root
        self.natives: dict[int, FakeNode] = {}
        self.nodes: dict[int, Node] = {}
        self.apis: dict[int, Api] = {}
        self._ports = {place: free_port() for place in (1, 2, 3)}
        self._directories: dict[int, Path] = {}
        self._open: dict[int, contextlib.AsyncExitStack] = {}
        self._made: list[FakeNode] = []

        def make(**values: Any) -> FakeNode:
            self._made.append(FakeNode(**values))
            return self._made[-1]

        monkeypatch.setattr(_node, "Node", make)

    async def start(self, place: int) -> int:
        """Start the node at a place, and its API; the id of the node."""
        join = (f"tcp://127.0.0.1:{self._ports[1]}",) if place != 1 else ()
        stack = contextlib.AsyncExitStack()
        settings = Settings(
            data_dir=self._root / str(place),
            control=f"tcp://127.0.0.1:{self._ports[place]}",
            join=join,
            http="127.0.0.1:0",
            nodes_min=3 if place == 1 else 1,
        )
        node = Node(settings)
        await node.start()
        number = int(node.here)
        stack.push_async_callback(node.stop)
        address = await stack.enter_async_context(beside(node))
        assert address is not None
        native = self._made[-1]
        self.nodes[number], self.natives[number] = node, native
        self.apis[number] = Api(address, Bench(node, native))
        self._open[number] = stack
        self._directories[number] = self._root / str(place)
        return number

    async def stop(self, number: int) -> None:
        del self.nodes[number], self.apis[number]
        await self._open.pop(number).aclose()

    async def close(self) -> None:
        for number in list(self._open):
            await self.stop(number)

    @property
    def leader(self) -> Node:
        return next(node for node in self.nodes.values() if node.proposer.replica.leads)

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not what():  # noqa: ASYNC110 - many things may make it true
                await asyncio.sleep(0.02)


def run(root: Path, monkeypatch: Patch, work: Callable[[NodeCluster], Awaitable[None]]) -> None:
    async def whole() -> None:
        cluster = NodeCluster(root, monkeypatch)
        try:
            for place in (1, 2, 3):
                await cluster.start(place)
            await cluster.until(lambda: len(cluster.nodes[1].proposer.state.ring.members) == 3)
            await work(cluster)
        finally:
            await cluster.close()

    asyncio.run(whole())
