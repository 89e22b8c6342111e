"""Run the native node inside the asyncio loop: orders are calls, outcomes arrive through one eventfd."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from ringfence.native._node import Node, Order
from ringfence.native.errors import ClosedError

_LOG = structlog.get_logger("ringfence.native")
# Concurrent orders: they share commit groups, and the engine's queue of orders is bounded.
ORDERS_MAX: Final = 512
# Outcomes per poll; after them the loop may run other tasks.
POLL_MAX: Final = 256
# Interval of the check that a quiet engine still runs, in seconds.
WATCH_S: Final = 1.0


class OrderError(Exception):
    """The native node could not execute an order; the message is the native node's."""


class OrderWithdrawnError(OrderError):
    """The order was not given: by then the metadata did not allow it any more."""


def _always() -> bool:
    return True


class NativeNode:
    """Gives orders and dispatches outcomes. All methods run on the loop's thread."""

    def __init__(
        self,
        node: Node,
        *,
        on_request: Callable[[int, bytes, bytes, str, str, int], None],
        on_event: Callable[[tuple[Any, ...]], None],
        on_failed: Callable[[Exception], None],
        on_counters: Callable[[Mapping[str, int]], None] = lambda _: None,
    ) -> None:
        """Set the callbacks.

        `on_failed` is called once, when a native thread has ended; the node must stop then. `on_counters`
        gets the counters every WATCH_S.
        """
        self.node = node
        # True once the disk of a shard has failed in this process: its last orders may be on disk or not.
        self.storage_failed = False
        self._on_request, self._on_event, self._on_failed = on_request, on_event, on_failed
        self._on_counters = on_counters
        # Called when gates of cohorts have made progress.
        self.on_gates: Callable[[], None] = lambda: None
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
        """Stop polling, and cancel pending orders."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._descriptor = -1
        if self._watch is not None:
            self._watch.cancel()
        for outcome_of in self._orders.values():
            outcome_of.cancel()
        self._orders.clear()

    def applied(self, index: int) -> None:
        """Set the applied metadata index; the engine refuses producer epochs above it."""
        with contextlib.suppress(ClosedError):  # a stopped data plane accepts no batches
            self.node.set_applied(index)

    def settled(self, index: int) -> None:
        """Set the index up to which every table that an entry changed is installed.

        It is the generation that clients are given with their tables.
        """
        with contextlib.suppress(ClosedError):
            self.node.set_generation(index)

    def set_controller(self, body: bytes) -> bool:
        """Set what watches are told of the metadata's leader. False if the data plane is stopped."""
        try:
            self.node.set_controller(body)
        except ClosedError:
            return False
        return True

    def set_time_window(self, earliest_ms: int, latest_ms: int) -> None:
        """Set bounds for the times of records, Unix ms; they move on with the monotonic clock."""
        with contextlib.suppress(ClosedError):
            self.node.set_time_window(earliest_ms, latest_ms)

    async def order(
        self, order: Order, *, holds_slot: bool = True, permit: Callable[[], bool] = _always
    ) -> dict[str, Any]:
        """Give an order, and wait for its end.

        With `holds_slot=False` the order waits without a slot. An order that depends on other nodes must do
        this: it would block the orders that those nodes wait for.

        `permit` is called in the turn of the loop in which the engine gets the order, after all waits. So an
        order that a later entry withdraws is in the engine's queue before the orders of that entry, or it is
        never given.

        Raises:
            OrderWithdrawnError: `permit` returned False.
            OrderError: the native node refused the order or failed at it.
        """
        async with self._slots:
            if not permit():
                raise OrderWithdrawnError("the metadata does not allow the order any more")
            try:
                number = self.node.order(order)
            except Exception as error:
                raise OrderError(str(error)) from error
            # The outcome cannot arrive earlier: only this thread polls.
            outcome_of: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
            self._orders[number] = outcome_of
            if holds_slot:
                return await outcome_of
        return await outcome_of

    def _drain(self) -> None:
        try:
            outcomes = self.node.poll(POLL_MAX)
        except Exception as error:  # noqa: BLE001 - after any exception here the engine has ended
            self._fail(error)
            return
        for outcome in outcomes:
            self._take(outcome)
        if len(outcomes) == POLL_MAX and self._descriptor >= 0:
            asyncio.get_running_loop().call_soon(self._drain)

    def _take(self, outcome: tuple[Any, ...]) -> None:
        match outcome:
            case ("request", int(connection), header, body, prefix, token, features):
                self._on_request(connection, header, body, prefix, token, features)
            case ("order", int(number), error, result):
                outcome_of = self._orders.pop(number, None)
                if outcome_of is None or outcome_of.done():
                    return
                if error is None:
                    outcome_of.set_result(result)
                else:
                    outcome_of.set_exception(OrderError(error))
            case ("gates",):
                self.on_gates()
            case _:
                # This event arrives before the outcomes of the pending orders.
                self.storage_failed |= outcome[0] == "shard_failed"
                self._on_event(outcome)

    def _look(self) -> None:
        try:
            counters = self.node.counters()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
            return
        self._on_counters(counters)
        self._drain()
        if self._descriptor >= 0:
            self._watch = asyncio.get_running_loop().call_later(WATCH_S, self._look)

    def _fail(self, error: Exception) -> None:
        if self._descriptor < 0:
            return
        _LOG.critical("native node failed", error=str(error))
        self.close()
        self._on_failed(error)
