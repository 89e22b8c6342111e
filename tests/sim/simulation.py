"""One seed from its plan to its verdict: strikes and load, then peace, a last power cut, a reckoning."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.runtime.layout import leader as layout_leader
from ringfence.control.runtime.raft import replica as runtime_replica
from ringfence.control.runtime.reassignment import order_batches
from ringfence.control.state_machines.metadata import config
from ringfence.native import _node
from ringfence.native.errors import ClosedError
from tests.sim.checks import layouts, replicas
from tests.sim.checks.ledger import Record
from tests.sim.checks.lineage_ledger import LineageLedger
from tests.sim.checks.observe import observed
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.admin import Admin
from tests.sim.clients.consumer import Consumer
from tests.sim.clients.content import body_of
from tests.sim.clients.layouter import Layouter
from tests.sim.clients.lineage_consumer import LineageConsumer
from tests.sim.clients.lineage_named import LineageNamed
from tests.sim.clients.lineage_publisher import LineagePublisher
from tests.sim.clients.lineage_writer import LineageWriter
from tests.sim.clients.named import NamedProducer
from tests.sim.clients.publisher import Publisher
from tests.sim.clients.readback import keyed_back, read_back
from tests.sim.clients.stranger import Stranger
from tests.sim.clients.writer import Writer
from tests.sim.faults import forced, strikes
from tests.sim.faults.forced_layouts import ForcedLayouts
from tests.sim.faults.plan import NAMED, Plan
from tests.sim.world import birth, current, network, quiet
from tests.sim.world.intercept import installed
from tests.sim.world.levels import program_of
from tests.sim.world.machine import Machine
from tests.sim.world.network import Weather
from tests.sim.world.world import SECOND_US, World, prepared

TOPIC: Final = "rows"
HEALED_US: Final = 60 * SECOND_US
"""Peace until everything is settled: above the longest deadline, time-out and back-off together."""
STEP_US: Final = SECOND_US // 4
PRUNE_INTERVAL_MS: Final = 700
"""A run of seconds does not get to the product's."""
READS_MAX: Final = 4
ROUNDS_MAX: Final = 4
"""Of collecting the garbage of a run; two do."""
CRASHES: Final = ("kill", "power", "kill_leader", "power_all", "died_inside")
PARTITIONS: Final = ("partition", "isolate", "one_way")


@dataclass(frozen=True, slots=True)
class Result:
    """What one seed did. Equal seeds have equal traces."""

    seed: int
    trace: str
    events: int
    acknowledged: int
    elections: int
    counts: dict[str, int] = field(repr=False)
    violation: ViolationError | None = None
    story: tuple[str, ...] = field(default=(), repr=False)
    cpu_s: float = field(default=0.0, compare=False)
    """Of a processor, where it ran in a process of its own."""

    @property
    def faults(self) -> int:
        return sum(self.counts.values())

    @property
    def is_counted(self) -> bool:
        """Enough happened for its silence to say something."""
        crashes = self.counts.get("crash", 0) + self.counts.get("power_cut", 0)
        parted = sum(self.counts.get(kind, 0) for kind in PARTITIONS)
        return crashes >= 2 and self.elections >= 1 and parted >= 1 and self.acknowledged >= 100


