"""The native node as the product builds it: the stepped engine on the disk of the running machine."""

from __future__ import annotations

from typing import Any

from tests.sim import current


class SimNative:
    """`_node.Node`, one life of it: the same orders, outcomes and counters."""

    def __init__(
        self, *, data: str, cluster: bytes, history: bytes, store: bytes, node: int, level: int, **_: Any
    ) -> None:
        """Sizes are the machine's, small: so files fill, and are recycled, within seconds."""
        self._machine = current.machine()
        # The engine's files lie on a disk of their own kind; that there are some is seen here, too.
        self._machine.files.folders.add(f"{data}/LOCK")
        self._life = self._machine.life
        identity = {"cluster": cluster, "history": history, "store": store, "node": node, "level": level}
        self._sim = self._machine.host.make_node(identity)

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

    def __getattr__(self, name: str) -> Any:
        """An order, or an answer: the engine takes it now, and goes on behind this turn."""
        method = getattr(self._sim, name)
        host = self._machine.host

        def call(*args: Any) -> Any:
            host.set_clock()
            number = method(*args)
            host.ordered(name, args, number)
            host.pump_soon()
            return number

        setattr(self, name, call)
        return call
