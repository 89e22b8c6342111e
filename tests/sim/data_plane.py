"""One node, its clients and an operator, in virtual time: the data plane without a control plane.

START HERE: `run(seed)` is one simulation. `python -m tests.sim.data_plane --seeds A..B` runs many.

    producers --wire--> host (SimNode on a SimDisk) --wire--> producers, reader
         operator: starts the node again, installs the topic, opens partitions under new epochs,
         moves log starts up, releases what rot has damaged
    faults strike for ten seconds; then everything is healed, every batch gets its outcome, the power is
    cut once more, and the whole log is held against the ledger.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from types import ModuleType
from typing import Any, Final

import msgspec

from ringfence.native import _node, messages
from tests.sim.checks.ledger import Ledger, Record
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.content import SCHEMA
from tests.sim.clients.producer import Producer
from tests.sim.clients.readback import read_back
from tests.sim.clients.reader import Reader
from tests.sim.faults.rates import Rates
from tests.sim.world.agenda import Agenda
from tests.sim.world.host import Host
from tests.sim.world.wire import Wire

SECOND_US: Final = 1_000_000
FAULTY_US: Final = 10 * SECOND_US
HEALED_US: Final = 60 * SECOND_US  # far above the longest deadline
TOPIC: Final = 7
PARTITIONS: Final = (11, 12, 13)
NODE: Final = 1
IDENTITY: Final = {"cluster": b"c" * 16, "history": b"h" * 16, "store": b"s" * 16}
STOPS: Final = 0.15  # share of ends that are orderly
INSIDE: Final = "engine"  # an invariant that the node checks itself
PANIC: Final = "PanicException"  # an assertion of the node itself
READS_MAX: Final = 4  # each rotten place is found by one read
SLOTS: Final = {11: (0, 21_999), 12: (22_000, 43_999), 13: (44_000, 65_535)}
SEND_US: Final = 60_000  # mean time between batches of a producer


@dataclass(frozen=True, slots=True)
class Result:
    """What one seed did. Equal seeds have equal traces."""

    seed: int
    trace: str
    events: int
    acknowledged: int
    faults: dict[str, int]

    @property
    def counts(self) -> bool:
        """Enough happened for its silence to say something."""
        crashes = self.faults.get("crash", 0) + self.faults.get("power_cut", 0)
        return crashes >= 2 and self.acknowledged >= 100


class DataPlane:
    """The world of one seed."""

    topic = TOPIC
    partitions = PARTITIONS
    slots = SLOTS

    def __init__(self, seed: int, native: ModuleType = _node) -> None:
        self.random = Random(seed)
        self.rates = Rates.drawn(self.random)
        self.agenda, self.ledger = Agenda(), Ledger(list(PARTITIONS))
        self.epochs: dict[int, int] = {}
        self._trace = hashlib.blake2b(digest_size=16)
        self._ids = self._connections = 0
        self._wires: dict[int, Wire] = {}
        self._native = native
        self._orders: dict[int, Callable[[str | None, dict[str, Any]], None]] = {}
        self._healed = False
        shards = self.random.choice([1, 1, 2])
        budget = (2 + 2 * shards) << 20
        segment_bytes = self.random.choice([32_768, 32_768, 65_536, 262_144])

        def make(disk: Any) -> Any:
            return native.SimNode(
                disk, node=NODE, shards=shards, budget_bytes=budget, segment_bytes=segment_bytes, **IDENTITY
            )

        self.host = Host(
            self.agenda,
            Random(self.random.random()),
            native.SimDisk(seed),
            make,
            slow=self.rates.slow,
            on_answer=self._answer,
            on_outcome=self._outcome,
        )
        self.faults = self.host.faults
        self._start()
        self._producers = [Producer(self, Random(self.random.random()), number) for number in range(3)]
        self._reader = Reader(self, Random(self.random.random()))
        self._clients: list[Producer | Reader] = [*self._producers, self._reader]

    # ---- for clients ----

    def draw_id(self) -> int:
        """An id that grows: producers, epochs, generations."""
        self._ids += 1
        return self._ids

    def count(self, what: str) -> None:
        self.faults[what] += 1

    def connect(self, on_arrival: Callable[[int], None], on_answer: Callable[[bytes, bytes], None]) -> Wire:
        self._connections += 1
        number = self._connections
        wire = Wire(
            self.agenda,
            self.random,
            self.host,
            number,
            late=self.rates.late,
            on_arrival=on_arrival,
            on_answer=on_answer,
        )
        self._wires[number] = wire
        return wire

    # ---- the run ----

    def run(self) -> None:
        """Ten seconds of faults, then peace, a last power cut, and the reckoning."""
        for producer in self._producers:
            self._again(SEND_US, producer.submit)
        rates = self.rates
        for mean_ms, strike in [
            (rates.crash_ms, self._crash),
            (rates.cut_ms, self._cut),
            (rates.epoch_ms, lambda: self._assign(self.random.choice(PARTITIONS))),
            (rates.truncate_ms, self._truncate),
            (rates.sync_error_ms, self._fail_syncs),
            (rates.read_error_ms, self._fail_reads),
            (rates.full_ms, self._fill),
            (rates.rot_ms, self._rot),
        ]:
            if mean_ms:
                self._again(mean_ms * 1000, strike)
        self.agenda.run(FAULTY_US)
        self._heal()
        until = FAULTY_US + HEALED_US
        while self.agenda.now_us < until and not all(producer.idle for producer in self._producers):
            self.agenda.run(self.agenda.now_us + SECOND_US // 4)
        if not all(producer.idle for producer in self._producers):
            raise ViolationError("I8", "batches have no outcome long behind their deadline")
        self._reckon()

    def trace(self, *values: object) -> None:
        self._trace.update(repr(values).encode())

    def result(self, seed: int) -> Result:
        self.trace(self.agenda.now_us, sorted(self.faults.items()), self.host.disk.tally())
        return Result(
            seed, self._trace.hexdigest(), self.agenda.events, self.ledger.acknowledged, dict(self.faults)
        )

    def _again(self, mean_us: int, call: Callable[[], None]) -> None:
        """Call it again and again until healed."""

        def strike() -> None:
            if not self._healed:
                call()
                self._again(mean_us, call)

        self.agenda.after(1 + int(self.random.expovariate(1 / mean_us)), strike)

    # ---- faults ----

    def _crash(self) -> None:
        if not self.host.running:
            return
        if self.random.random() < STOPS:
            self.host.stop()
        power = self.random.random() < self.rates.power
        self._die(power=power, mid_job=self.random.random() < self.rates.mid_job)

    def _die(self, *, power: bool, mid_job: bool = False) -> None:
        self.host.crash(power=power, mid_job=mid_job)
        for wire in self._wires.values():
            wire.open = False
        self._wires.clear()
        self._orders.clear()
        for client in self._clients:
            client.cut()
        self.host.disk.set_faults()
        self.agenda.after(self.random.randrange(1_000, 300_000), self._start)

    def _cut(self) -> None:
        self.random.choice(self._clients).cut()
        self.count("connection_cut")

    def _truncate(self) -> None:
        """An acknowledged place of a partition becomes its start."""
        partition = self.random.choice(PARTITIONS)
        part = self.ledger.partitions[partition]
        before = part.start + (part.mark - part.start) * self.random.randrange(50, 101) // 100
        if self.host.running and before > part.start:
            self.ledger.truncated(partition, before)
            self._order(self._native.Order.truncate(TOPIC, partition, before), lambda *_: None)
            self.count("truncated")

    def _fail_syncs(self) -> None:
        self.host.disk.set_faults(sync_errors_per_mille=self.random.choice([100, 1000]))
        self.count("sync_errors")

    def _fail_reads(self) -> None:
        self.host.disk.set_faults(read_errors_per_mille=300)
        self.agenda.after(self.random.randrange(50_000, 500_000), self.host.disk.set_faults)
        self.count("read_errors")

    def _fill(self) -> None:
        used = sum(length for _, length in self.host.disk.files())
        self.host.disk.set_faults(capacity_bytes=used + self.random.randrange(4_096, 131_072))
        self.agenda.after(self.random.randrange(100_000, 2_000_000), self.host.disk.set_faults)
        self.count("disk_full")

    def _rot(self) -> None:
        rot = self.host.disk.rot()
        if rot is not None:
            self.ledger.rots.append(rot)
            self.count("rot")
            self.trace(rot)

    # ---- the operator ----

    def _start(self) -> None:
        if self.host.running:
            return
        mid_recovery = not self._healed and self.random.random() < 0.1
        report = self.host.start(self.random.randrange(30) if mid_recovery else None)
        if report is None:
            if mid_recovery:
                self.host.crash(power=True)
            self.agenda.after(self.random.randrange(10_000, 300_000), self._start)
            return
        self.trace(report)
        self.ledger.told(report["partitions"])
        self._order(
            self._native.Order.install_topic(TOPIC, [SCHEMA], [], 0, 0), lambda error, _: self._must(error)
        )
        damaged = {
            status["partition"] for status in report["partitions"] if status["quarantined"] is not None
        }
        for partition in PARTITIONS:
            if partition in damaged:
                self._release(partition)
            else:
                self._assign(partition)
        self.host.pump()

    def _must(self, error: str | None) -> None:
        assert error is None, error

    def _order(self, order: Any, ended: Callable[[str | None, dict[str, Any]], None]) -> None:
        if self.host.begin(self.host.life):
            self._orders[self.host.node.order(order)] = ended
            self.host.later(0, self.host.pump)

    def _assign(self, partition: int) -> None:
        """A new owner epoch: the table says so, then the partition is opened under it."""
        if not self.host.running:
            return
        epoch = self.draw_id()
        self.epochs[partition] = epoch
        table = [(number, *self.slots[number], NODE, self.epochs.get(number, 0)) for number in PARTITIONS]
        redirect = messages.encode(messages.Redirected(owner=NODE, addresses=[]))
        body = msgspec.msgpack.encode({"generation": epoch, "version": 1})
        self._order(
            self._native.Order.install_table(TOPIC, epoch, 1, body, table, redirect),
            lambda error, _: self._must(error),
        )

        def opened(error: str | None, _: dict[str, Any]) -> None:
            if error is None:
                self.ledger.opened(partition, epoch)
            else:
                self._open_failed(partition, error)

        self._order(self._native.Order.open(TOPIC, partition, 0, 65_535, epoch), opened)

    def _open_failed(self, partition: int, error: str) -> None:
        """Quarantined, or without room: again later, or after a restart."""
        self.count("open_failed")
        self.trace(error)
        self._told()
        again = self._release if "quarantine" in error else self._assign
        self.host.later(50_000, partial(again, partition))

    def _told(self) -> None:
        if self.host.running:
            self.ledger.told(self.host.node.partitions())

    def _release(self, partition: int) -> None:
        """Damage was found: what is readable is kept, the rest given up."""

        def released(error: str | None, _: dict[str, Any]) -> None:
            if error is None:
                self.count("released")
                self.ledger.released(partition)
                self._assign(partition)
            else:
                self._open_failed(partition, error)

        self._order(self._native.Order.release_quarantine(TOPIC, partition), released)

    def _answer(self, connection: int, header: bytes, body: bytes) -> None:
        self._trace.update(header)
        self._trace.update(body)
        wire = self._wires.get(connection)
        if wire is not None:
            wire.answered(header, body)

    def _outcome(self, outcome: tuple[Any, ...]) -> None:
        self.trace(outcome)
        match outcome:
            case ("order", int(number), error, result):
                ended = self._orders.pop(number, None)
                if ended is not None:
                    ended(error, result)
            case ("quarantined", _, int(partition), _):
                self._told()
                self.count("quarantined")
                self.host.later(30_000, partial(self._release, partition))
            case ("shard_failed", *_):
                self.count("shard_failed")
                self._told()
                self.host.later(100_000, self._crash)
            case ("disk_full", _, full):
                self.count("node_full" if full else "node_not_full")

    # ---- the end ----

    def _heal(self) -> None:
        self._healed = True
        self.host.disk.set_faults()
        self._die(power=False)

    def _reckon(self) -> None:
        """Everything has its outcome: the log must hold what was promised, now and after a last power cut."""
        self._told()
        self._die(power=True)
        for partition in PARTITIONS:
            for _ in range(READS_MAX):
                self._settle()
                records = self._read_all(partition)
                if records is not None:
                    self.ledger.check(partition, records)
                    break
                self._told()  # refused: it must be rot, which the operator releases
            else:
                raise ViolationError("I5", f"partition {partition} cannot be read, {READS_MAX} times")
        self.host.node.stop(1.0)
        report = self.host.disk.fsck()
        self.trace(report)
        if report["damage"] and not self.ledger.rots:
            raise ViolationError("L6", f"fsck finds damage where no byte rotted: {report['damage'][:3]}")

    def _settle(self) -> None:
        """Until the node runs and every order has ended."""
        for _ in range(100):
            self.agenda.run(self.agenda.now_us + SECOND_US // 10)
            if self.host.running and not self._orders:
                return self._told()
        raise ViolationError("I8", "the node does not come back, or an order has no end")

    def _read_all(self, partition: int) -> list[Record] | None:
        """Every row from the log start on; None if reading is refused."""
        node = self.host.node
        self._connections += 1
        connection = self._connections
        records = read_back(node, connection, TOPIC, partition)
        if records is None:
            self.host.pump()
        return records


def run(seed: int, native: ModuleType = _node) -> Result:
    """One simulation.

    Raises:
        ViolationError: a promise was broken; the seed breaks it again.
    """
    try:
        world = DataPlane(seed, native)
        world.run()
    except ViolationError:
        raise
    except AssertionError as error:
        # The engine's own invariants begin with their names.
        raise ViolationError(INSIDE, str(error)) from error
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise ViolationError(PANIC, str(error)) from error
    return world.result(seed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.data_plane", description=__doc__)
    parser.add_argument("--seeds", default="1..100", help="A..B, both included")
    first, _, last = parser.parse_args().seeds.partition("..")
    began, events, violations, faults = time.perf_counter(), 0, 0, Counter[str]()
    seeds = range(int(first), int(last or first) + 1)
    counting = 0
    for seed in seeds:
        try:
            result = run(seed)
        except ViolationError as broken:
            violations += 1
            print(f"seed {seed}: {broken}\n  replay: python -m tests.sim.data_plane --seeds {seed}")
            continue
        events += result.events
        counting += result.counts
        faults.update(result.faults)
    took_s = time.perf_counter() - began
    print(" ".join(f"{name}={count}" for name, count in sorted(faults.items())))
    print(
        f"{len(seeds)} seeds ({counting} count), {events} events, {sum(faults.values())} faults, "
        f"{violations} violations, {len(seeds) / took_s * 60:.0f} seeds a minute"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
