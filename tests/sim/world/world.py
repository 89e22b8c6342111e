"""The world of one seed: machines, network, clients, strikes; then peace, and the reckoning.

START HERE. `Simulation(plan).run()` is one seed; `plan` (mix.py) has everything that was drawn ahead. All
of a
node is the product: consensus, store, metadata, membership, planner, requests, native engine. Simulated is
what
lies around it: disks (files.py, SimDisk), network (network.py, customer.py), clocks, threads, the supervisor.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ringfence.control.model.log_end import LogEnd
from ringfence.control.runtime.process.settings import Settings
from ringfence.native import _node
from ringfence.native.errors import StorageError
from tests.sim.checks.ledger import Ledger
from tests.sim.checks.lineage_ledger import LineageLedger
from tests.sim.checks.lineage_scopes import LineageScopes
from tests.sim.checks.scopes import ScopeLedger
from tests.sim.checks.times import Times
from tests.sim.checks.violation import ViolationError
from tests.sim.checks.watch import Watch
from tests.sim.clients.mover import Mover
from tests.sim.faults.plan import Plan
from tests.sim.world import current
from tests.sim.world.agenda import Agenda
from tests.sim.world.cables import Cables
from tests.sim.world.files import ROOT_FOLDERS, Files, SimPath
from tests.sim.world.machine import ROOT, Machine, is_damage
from tests.sim.world.network import Network, Weather

if TYPE_CHECKING:
    from tests.sim.clients.customer import ClusterClient, Line
    from tests.sim.world.cables import Cable

SECOND_US: Final = 1_000_000
STORY_MAX: Final = 2_000


@cache
def _settings(number: int) -> Settings:
    name = f"n{number}"
    return Settings(
        data_dir=Path(ROOT),
        listen=(f"tcp://{name}:7000",),
        control=f"tcp://{name}:7001",
        insecure=True,
        zone=f"z{number % 2}",
        journal_bytes=16 << 10,
    )


class World:
    """Machines and what is between them. `native` is the extension module whose engine runs."""

    def __init__(self, plan: Plan, native: ModuleType = _node) -> None:
        self.plan, self.native = plan, native
        self.random = Random(plan.seed)
        self.agenda = Agenda()
        self.counts: Counter[str] = Counter()
        self.violation: ViolationError | None = None
        self.story: list[str] = []
        self.is_told = False
        self.healed = False
        self.shards, self.segment_bytes = plan.shards, plan.segment_bytes
        self._trace = hashlib.blake2b(digest_size=16)
        self.network = Network(self.agenda, Random(self.random.random()), self.counts, self.trace)
        self.watch = Watch(self)
        self.ledger, self.scopes = self.books()
        self.lines: dict[int, Line | Cable] = {}
        self.lines_made = 0
        self.cables = Cables(self, Random(self.random.random()) if plan.moves else self.random)
        self.machines = [
            Machine(self, number, Random(self.random.random())) for number in range(1, plan.machines + 1)
        ]
        self.times = Times(self)
        self.clients: list[ClusterClient] = []
        self.mover = Mover(self)
        self.accepted_ends: set[tuple[int, LogEnd]] = set()
        """Ends of sealed partitions that an operator has accepted, below those of their COMMITs."""
        self.older: Machine | None = None
        """The machine whose rows come back older, once there is one."""
        self._of_node: dict[int, Machine] = {}

    def books(self) -> tuple[Ledger, ScopeLedger]:
        """What is known of rows, and of transactions."""
        if self.plan.layouts:
            rows = LineageLedger(has_key=not self.plan.keyless)
            return rows, LineageScopes(rows)
        ledger = Ledger([])
        return ledger, ScopeLedger(ledger)

    # ---- what happened ----

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def trace(self, *values: object) -> None:
        self._trace.update(repr(values).encode())

    def trace_hash(self) -> str:
        return self._trace.hexdigest()

    def tell(self, who: str, *what: object) -> None:
        """A line of the story; kept only when somebody will read it."""
        self.trace(who, what)
        self.note(who, *what)

    def note(self, who: str, *what: object) -> None:
        """The same, but no part of the trace."""
        if self.is_told and len(self.story) < STORY_MAX:
            text = " ".join(str(each) for each in what)
            self.story.append(f"{self.agenda.now_us / 1e6:9.4f}  {who:4} {text}")

    def violate(self, broken: ViolationError) -> None:
        """The first broken promise ends the run."""
        if self.violation is None:
            self.violation = broken
            self.tell("!", str(broken))
            self.agenda.stop()

    # ---- for machines ----

    def snapshot_came(self, event: Any) -> None:
        """A received snapshot goes to consensus."""

    def changed(self, before: Any, after: Any) -> None:
        """The metadata is new: the first node has applied an entry."""

    def applied(self, machine: Machine, before: Any, after: Any) -> None:
        """A node has applied an entry."""

    def proposes(self, machine: Machine, command: Any) -> None:
        """A node wants an entry."""

    def carried_out(self, machine: Machine, order: str, args: tuple[Any, ...]) -> None:
        """An engine has ended an order, well."""

    def elected(self, machine: Machine) -> None:
        """Somebody leads from now on."""

    def settings(self, machine: Machine, join: tuple[str, ...] | None) -> Settings:
        wanted = _settings(machine.number)
        return wanted.model_copy(
            update={"data_dir": SimPath(ROOT), "join": join or (), "journal_bytes": self.plan.journal_bytes}
        )

    def machine_of(self, entry: Any) -> Machine | None:
        """The machine that owns a partition, as a table says."""
        return None if entry is None else self._of_node.get(entry.owner)

    def epochs(self) -> dict[int, int]:
        """Owner epochs by partition, as the newest entry of the log says that anybody has applied."""
        state = self.watch.newest[1]
        if state is None:
            return {}
        return {
            int(partition): int(assignment.epoch)
            for topic in state.topics.values()
            for partition, assignment in topic.assignments.items()
        }

    def by_node(self, node: int) -> Machine | None:
        """The machine that served as this node."""
        return self._of_node.get(node)

    def node_of(self, machine: Machine) -> int:
        """The number of a machine's node, 0 while it has none."""
        return next((node for node, known in self._of_node.items() if known is machine), 0)

    def know(self, node: int, machine: Machine) -> None:
        self._of_node[node] = machine

    def answer_from(self, machine: Machine) -> Callable[[int, bytes, bytes], None]:
        def answer(connection: int, header: bytes, body: bytes) -> None:
            self._trace.update(header)
            line = self.lines.get(connection)
            if line is not None:
                line.answered(header, body)

        return answer

    def connections_lost(self, machine: Machine) -> None:
        self.cables.lost(machine)
        for client in self.clients:
            client.hang_up(machine.name)

    def died_inside(self, machine: Machine) -> None:
        """The process died in the middle of a call to its disk."""
        power = self.random.random() < self.plan.power
        self.tell(machine.name, "died inside of a call", "with the power" if power else "")
        self.strike_crash(machine, power=power, mid_job=False)

    def dies_soon(self, machine: Machine) -> None:
        """The power went in the middle of the engine's recovery."""
        self.agenda.after(0, partial(self.strike_crash, machine, power=True, mid_job=False))

    def strike_crash(self, machine: Machine, *, power: bool, mid_job: bool) -> None:
        if machine.down and machine.loop is None and not power:
            return
        self.tell(machine.name, "loses its power" if power else "is killed")
        machine.crash(power=power, mid_job=mid_job)
        self.boot_later(machine, self.random.randrange(1_000, 1_500_000))

    def boot_later(self, machine: Machine, delay_us: int) -> None:
        self.agenda.after(delay_us, machine.boot)

    def ended(self, machine: Machine, error: BaseException) -> None:
        """A process ended by itself: it may, where its disk failed or what it holds is damaged."""
        text = str(error)
        if isinstance(error, AssertionError) or "invariant" in text:
            self.violate(ViolationError("invariant", f"{machine.name}: {text}"))
            return
        if machine.rots and is_damage(error):
            self.count("damage_refused")
            self.tell(machine.name, "refuses its damaged files:", text[:160])
            for rot in reversed(machine.rots):  # a byte may have rotted twice
                machine.files.restore(*rot)  # the operator restores them
            machine.rots.clear()
        elif is_damage(error):
            self.violate(
                ViolationError("L6", f"{machine.name} takes what no byte rotted in for damaged: {text}")
            )
            return
        elif not machine.hurt or not isinstance(error.__cause__ or error, StorageError | OSError):
            self.violate(
                ViolationError("defect", f"{machine.name} ended unhurt: {type(error).__name__}: {text}")
            )
            return
        self.count("process_ended")
        machine.exit(error)

    def quarantined(self, machine: Machine) -> None:
        """Rows were damaged; only rot may do that."""
        if not self.ledger.rots:
            self.violate(ViolationError("I5", f"{machine.name} quarantined a partition, no byte rotted"))

    def failed_shard(self, machine: Machine) -> None:
        """The operator starts a node again whose disk failed."""
        self.agenda.after(100_000, partial(self._restart_hurt, machine, machine.life))

    def _restart_hurt(self, machine: Machine, life: int) -> None:
        if machine.life == life and not machine.down:
            self.strike_crash(machine, power=False, mid_job=False)

    def ledger_told(self, machine: Machine, statuses: list[dict[str, Any]]) -> None:
        """What an engine says of its partitions."""
        known = self.ledger.partitions
        mine = [status for status in statuses if status["partition"] in known]
        try:
            self.ledger.told(mine)
        except ViolationError as broken:
            self.violate(broken)


def prepared(files: Files, machine: Machine) -> None:
    """Give a machine the disk that an earlier life left."""
    machine.files = files.image()
    machine.files.random = Random(machine.random.random())


__all__ = ["ROOT_FOLDERS", "SECOND_US", "Weather", "World", "current", "prepared"]
