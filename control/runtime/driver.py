"""The native node inside the asyncio loop: orders go down as calls, outcomes come up through one eventfd."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

import structlog

from ringfence.native._node import Node
from ringfence.native.errors import ClosedError

_LOG = structlog.get_logger("ringfence.native")
ORDERS_MAX: Final = 512
"""Orders under way at once: they share commit groups, and the engine's queue of orders is bounded."""
POLL_MAX: Final = 256
"""Outcomes taken before the loop may run something else."""
WATCH_S: Final = 1.0
"""How often a quiet engine is asked whether it lives."""


class OrderError(Exception):
    """The native node could not carry out an order; the message is its sentence."""


class Driver:
    """Gives orders and hands out outcomes. Everything runs on the loop's thread."""

    def __init__(
        self,
        node: Node,
        *,
        on_request: Callable[[int, bytes, bytes, str, str], None],
        on_event: Callable[[tuple[Any, ...]], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`on_failed` hears once that a native thread is gone; nothing of this node can be trusted then."""
        self.node = node
        self.storage_failed = False
        """A shard's disk has failed in this life. What its orders did last may be on disk or not."""
        self._on_request, self._on_event, self._on_failed = on_request, on_event, on_failed
        self._orders: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._slots = asyncio.Semaphore(ORDERS_MAX)
        self._descriptor = -1
        self._watch: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._descriptor = self.node.fileno()
        loop.add_reader(self._descriptor, self._drain)
        self._watch = loop.call_later(WATCH_S, self._look)

    def close(self) -> None:
        """Listen no more; orders under way are given up."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._descriptor = -1
        if self._watch is not None:
            self._watch.cancel()
        for waiting in self._orders.values():
            waiting.cancel()
        self._orders.clear()

    def applied(self, index: int) -> None:
        """Producer epochs are indexes of the metadata: the engine takes none that was not drawn yet."""
        with contextlib.suppress(ClosedError):  # the data plane is down: it takes no batches
            self.node.set_applied(index)

    def time(self, unix_ms: int) -> None:
        """The cluster's time: the engine gives no record one that is far above it."""
        with contextlib.suppress(ClosedError):
            self.node.set_time(unix_ms)

    async def order(self, give: Callable[[], int], *, holds_slot: bool = True) -> dict[str, Any]:
        """Call `give`, which returns an order's number, and wait for the order's end.

        An order that ends only with the help of other nodes must not hold one of the slots: it would keep
        back
        the orders that those wait for.

        Raises:
            OrderError: the node refused it or failed at it.
        """
        async with self._slots:
            try:
                number = give()
            except Exception as error:
                raise OrderError(str(error)) from error
            # The outcome cannot be missed: only this thread takes outcomes.
            waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            self._orders[number] = waiting
            if holds_slot:
                return await waiting
        return await waiting

    def _drain(self) -> None:
        try:
            outcomes = self.node.poll(POLL_MAX)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine is gone
            self._fail(error)
            return
        for outcome in outcomes:
            self._take(outcome)
        if len(outcomes) == POLL_MAX and self._descriptor >= 0:
            asyncio.get_running_loop().call_soon(self._drain)

    def _take(self, outcome: tuple[Any, ...]) -> None:
        match outcome:
            case ("request", int(connection), header, body, prefix, who):
                self._on_request(connection, header, body, prefix, who)
            case ("order", int(number), error, result):
                waiting = self._orders.pop(number, None)
                if waiting is None or waiting.done():
                    return
                if error is None:
                    waiting.set_result(result)
                else:
                    waiting.set_exception(OrderError(error))
            case _:
                # Told of before the orders that were under way.
                self.storage_failed |= outcome[0] == "shard_failed"
                self._on_event(outcome)

    def _look(self) -> None:
        try:
            self.node.counters()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
            return
        self._drain()
        if self._descriptor >= 0:
            self._watch = asyncio.get_running_loop().call_later(WATCH_S, self._look)

    def _fail(self, error: Exception) -> None:
        if self._descriptor < 0:
            return
        _LOG.critical("native node failed", error=str(error))
        self.close()
        self._on_failed(error)
