"""A small cluster in memory under faults: lost, doubled, late messages; crashes that lose what is not synced.

Everything happens by `act`, one small action at a time, so that a list of numbers is a whole run. After every
action the invariants of the node and the safety of the cluster are checked.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from typing import Final

from ringfence.control.consensus import codec, events
from ringfence.control.consensus.configuration_changes import (
    LEAVE_JOINT,
    Change,
    NodeChange,
    Operation,
    Transition,
    from_entry,
)
from ringfence.control.consensus.errors import ProposalDroppedError, ReadDroppedError, UnknownPeerError
from ringfence.control.consensus.events import Event, Received
from ringfence.control.consensus.invariants import check_node, check_step, seen
from ringfence.control.consensus.messages import (
    APPEND_THREAD,
    APPLY_THREAD,
    ConfigurationState,
    Entry,
    EntryType,
    HardState,
    Message,
    Snapshot,
    StorageMessage,
)
from ringfence.control.consensus.options import Options
from ringfence.control.consensus.raft_node import Node
from ringfence.control.consensus.ready import Ready
from ringfence.control.consensus.safety import Safety
from ringfence.control.consensus.storage import MemoryStorage

BOOTSTRAP: Final = Snapshot(2, 1, ConfigurationState(voters=(1, 2, 3)), b"")
WORK_MAX: Final = 2000
"""Steps in which a node alone must come to rest."""
SENT_MAX: Final = 300
UNDER_WAY_MAX: Final = 400
"""Messages in the network; the oldest are lost beyond it."""


class Machine:
    """One node with its disk and its application. A crash keeps only the disk."""

    def __init__(self, node: int, options: Options, cluster: Cluster, *, bootstrapped: bool) -> None:
        self.id, self.options, self.cluster = node, options, cluster
        self.disk = MemoryStorage()
        self.disk.hard_state = HardState(1 if bootstrapped else 0)
        if bootstrapped:
            self.disk.install(BOOTSTRAP)
        self.start()

    def start(self) -> None:
        self.unsynced = self.disk.hard_state
        self.append_work: deque[StorageMessage] = deque()
        self.apply_work: deque[StorageMessage] = deque()
        self.ready: Ready | None = None
        snapshot = self.disk.snapshot()
        assert snapshot is not None, "a memory storage always has one"
        self.configuration = snapshot.configuration
        self.disk.configuration = self.configuration
        self.applied = self.disk.snapshot_index
        self.reads: dict[bytes, int] = {}
        self.node = self.cluster.make_node(self.options, self.disk, draw=self.cluster.random.randrange)

    def crash(self, *, lose_commit: bool) -> None:
        """Lose everything but the disk; a commit index that was not synced may survive."""
        if not lose_commit:
            self.disk.hard_state = self.unsynced
        self.start()

    def step(self, event: Event) -> None:
        before = seen(self.node.core)
        with contextlib.suppress(ProposalDroppedError, ReadDroppedError, UnknownPeerError):
            self.node.step(event)
        self.check(before)

    def check(self, before: object = None) -> None:
        core = self.node.core
        check_node(core)
        if before is not None:
            check_step(before, core)  # type: ignore[arg-type]
        self.cluster.safety.check(core, {m.id: m.disk for m in self.cluster.machines})

    # A Ready in two halves, between which a crash may come

    def take_ready(self) -> bool:
        if self.ready is not None or not self.node.has_ready():
            return False
        ready = self.node.ready()
        if self.node.wants_snapshot():
            self.compact(keep=1000)
        for state in ready.read_states:
            self.cluster.read_answered(self.reads.pop(state.context, 0), state.index, self.id)
        if self.options.async_storage_writes:
            for message in ready.messages:
                if isinstance(message, StorageMessage):
                    (self.append_work if message.to == APPEND_THREAD else self.apply_work).append(message)
                    assert message.to in (APPEND_THREAD, APPLY_THREAD)
                else:
                    self.cluster.send(message)
        else:
            self.ready = ready
            for message in ready.messages_at_once():
                self.cluster.send(message)
        return True

    def finish_ready(self) -> bool:
        ready = self.ready
        if ready is None:
            return False
        self.ready = None
        if ready.hard_state is not None:
            self.unsynced = ready.hard_state
        if ready.must_sync or ready.snapshot is not None:
            self.disk.hard_state = self.unsynced
        self._write(ready.entries, ready.snapshot)
        for message in ready.messages_after_sync():
            self.cluster.send(message)
        self._apply(ready.committed)
        before = seen(self.node.core)
        self.node.advance()
        self.check(before)
        return True

    def work_append(self) -> bool:
        if not self.append_work:
            return False
        work = self.append_work.popleft()
        if work.term or work.vote or work.commit:
            self.disk.hard_state = self.unsynced = HardState(work.term, work.vote, work.commit)
        self._write(work.entries, work.snapshot)
        self._respond(work)
        return True

    def work_apply(self) -> bool:
        if not self.apply_work:
            return False
        work = self.apply_work.popleft()
        self._apply(work.entries)
        self._respond(work)
        return True

    def work_off(self) -> bool:
        """Do all that can be done; False if there was nothing."""
        for count in range(WORK_MAX):
            if not (self.take_ready() or self.finish_ready() or self.work_append() or self.work_apply()):
                return count > 0
        raise AssertionError(f"node {self.id} has still something to do after {WORK_MAX} steps")

    def _respond(self, work: StorageMessage) -> None:
        for message in work.responses:
            if message.to == self.id:
                self.step(Received(message))
            else:
                self.cluster.send(message)

    def _write(self, entries: object, snapshot: Snapshot | None) -> None:
        if snapshot is not None and snapshot.index > self.disk.snapshot_index:
            self.disk.install(snapshot)
            log, used = self.node.core.log, self.node.core.tracker.configuration.state()
            assert log.unstable.snapshot != snapshot or used == snapshot.configuration, (
                f"node {self.id} goes by {used}, its snapshot says {snapshot.configuration}"
            )
            self.applied, self.configuration = snapshot.index, snapshot.configuration
        self.disk.append(entries)  # type: ignore[arg-type]

    def _apply(self, committed: object) -> None:
        entries: list[Entry] = [entry for entry in committed if entry.index > self.applied]  # type: ignore[attr-defined]
        self.cluster.safety.applied(self.id, entries)
        for entry in entries:
            assert entry.index == self.applied + 1, (
                f"node {self.id} applied {self.applied}, then {entry.index}"
            )
            self.applied = entry.index
            if entry.type is not EntryType.NORMAL and not self.node.is_overtaken(entry.index):
                before = seen(self.node.core)
                self.configuration = self.node.apply_change(from_entry(entry))
                self.check(before)

    def compact(self, keep: int) -> None:
        """Make a snapshot of what is applied, and drop all of the log before it but `keep` entries."""
        known = self.disk.snapshot_index
        index = min(self.applied, self.disk.last_index())
        if index != self.applied or index <= known:
            return
        term = self.disk.term(index)
        assert term is not None
        self.disk.set_snapshot(Snapshot(index, term, self.configuration))
        if index - keep >= self.disk.first_index():
            self.disk.compact(index - keep)


class Cluster:
    """Some machines and the network between them."""

    make_node: type[Node] = Node

    def __init__(self, seed: int, *, machines: int = 0, **options: object) -> None:
        self.random = random.Random(seed)
        self.safety = Safety()
        self.network: list[bytes] = []
        self.sent: deque[bytes] = deque(maxlen=SENT_MAX)
        """What was sent lately, whatever became of it: it may come again."""
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.machines: list[Machine] = []
        self.proposals = self.reads_answered = 0
        asynchronous = bool(seed % 2)
        machines = machines or self.random.choice((3, 4, 5))
        election_ticks = self.random.choice((3, 6, 10))
        for node in range(1, machines + 1):
            given = {
                "election_ticks": election_ticks,
                "snapshot_timeout_ticks": 30,
                "message_bytes_max": 100,
                "inflight_messages_max": 4,
                "committed_bytes_per_ready_max": 200,
                "uncommitted_bytes_max": 500,
                "pre_vote": bool(seed // 2 % 2),
                "check_quorum": bool(seed // 4 % 2),
                "async_storage_writes": asynchronous,
                **options,
            }
            self.machines.append(
                Machine(node, Options(id=node, **given), self, bootstrapped=node <= 3)  # type: ignore[arg-type]
            )

    def machine(self, number: int) -> Machine:
        return self.machines[number % len(self.machines)]

    def send(self, message: Message) -> None:
        data = codec.encode(message)
        self.network.append(data)
        self.sent.append(data)
        if len(self.network) > UNDER_WAY_MAX:
            del self.network[0]

    def read_answered(self, floor: int, index: int, node: int) -> None:
        self.reads_answered += 1
        assert index >= floor, (
            f"linearizable reads: node {node} read at {index}, but {floor} had been applied when it asked"
        )

    def deliver(self, number: int) -> None:
        if self.network:
            self._arrive(self.network.pop(number % len(self.network)))

    def deliver_again(self, number: int) -> None:
        if self.sent:
            self._arrive(self.sent[number % len(self.sent)])

    def _arrive(self, data: bytes) -> None:
        message = codec.decode(data)
        if (message.sender, message.to) in self.cut or self.random.random() < self.loss:
            return
        self.machines[message.to - 1].step(Received(message))

    # Actions

    def act(self, kind: int, a: int, b: int) -> None:
        """One action; any numbers will do."""
        machine = self.machine(a)
        kind %= WEIGHTS
        for weight, action in _ACTIONS:
            if kind < weight:
                action(self, machine, b)
                return
            kind -= weight

    def walk(self, steps: int) -> None:
        """Random actions. How often each kind comes is drawn, too: some runs crash all the time, some never.

        Groce and others, Swarm Testing (ISSTA 2012): leaving kinds out finds more than a bit of everything.
        """
        draw = self.random
        actions = [action for _, action in _ACTIONS]
        weights = [weight * draw.choice(_SWARM) for weight, _ in _ACTIONS]
        for action in draw.choices(actions, weights, k=steps):
            action(self, self.machine(draw.randrange(1 << 16)), draw.randrange(1 << 16))

    def heal(self, rounds: int = 400) -> None:
        """No faults any more: the cluster must elect a leader, and all its members must catch up.

        Not without both pre-vote and check-quorum: then nobody answers a leader of an older term, and a
        removed node that campaigns leaves a learner behind for ever.
        """
        options = self.machines[0].options
        if not (options.pre_vote or options.check_quorum):
            return
        self.cut.clear()
        self.loss = 0.0
        self.network.clear()
        target = None
        for number in range(rounds):
            for machine in self.machines:
                machine.step(events.Tick())
            self.settle()
            leaders = [m for m in self.machines if m.node.core.role.name == "LEADER"]
            if not leaders:
                continue
            if number % 40 == 39:
                target = self.safety.applied_max + 1
                leaders[-1].step(events.Propose((b"healed",)))
            members = leaders[-1].node.core.tracker.members
            if target is not None and all(self.machines[m - 1].applied >= target for m in members):
                return
        states = [
            (m.id, m.node.core.role.name, m.node.core.term, m.node.core.log.commit) for m in self.machines
        ]
        raise AssertionError(f"after {rounds} rounds without faults the cluster has not committed: {states}")

    def settle(self) -> None:
        """Deliver everything in order until nothing is left to do; bounded, a round makes fewer messages."""
        for _ in range(200):
            busy = False
            for machine in self.machines:
                busy = machine.work_off() or busy
            while self.network:
                busy = True
                self.deliver(0)
            if not busy:
                return


def _tick(_cluster: Cluster, machine: Machine, _b: int) -> None:
    machine.step(events.Tick())


def _deliver(cluster: Cluster, _machine: Machine, b: int) -> None:
    cluster.deliver(b % 8)


def _deliver_any(cluster: Cluster, _machine: Machine, b: int) -> None:
    cluster.deliver(b)


def _double(cluster: Cluster, _machine: Machine, b: int) -> None:
    cluster.deliver_again(b)


def _drop(cluster: Cluster, _machine: Machine, b: int) -> None:
    if cluster.network:
        del cluster.network[b % len(cluster.network)]


def _take(_cluster: Cluster, machine: Machine, _b: int) -> None:
    machine.take_ready()


def _finish(_cluster: Cluster, machine: Machine, _b: int) -> None:
    machine.finish_ready() or machine.work_append()


def _work(_cluster: Cluster, machine: Machine, _b: int) -> None:
    machine.work_apply() or machine.work_append() or machine.finish_ready()


def _propose(cluster: Cluster, machine: Machine, b: int) -> None:
    cluster.proposals += 1
    data = tuple(f"{cluster.proposals}.{at}".encode() for at in range(1 + b % 3))
    machine.step(events.Propose(data))


def _read(cluster: Cluster, machine: Machine, _b: int) -> None:
    cluster.proposals += 1
    context = cluster.proposals.to_bytes(4, "little")
    machine.reads[context] = cluster.safety.applied_max
    machine.step(events.Read(context))


def _crash(_cluster: Cluster, machine: Machine, b: int) -> None:
    machine.crash(lose_commit=bool(b % 2))


def _cut(cluster: Cluster, machine: Machine, b: int) -> None:
    for other in cluster.machines:
        if other is not machine and (b >> other.id) & 1:
            cluster.cut.add((machine.id, other.id))
            if b & 1:
                cluster.cut.add((other.id, machine.id))


def _mend(cluster: Cluster, _machine: Machine, b: int) -> None:
    cluster.cut.clear()
    cluster.loss = (b % 4) * 0.1


def _compact(_cluster: Cluster, machine: Machine, b: int) -> None:
    machine.compact(keep=b % 3)


def _change(cluster: Cluster, machine: Machine, b: int) -> None:
    random_of = random.Random(b)
    count = 1 + b % 2
    kinds = [Operation.VOTER, Operation.VOTER, Operation.LEARNER, Operation.REMOVE]
    operations = tuple(
        NodeChange(random_of.choice(kinds), random_of.randrange(1, len(cluster.machines) + 1))
        for _ in range(count)
    )
    transition = random_of.choice(
        [Transition.AUTO, Transition.AUTO, Transition.JOINT_IMPLICIT, Transition.JOINT_EXPLICIT]
    )
    machine.step(events.ProposeChange(Change(operations, transition)))


def _leave(_cluster: Cluster, machine: Machine, _b: int) -> None:
    machine.step(events.ProposeChange(LEAVE_JOINT))


def _transfer(cluster: Cluster, machine: Machine, b: int) -> None:
    machine.step(events.Transfer(1 + b % len(cluster.machines)))


def _campaign(_cluster: Cluster, machine: Machine, _b: int) -> None:
    machine.step(events.Campaign())


def _misc(cluster: Cluster, machine: Machine, b: int) -> None:
    peer = 1 + b % len(cluster.machines)
    choices = (events.ForgetLeader(), events.Unreachable(peer), events.SnapshotSent(peer, ok=bool(b & 8)))
    machine.step(choices[(b >> 4) % len(choices)])


def _run_on(cluster: Cluster, _machine: Machine, b: int) -> None:
    """Some quiet time, in which something gets done."""
    for _ in range(1 + b % 3):
        for machine in cluster.machines:
            machine.work_off()
        for _ in range(len(cluster.network)):
            cluster.deliver(0)


_ACTIONS: Final = (
    (90, _tick),
    (150, _deliver),
    (20, _deliver_any),
    (12, _double),
    (8, _drop),
    (120, _take),
    (120, _finish),
    (80, _work),
    (40, _propose),
    (20, _read),
    (6, _crash),
    (4, _cut),
    (2, _mend),
    (12, _compact),
    (4, _change),
    (3, _leave),
    (3, _transfer),
    (4, _misc),
    (8, _campaign),
    (20, _run_on),
)
_SWARM: Final = (0.1, 0.3, 1, 1, 3, 10)
WEIGHTS: Final = sum(weight for weight, _ in _ACTIONS)