class Simulation(World):
    """The world with its clients, its operator, and its end."""

    def __init__(self, plan: Plan, native: ModuleType = _node) -> None:
        super().__init__(plan, native)
        files_born = birth.born(plan.machines, plan.level, plan.newest)
        for machine, files in zip(self.machines, files_born, strict=True):
            prepared(files, machine)
            machine.slow = plan.slow
        self.network.weather = strikes.weather_of(self)
        self._doubled, self._kept = set[int](), list[Any]()
        self.doomed: dict[Machine, Callable[[], None]] = {}
        """Who dies as soon as it is made an owner."""
        self.forcer: forced.Forcer = forced.Forcer(self)
        self.forced_layouts: ForcedLayouts = ForcedLayouts(self)
        self._changes = any(each.kind == "change" for each in plan.strikes)
        self.admin = Admin(self, Random(self.random.random()))
        unnamed, named = (LineagePublisher, LineageNamed) if plan.layouts else (Publisher, NamedProducer)
        self.publishers = [
            (named if number == 1 and plan.seed % NAMED == 0 else unnamed)(
                self, number, Random(self.random.random()), TOPIC
            )
            for number in range(1, plan.producers + 1)
        ]
        consumer = LineageConsumer if plan.layouts else Consumer
        self.consumer = consumer(self, Random(self.random.random()))
        self.layouter: Layouter = Layouter(self, Random(f"layouts {plan.seed}"), TOPIC)
        writer = LineageWriter if plan.layouts else Writer
        self.writers = [  # with dice of their own: other seeds stay what they were
            writer(self, number, Random(f"writer {plan.seed} {number}"), TOPIC)
            for number in range(1, plan.writers + 1)
        ]
        self.clients = [*self.publishers, self.admin, self.consumer, *self.writers]
        if plan.layouts:
            stranger = Stranger(self, Random(f"stranger {plan.seed}"), TOPIC)
            self.clients += [self.layouter, stranger]

    # ---- the run ----

    def play(self) -> None:
        """Strikes for as long as the plan says, then peace."""
        for machine in self.machines:
            self.agenda.after(self.random.randrange(50_000), machine.boot)
        self.admin.wants(TOPIC, self.plan.partitions)
        if self.plan.limits:
            self.mover.limits(dict(self.plan.limits))
        if not self.plan.cold:
            self._until("the cluster does not serve, before any strike", self._at_work)
        for each in self.plan.strikes:
            self.agenda.after(each.at_us, partial(self._strike, each))
        for publisher in self.publishers:
            self._again(self.plan.send_us, publisher.submit)
        self.act()
        self.agenda.run(self.agenda.now_us + self.plan.seconds * SECOND_US)
        self._heal()
        self._until("the cluster does not come to rest", self._at_rest)
        self.admin.check(self.machines[0].replica.state)
        orphan = replicas.orphans(self.machines[0].replica.state, self._of_node, self.forcer.dropped)
        if orphan:
            raise ViolationError("I13", orphan)
        self._same_everywhere()
        self.admin.check_levels()
        self.settled()
        self._reckon()

    def act(self) -> None:
        """What somebody does besides; strikes begin now."""

    def changed(self, before: Any, after: Any) -> None:
        """Who has just been made an owner may be doomed: it dies before what it has is on its disk."""
        if isinstance(self.ledger, LineageLedger) and before is not after:
            layouts.note(self, self.ledger, before, after)
        if before.changes is after.changes:
            return
        self.forcer.changed(before, after)
        if not self.doomed:
            return
        for partition, change in after.changes.items():
            was = before.changes.get(partition)
            if change.is_committed and was is not None and not was.is_committed:
                machine = self.by_node(int(change.owner.node))
                dies = None if machine is None else self.doomed.pop(machine, None)
                if dies is not None:
                    dies()

    def settled(self) -> None:
        """All is at rest. Raises ViolationError where it should not rest so."""

    def _strike(self, each: Any) -> None:
        if not self.healed:
            self.tell("*", str(each))
            strikes.strike(self, each)

    def _again(self, mean_us: int, call: Any) -> None:
        def act() -> None:
            if not self.healed:
                call()
                self._again(mean_us, call)

        self.agenda.after(1 + int(self.random.expovariate(1 / mean_us)), act)

    def _until(self, what: str, holds: Any) -> None:
        until = self.agenda.now_us + HEALED_US
        while self.agenda.now_us < until and self.violation is None:
            self.agenda.run(self.agenda.now_us + STEP_US)
            missing = holds()
            if not missing:
                return
        if self.violation is None:
            self.violate(ViolationError("I13", f"{what}: {holds()}"))
        raise self.violation or AssertionError

    def _heal(self) -> None:
        """No faults any more; what stands still goes on, what is down is started."""
        self.healed = True
        self.tell("*", "peace")
        self.network.cut.clear()
        self.network.weather = Weather()
        for machine in self.machines:
            machine.slow = 0.0
            machine.clock.set_rate(1.0)
            machine.files.fail_sync = machine.files.fail_write = 0.0
            machine.files.room = machine.files.dies_after = machine.host.calls_left = None
            machine.host.disk.set_faults()
            machine.host.late_us = None
            for rot in reversed(machine.rots):
                machine.files.restore(*rot)
            machine.rots.clear()
            machine.resume()
            machine.boot()
        if self.plan.moves:
            self.mover.tidy()

    def _at_work(self) -> str:
        """What is missing yet before producers can send."""
        waiting = [client.name for client in self.publishers if not client.ready]
        return f"{waiting} cannot send" if waiting else ""

    def _at_rest(self) -> str:
        """What is missing yet; empty when nothing is."""
        for machine in self.machines:
            if not machine.serving:
                return f"{machine.name} does not serve"
        replicas = [machine.replica for machine in self.machines]
        leaders = {replica.leader for replica in replicas}
        if len(leaders) != 1 or 0 in leaders:
            return f"leaders {leaders}"
        places = {(replica.applied.index, replica.node.core.log.commit) for replica in replicas}
        if len(places) != 1 or len(set(places.pop())) != 1:
            return f"applied and committed {[(r.applied.index, r.node.core.log.commit) for r in replicas]}"
        for machine in self.machines:
            ended = machine.ended_task()
            if ended:
                self.violate(ViolationError("I13", f"{machine.name} has lost its task {ended}"))
        for client in self.publishers:
            if not client.idle and not (isinstance(client, LineageNamed) and self._rows_topic() is None):
                return f"batches of {client.name} have no outcome"
        if not self.admin.idle:
            return "a request of the administrator has no end"
        for writer in self.writers:
            if not writer.idle:
                return f"the scope of {writer.name} is not begun for the last time"
        waits = self.scopes.unpublished(self.machines[0].replica.state, self._of_node)
        missing = waits or self._unopened() or self._unlike()
        known = self.machines[0].replica.state, self._of_node
        return missing or layouts.uneven(*known, self.consumer, self._rows_topic())

    def _rows_topic(self) -> Any:
        """The topic that rows go to; None: it was deleted."""
        return self.machines[0].replica.state.topic_named(f"public/default/{TOPIC}")

    def _unlike(self) -> str:
        """What is not over yet of changes, and of copies."""
        if not self.plan.moves:
            return ""
        state = self.machines[0].replica.state
        return replicas.unfinished(state) or replicas.behind(state, self._of_node)

    def _unopened(self) -> str:
        """Partitions that nobody can write: their owner is to open each, unless its rows are damaged."""
        state = self.machines[0].replica.state
        for topic in state.topics.values():
            for part in topic.layout.active():
                assignment = topic.assignments[part.partition]
                machine = self._of_node.get(int(assignment.owner.node))
                known = [] if machine is None else machine.host.node.partitions()
                mine = next((each for each in known if each["partition"] == part.partition), None)
                if mine is None or not (mine["open"] or mine["quarantined"] is not None):
                    return f"partition {part.partition} is not open at node {assignment.owner.node}"
        return ""

    # ---- the end ----

    def _same_everywhere(self) -> None:
        """I: equal index, equal state; every node says the same hash in its heartbeats."""
        replicas = [machine.replica for machine in self.machines]
        states = {(replica.applied.index, replica.state == replicas[0].state) for replica in replicas}
        if len(states) != 1 or not next(iter(states))[1]:
            self.violate(ViolationError("equal index, equal state", f"at rest: {states}"))
        for machine in self.machines:
            assert machine.node is not None
            reasons = [reason for reason in machine.node.health.reasons if "another state" in reason]
            if reasons:
                self.violate(ViolationError("equal index, equal state", f"{machine.name} says: {reasons}"))
        if self.violation is not None:
            raise self.violation

    def _reckon(self) -> None:
        """The power goes everywhere at once, or not; then the whole log is held against the ledger."""
        state = self.machines[0].replica.state
        self.counts.update(+replicas.compared(state, self._of_node, self.ledger.partitions))
        for machine in self.machines:
            self.ledger_told(machine, self._owned(machine, machine.host.node.partitions()))
            if self.plan.last_cut:
                machine.crash(power=True)
                self.boot_later(machine, self.random.randrange(1_000, 100_000))
        if self.plan.last_cut:
            self._until("behind the last power cut", self._at_rest)
        state = self.machines[0].replica.state
        for topic in state.topics.values():
            for partition, assignment in topic.assignments.items():
                if partition in self.ledger.partitions:
                    self._check(topic.topic, partition, self._of_node[int(assignment.owner.node)])
        layouts.reckon(self.ledger, self.scopes, self.consumer, self._rows_topic())
        self._fsck()

    def _owned(self, machine: Machine, statuses: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of what an engine holds, what its node owns: others' copies may lag."""
        state = machine.replica.state
        owners = {
            int(partition): int(assignment.owner.node)
            for topic in state.topics.values()
            for partition, assignment in topic.assignments.items()
        }
        return [each for each in statuses if owners.get(each["partition"]) == machine.node_id]

    def _check(self, topic: int, partition: int, machine: Machine) -> None:
        for _ in range(READS_MAX):
            records = self._read_all(topic, partition, machine)
            if records is not None:
                self.ledger.check(partition, records)
                self.scopes.check(partition, records)
                return
            # Refused: it must be rot, which an operator would release.
            statuses = machine.host.node.partitions()
            self.ledger_told(machine, statuses)
            if self.violation is not None:
                raise self.violation
            if any(each["partition"] == partition and each["quarantined"] is not None for each in statuses):
                return
        raise ViolationError("I5", f"partition {partition} cannot be read, {READS_MAX} times")

    def _read_all(self, topic: int, partition: int, machine: Machine) -> list[Record] | None:
        """Every row from the log start on; None if reading is refused."""
        node = machine.host.node
        self.lines_made += 1
        connection = self.lines_made
        machine.host.set_clock()
        read = keyed_back if self.plan.layouts else read_back
        records = read(node, connection, topic, partition)
        if records is None:
            machine.host.pump()
        return records

    def _fsck(self) -> None:
        """Every record of every store, stopped."""
        for machine in self.machines:
            # A beat to a replica may be under way, and nobody answers it any more.
            with contextlib.suppress(ClosedError) if self.plan.moves else contextlib.nullcontext():
                machine.host.node.stop(1.0)
            report = machine.host.disk.fsck()
            self.trace(report)
            if report["damage"] and not self.ledger.rots:
                what = f"fsck of {machine.name} finds damage where no byte rotted: {report['damage'][:3]}"
                raise ViolationError("L6", what)

    # ---- what strikes ask for ----

    def compact_now(self, machine: Machine) -> None:
        """The product compacts at 8 MiB; a run of seconds does not get there."""
        replica = machine.replica
        if replica._compacting is None and replica.applied.index > replica._snapshot_index:

            def begin() -> None:
                if replica._compacting is None and not replica._failed and machine.loop is not None:
                    replica._compacting = machine.loop.create_task(replica._compact(), name="compaction")
                    replica._compacting.add_done_callback(replica._compacted)

            machine.call(begin)

    def snapshot_came(self, event: Any) -> None:
        """In a network that doubles messages it comes once more, later: a transfer that was begun again."""
        machine = current.machine()
        self.count("snapshot_came")
        if self.healed or id(event) in self._doubled or self.random.random() >= self.plan.again:
            return
        self._doubled.add(id(event))
        self._kept.append(event)
        replica = machine.replica

        def again() -> None:
            with contextlib.suppress(ConsensusError):
                replica.step(event)

        if replica is not None:
            self.count("snapshot_doubled")
            for _ in range(2):
                machine.later(self.random.randrange(1_000, 3_000_000), lambda: machine.call(again))

    def elected(self, machine: Machine) -> None:
        """With changes of the configuration in the plan, one comes before the new leader has settled."""
        if self._changes and not self.healed:
            dice = Random(self.random.random())
            self.agenda.after(dice.randrange(20_000), partial(strikes.change_voters, self, machine, dice))

    def admin_votes(self, machine: Machine, change: str) -> None:
        self.admin.votes(machine, change)

    def admin_truncates(self, dice: Random) -> None:
        self.admin.truncates(TOPIC, dice)


@contextlib.contextmanager
def surroundings(*, is_last: bool = False) -> Iterator[None]:
    """What runs share: interception, watching, no collection of garbage in the middle of a run.

    A process that ends after its runs (`is_last`) collects nothing at all.
    """
    body_of(1, 1)  # what imports lazily does so in the real world
    gc.disable()
    gc.freeze()  # what is there already is no garbage of this run
    try:
        with quiet.logs(is_last=is_last), installed(), observed():
            yield
    finally:
        before, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            network.forget()
            if not is_last:
                _forget_the_dead()
                gc.enable()
        finally:
            sys.unraisablehook = before


def _forget_the_dead() -> None:
    """Tasks of killed processes are closed now: what they would still do, nobody is there for."""
    # What a closing coroutine touches lives on until the next round, and all that hangs on it.
    for _ in range(ROUNDS_MAX):
        if not gc.collect():
            break


Make = Callable[[Plan, ModuleType], "Simulation"]


def run(
    plan: Plan,
    native: ModuleType = _node,
    *,
    is_told: bool = False,
    make: Make = Simulation,
    is_last: bool = False,
) -> Result:
    """Play one plan. A broken promise stands in the result. `is_last`: see `surroundings`."""
    birth.born(plan.machines, plan.level, plan.newest)
    options = partial(vars(runtime_replica)["Options"], **dict(plan.options))
    with (
        program_of(plan.newest),
        surroundings(is_last=is_last),
        patch.object(runtime_replica, "TRAIL_ENTRIES", plan.trail),
        patch.object(runtime_replica, "Options", options),
        patch.object(order_batches, "BATCH_ORDERS_MIN", plan.together),
        patch.object(layout_leader, "PRUNE_INTERVAL_MS", PRUNE_INTERVAL_MS),
        patch.dict(config.LIMITS, resolve_keep_s=config.LIMITS["resolve_keep_s"]._replace(low=1)),
    ):
        return _played(make(plan, native), is_told=is_told)


def _name_of(error: AssertionError) -> str:
    """The engine's own invariants begin with their names."""
    name = str(error).partition(":")[0]
    return name if len(name) <= 4 else "engine"


def _played(world: Simulation, *, is_told: bool) -> Result:
    world.is_told = is_told
    quiet.listen(world)
    broken: ViolationError | None = None
    try:
        world.play()
    except ViolationError as error:
        broken = error
    except AssertionError as error:
        broken = ViolationError(_name_of(error), str(error))
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        broken = ViolationError("PanicException", str(error))
    world.trace(world.agenda.now_us, sorted(world.counts.items()))
    return Result(
        world.plan.seed,
        world.trace_hash(),
        world.agenda.events,
        world.ledger.acknowledged,
        world.watch.elections,
        dict(world.counts),
        world.violation or broken,
        tuple(world.story),
    )
