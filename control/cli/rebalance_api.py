"""Access rebalances through the admin API or a node's control address. Both return the same values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlencode

from ringfence.control.cli.admin import Admin
from ringfence.control.cli.endpoint import Endpoint, control_options
from ringfence.control.cli.retry_until import wait_notice
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import refusal

# (partition, nodes of its replicas after the move, the owner first).
Moves = tuple[tuple[int, tuple[int, ...]], ...]


class RebalanceApi(Protocol):
    """The interface of the commands. Methods raise RingfenceError; starts return the number of the run."""

    def preview(self, action: str, node: int, moves: Moves) -> dict[str, Any]: ...
    def preview_reverse(self, partitions: tuple[int, ...]) -> dict[str, Any]: ...
    def start(self, action: str, node: int, moves: Moves) -> int: ...
    def reverse(self, partitions: tuple[int, ...]) -> int: ...
    def drain(self, node: int) -> int: ...
    def steer(self, verb: str) -> None: ...
    def show(self) -> dict[str, Any]: ...
    def history(self) -> dict[str, Any]: ...


def api_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `control_options` to a command; it gets an `api` instead of the endpoint."""

    @functools.wraps(function)
    def with_api(*arguments: Any, endpoint: Endpoint, **options: Any) -> Any:
        return function(*arguments, api=_open(endpoint), **options)

    return control_options(with_api)


def _open(endpoint: Endpoint) -> RebalanceApi:
    if endpoint.control is not None:
        return _Control(endpoint.control, endpoint.timeout_s)
    return _Http(endpoint.admin())


class _Control:
    def __init__(self, address: str, timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s

    def preview(self, action: str, node: int, moves: Moves) -> dict[str, Any]:
        return self._ask(verb="preview", action=action, node=node, moves=moves)

    def start(self, action: str, node: int, moves: Moves) -> int:
        return int(self._ask(verb="start", action=action, node=node, moves=moves)["run"])

    def preview_reverse(self, partitions: tuple[int, ...]) -> dict[str, Any]:
        return self._ask(verb="preview", action="reverse", partitions=partitions)

    def reverse(self, partitions: tuple[int, ...]) -> int:
        return int(self._ask(verb="start", action="reverse", partitions=partitions)["run"])

    def drain(self, node: int) -> int:
        return self.start("drain", node, ())

    def steer(self, verb: str) -> None:
        self._ask(verb=verb)

    def show(self) -> dict[str, Any]:
        return self._ask(verb="show")

    def history(self) -> dict[str, Any]:
        return self._ask(verb="history")

    def _ask(self, **values: Any) -> dict[str, Any]:
        return ask_values(self._address, messages.SteerRebalance(**values), self._timeout_s)


class _Http:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def preview(self, action: str, node: int, moves: Moves) -> dict[str, Any]:
        query = [("action", action), *([("node", str(node))] if node else [])]
        query += [("move", f"{partition}:{','.join(map(str, nodes))}") for partition, nodes in moves]
        values: dict[str, Any] = self._admin.get(f"/admin/rebalance/preview?{urlencode(query)}")
        return values

    def start(self, action: str, node: int, moves: Moves) -> int:
        body: dict[str, Any] = {"action": action}
        if node:
            body["node"] = node
        if moves:
            body["moves"] = [{"partition": partition, "nodes": list(nodes)} for partition, nodes in moves]
        return int(self._admin.change("POST", "/admin/rebalance", body)["index"])

    def preview_reverse(self, partitions: tuple[int, ...]) -> dict[str, Any]:
        query = [("action", "reverse"), *(("partition", str(number)) for number in partitions)]
        values: dict[str, Any] = self._admin.get(f"/admin/rebalance/preview?{urlencode(query)}")
        return values

    def reverse(self, partitions: tuple[int, ...]) -> int:
        body = {"action": "reverse", "partitions": list(partitions)}
        return int(self._admin.change("POST", "/admin/rebalance", body)["index"])

    def drain(self, node: int) -> int:
        return int(self._admin.change("POST", f"/admin/nodes/{node}/drain")["index"])

    def steer(self, verb: str) -> None:
        self._admin.change("POST", f"/admin/rebalance/{verb}")

    def show(self) -> dict[str, Any]:
        values: dict[str, Any] = self._admin.get("/admin/rebalance")
        return values

    def history(self) -> dict[str, Any]:
        values: dict[str, Any] = self._admin.get("/admin/rebalance/history")
        return values


def ask_values(control: str, call: messages.Call, timeout_s: float) -> dict[str, Any]:
    """Ask a node at its control address and return the values of its reply. Raises a refusal's error."""
    reply = ask_node(control, call, timeout_s)
    assert isinstance(reply, messages.Document), reply
    return reply.value


def ask_node(control: str, call: messages.Call, timeout_s: float) -> messages.Reply:
    """Ask a node at its control address and return the reply. Raises a refusal's error."""
    with wait_notice(control, timeout_s, str):
        reply = messages.decode_reply(ask_address(control, messages.encode(call), timeout_s))
    if isinstance(reply, messages.Refusal):
        raise refusal(reply.code, reply.message, retry_after_s=reply.retry_after_ms / 1_000)
    return reply
