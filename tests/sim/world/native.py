"""The native node as the product builds it: the stepped engine on the disk of the running machine."""

from __future__ import annotations

from typing import Any

from ringfence.native import _node
from ringfence.native._node import Order
from ringfence.native.wire import LEVEL_NEWEST
from tests.sim.world import current


class SimNative:
    """`_node.Node`, one life of it: the same orders, outcomes and counters."""

    def __init__(
        self,
        *,
        data: str,
        cluster: bytes,
        history: bytes,
        store: bytes,
        node: int,
        level: int,
        level_newest: int,
        **_: Any,
    ) -> None:
        """Sizes are the machine's, small: so files fill, and are recycled, within seconds."""
        self._machine = current.machine()
        # The engine's files lie on a disk of their own kind; that there are some is seen here, too.
        self._machine.files.folders.add(f"{data}/LOCK")
        self._life = self._machine.life
        identity = {"cluster": cluster, "history": history, "store": store, "node": node}
        # A control plane of before runs above the engine of this program, which knows its own level.
        newest = max(level_newest, LEVEL_NEWEST)
        self._sim = self._machine.host.make_node(identity, level=level, level_newest=newest)

    def recover(self) -> dict[str, Any]:
        report: dict[str, Any] = self._machine.host.recover()
        return report

    def fileno(self) -> int:
        return int(self._sim.fileno())

    def listen(self, addresses: list[str]) -> list[str]:
        self._machine.host.listening = True
        return addresses

    def poll(self, limit: int = 256) -> list[tuple[Any, ...]]:
        if not self._sim.running:
            return []
        outcomes: list[tuple[Any, ...]] = self._sim.poll(limit)
        for outcome in outcomes:
            self._machine.host.heard(outcome)
        return outcomes

    def stop(self, timeout_s: float) -> None:
        if self._sim.running:
            self._machine.host.stop()

    def counters(self) -> dict[str, int]:
        return dict(self._sim.counters())

    def partitions(self) -> list[dict[str, Any]]:
        return list(self._sim.partitions())

    def partitions_of(self, places: list[tuple[int, int]]) -> list[dict[str, Any]]:
        return list(self._sim.partitions_of(places))

    def order(self, order: Order) -> int:
        """The engine takes it now, and goes on behind this turn."""
        host, native = self._machine.host, self._machine.world.native
        host.set_clock()
        # With planted bugs the engine is another build, whose orders are of a type of its own.
        own = order if native is _node else getattr(native.Order, order.name)(*order.arguments)
        number = int(self._sim.order(own))
        host.ordered(order.name, order.arguments, number)
        host.pump_soon()
        return number

    def __getattr__(self, name: str) -> Any:
        """Anything else, an answer for example: as with an order."""
        method = getattr(self._sim, name)
        host = self._machine.host

        def call(*args: Any) -> Any:
            host.set_clock()
            result = method(*args)
            host.pump_soon()
            return result

        setattr(self, name, call)
        return call
