"""A whole node over a fake native one: started in a loop of its own, asked over its data socket, stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.store import identity
from ringfence.control.store.directory import open_directory
from ringfence.native import _node, messages
from ringfence.native._node import schema_message
from ringfence.native.messages import AnyMessage
from ringfence.native.wire import AnswerHeader, Code, Opcode, Status
from tests.fakes.native_node import FakeNode
from tests.harness.processes import free_port

Patch = pytest.MonkeyPatch
ID, NAME = pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())
SCHEMA = schema_message(pa.schema([ID, NAME]))
CREATE = messages.TopicCreate(name="t", schema=SCHEMA, key=["id"], partitions=3)


class Bench:
    """A started node, its fake native side, and questions to it."""

    def __init__(self, node: Node, native: FakeNode) -> None:
        self.node, self.native, self._last = node, native, 0

    async def ask(self, opcode: Opcode, body: Any, deadline_ms: int = 0) -> tuple[AnswerHeader, bytes]:
        self._last += 1
        number = self._last
        self.native.request(number, opcode, body, deadline_ms)
        for _ in range(2_000):
            if number in self.native.answers:
                return self.native.answers[number]
            await asyncio.sleep(0.001)
        raise AssertionError(f"{opcode.name} was not answered")

    async def ok(self, opcode: Opcode, body: Any, kind: type[AnyMessage]) -> AnyMessage:
        header, packed = await self.ask(opcode, body)
        assert header.status == Status.OK, messages.decode(messages.Refused, packed)
        return messages.decode(kind, packed)

    async def refused(self, opcode: Opcode, body: Any) -> Code:
        header, packed = await self.ask(opcode, body)
        assert header.status == Status.REFUSED
        assert messages.decode(messages.Refused, packed).message
        return Code(header.code)


def run(
    root: Path,
    monkeypatch: Patch,
    work: Callable[[Bench], Awaitable[None]],
    *,
    prepare: Callable[[FakeNode], None] = lambda _: None,
    **settings: Any,
) -> None:
    """Start a node over a fake native one in `root`, do `work`, stop it."""
    made: list[FakeNode] = []

    def make(**values: Any) -> FakeNode:
        made.append(FakeNode(**values))
        prepare(made[0])
        return made[0]

    monkeypatch.setattr(_node, "Node", make)

    async def whole() -> None:
        node = Node(Settings(data_dir=root, **settings))
        await node.start()
        try:
            await work(Bench(node, made[0]))
        finally:
            await node.stop()
        assert made[0].stopped

    asyncio.run(whole())


async def soon(holds: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to hold")


async def buried(bench: Bench) -> None:
    """Wait until no tombstone is left."""
    for _ in range(1_000):
        if not bench.node.proposer.state.tombstones:
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"tombstones are left: {bench.node.proposer.state.tombstones}")


def old_directory(root: Path) -> Path:
    """As a program without levels made it; the path of its identity."""
    open_directory(root).close()
    path = root / "store.toml"
    identity.write(path, identity.read(path)._replace(level=0, cluster_level=0))
    return path


def control() -> str:
    return f"tcp://127.0.0.1:{free_port()}"
