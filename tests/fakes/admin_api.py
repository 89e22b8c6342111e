"""A node with a fake native side and its admin API on a real socket; requests from a thread."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ringfence.control.http.endpoint import beside
from ringfence.control.model.commands import RestartNode
from ringfence.control.model.node_commands import RegisterNode
from ringfence.control.model.results import NodeRegistered
from ringfence.native.wire import LEVEL_NEWEST
from tests.fakes.metadata_commands import store_of
from tests.fakes.node_bench import Bench, run

TOPIC = {
    "name": "t",
    "columns": [{"name": "id", "type": "int64", "nullable": False}],
    "key": ["id"],
    "partitions": 3,
}
PLACE = "/admin/topics/public/default/t"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def slug(self) -> str:
        """Of a problem, whose form is checked."""
        assert self.headers["content-type"] == "application/problem+json", self
        told = self.body
        assert told["status"] == self.status
        assert told["detail"]
        assert told["title"]
        assert "Traceback" not in self.text
        return str(told["type"]).removeprefix("urn:ringfence:problem:")


def send(
    address: str,
    method: str,
    path: str,
    body: bytes | Iterator[bytes] | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        got = connection.getresponse()
        told = {name.lower(): value for name, value in got.getheaders()}
        return Answer(got.status, told, got.read().decode())
    finally:
        connection.close()


class Api:
    """Requests to one address."""

    def __init__(self, address: str, bench: Bench) -> None:
        self.address, self.bench = address, bench

    async def __call__(self, method: str, path: str, given: Any = None, **headers: str) -> Answer:
        body = None if given is None else given if isinstance(given, bytes) else json.dumps(given).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            sent.setdefault("content-type", "application/json")
        return await asyncio.to_thread(send, self.address, method, path, body, sent)

    async def get(self, path: str, **headers: str) -> Any:
        answer = await self("GET", path, **headers)
        assert answer.status == 200, answer
        return answer.body


def served(
    root: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Api], Awaitable[None]], **settings: Any
) -> None:
    async def whole(bench: Bench) -> None:
        async with beside(bench.node) as address:
            assert address is not None
            for _ in range(1_000):  # the metadata names the address: from then on nothing changes by itself
                if bench.node.proposer.state.nodes[bench.node.here].http:
                    break
                await asyncio.sleep(0.005)
            await work(Api(address, bench))

    run(root, monkeypatch, whole, **{"http": "127.0.0.1:0", **settings})


async def joined(api: Api, number: int) -> int:
    """Another member, of which there is no process: what is ordered of it waits."""
    proposer = api.bench.node.proposer
    register = RegisterNode(cluster=proposer.state.cluster, store=store_of(number), level=LEVEL_NEWEST)
    registered = (await proposer.propose(register)).result
    assert isinstance(registered, NodeRegistered)
    start = RestartNode(
        node=registered.node,
        store=store_of(number),
        addresses=("tcp://127.0.0.1:1",),
        program="p",
        level=LEVEL_NEWEST,
    )
    await proposer.propose(start)
    return int(registered.node)


async def until_run(api: Api, state: str) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for _ in range(1_000):
        shown = await api.get("/admin/rebalance")
        if shown["state"] == state:
            return shown
        await asyncio.sleep(0.01)
    raise AssertionError(f"not {state}: {shown}")
