"""What must hold of the cluster, after and between steps. It sees no switch of any planted bug.

It hears of: every event that a node's consensus takes, every message that it sends, every entry that it
applies, every start with what was on the disk, every decision about members, every order's end, every stored
batch. A contradiction is told by the name of the invariant that it breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ringfence.control import invariants  # noqa: F401 - the package of what follows
from ringfence.control.consensus.core import Role
from ringfence.control.consensus.events import Read, Received
from ringfence.control.consensus.invariants import check_node, check_step, seen
from ringfence.control.consensus.messages import EntryType, Message, MessageType
from ringfence.control.consensus.safety import Safety
from ringfence.control.invariants import metadata as metadata_invariants
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.config import limit
from ringfence.native.wire import Code
from tests.sim.checks.promises import Promises
from tests.sim.checks.violation import ViolationError
from tests.sim.world import current

if TYPE_CHECKING:
    from ringfence.common.send_effects import Identity
    from tests.sim.world.machine import Machine
    from tests.sim.world.world import World

SLACK_MS: Final = 60
"""A beat is decoded, and a tick comes, within one turn; times are compared in whole ms."""


class Watch:
    """One cluster's history as nobody in it sees it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.safety = Safety()
        self.stores: dict[int, Any] = {}
        self.elections = 0
        self.state_at: dict[int, tuple[MetadataState, Any]] = {}
        self.newest: tuple[int, MetadataState | None] = (0, None)
        self.owners: dict[tuple[int, int], int] = {}  # node by (partition, epoch), as the log says
        self.promises = Promises(world.violate, self.safety.committed)
        self._applied: dict[int, tuple[Any, Any]] = {}  # the command of each entry and its result, by index
        self._first: dict[tuple[int, int], tuple[int, Any]] = {}  # a proposal's index and result
        self._committed: dict[int, int] = {}  # term by index, as leaders committed it
        self._floors: dict[bytes, int] = {}  # by a read's context
        self._beats: dict[tuple[str, int], float] = {}
        self._led_since: dict[str, tuple[int, float]] = {}
        self._ticks: dict[str, float] = {}
        self._identities: dict[tuple[int, int], str] = {}
        self._begun: dict[int, MetadataState] = {}  # before each entry, at the first machine that applied it
        self._equal: dict[str, tuple[MetadataState, MetadataState]] = {}
        """By machine: its newest state, and the equal one of the first machine that had it."""

    def _broken(self, name: str, error: AssertionError) -> None:
        self.world.violate(error if isinstance(error, ViolationError) else ViolationError(name, str(error)))

    # ---- consensus ----

    def stepped(self, node: Any, step: Callable[[Any, Any], Any], event: Any) -> Any:
        """One event of one node's consensus, or one change of its configuration; what the step gives."""
        core = node.core
        log = core.log
        before = seen(core)
        last, last_term = log.last_index(), log.last_term()
        kind = type(event)
        if kind is Received:
            if event.message.type is MessageType.SNAPSHOT:
                self.world.snapshot_came(event)
        elif kind is Read:
            self._floors[event.context] = self.safety.applied_max
        try:
            try:
                return step(node, event)
            finally:
                check_node(core)
                check_step(before, core)
                if log.last_index() < last or log.term(last) not in (last_term, None):
                    self.promises.shrank(core)
                if log.commit > before.commit:
                    self._commits(core, before.commit)
                if core.role is Role.LEADER:
                    self._leads(core, before)
                    self._appended(core, last)
        except AssertionError as error:
            self._broken("consensus", error)
            raise

    def _leads(self, core: Any, before: Any) -> None:
        if before.role is not Role.LEADER or before.term != core.term:
            machine = current.machine()
            self.elections += 1
            self._led_since[machine.name] = core.term, machine.clock.mono_s()
            self.world.tell(machine.name, f"leads term {core.term}")
            self.world.elected(machine)
        self.safety.check(core, self.stores)

    def _commits(self, core: Any, before: int) -> None:
        """What a leader commits is told to others; a follower commits nothing else."""
        log, leads = core.log, core.role is Role.LEADER
        for index in range(max(before + 1, log.first_index()), log.commit + 1):
            own = log.term(index)
            known = self._committed.setdefault(index, own) if leads else self._committed.get(index, own)
            assert own == known, f"{core.id} commits {index} of term {own}, a leader has that of term {known}"

    @staticmethod
    def _appended(core: Any, last: int) -> None:
        """A leader takes a change of the configuration only once it has committed in its own term."""
        log = core.log
        unstable = log.unstable
        if not unstable.entries:
            return
        for entry in unstable.entries[max(0, last + 1 - unstable.offset) :]:
            if entry.type is not EntryType.NORMAL and entry.term == core.term:
                Watch._only_change(core, entry.index)
                assert log.term(log.commit) in (core.term, None), (
                    f"{core.id} appended a change of the configuration at {entry.index} in term {core.term}, "
                    f"and has committed only up to {log.commit} of term {log.term(log.commit)}"
                )

    @staticmethod
    def _only_change(core: Any, index: int) -> None:
        """One change of the configuration at a time: none before it waits to be applied."""
        log = core.log
        first = max(log.applied + 1, log.first_index())
        for entry in log.entries(first, index) if first < index else ():
            assert entry.type is EntryType.NORMAL, (
                f"{core.id} appended a change of the configuration at {index}, that at {entry.index} is not "
                f"applied yet (applied {log.applied})"
            )

    def answers_read(self, context: bytes, index: int) -> None:
        """A linearizable read: at an index that holds all that anybody had applied when it was asked."""
        floor = self._floors.pop(context, 0)
        if index < floor:
            what = f"a read was answered at {index}, {floor} had been applied when it was asked"
            self.world.violate(ViolationError("linearizable reads", what))

    def sends(self, machine: Machine, message: Message) -> None:
        """A message leaves."""
        node = machine.node
        self.promises.sends(None if node is None else node.proposer.replica.node.core, message)

    def opened(self, machine: Machine, store: Any) -> None:
        """A process read its log."""
        identity = store._directory.identity
        self.stores[identity.node] = store
        self.promises.opened(identity.node, store)

    def will_apply(self, machine: Machine, node: int, entries: Sequence[Any]) -> None:
        try:
            self.safety.applied(node, entries)
        except AssertionError as error:
            self._broken("state machine safety", error)
            raise

    # ---- metadata ----

    def applied(self, before: MetadataState, entry: Any, after: MetadataState, result: Any) -> None:
        """One command, on one node."""
        index = entry.index
        known = self.state_at.setdefault(index, (after, result))
        agrees = known == (after, result)
        is_known = agrees and self._is_known(index, before, after, known[0])
        if after is not before and not is_known:
            try:
                metadata_invariants.check_step(before, after, index)
            except AssertionError as error:
                self._broken(str(error).partition(":")[0], error)
                raise
        if isinstance(result, Refused) and after is not before and after.sessions == before.sessions:
            self.world.violate(ViolationError("I15", f"entry {index} was refused and changed the state"))
        self._applies_once(before, entry, after, result)
        self._applied.setdefault(index, (entry.proposal.command, result))
        if not agrees:
            what = f"entry {index} gave {result} and {after} here, {known[1]} and {known[0]} elsewhere"[
                :2_000
            ]
            self.world.violate(ViolationError("equal index, equal state", what))
        if index > self.newest[0]:
            self.newest = index, after
            self.world.times.applied(after)
            self._decides(before, after)
            self.world.changed(before, after)
            self._note_owners(before, after)
        self.world.applied(current.machine(), before, after)

    def _is_known(
        self, index: int, before: MetadataState, after: MetadataState, first_after: MetadataState
    ) -> bool:
        """Whether another machine took this step, between equal states: what was checked of it holds here.

        `first_after` is what the first machine had after the entry; it equals `after`.
        """
        name = current.machine().name
        own, equal = self._equal.get(name, (before, before))
        first_before = equal if own is before else before  # another one after a start or a snapshot
        self._equal[name] = after, first_after
        if after is first_after:
            self._begun.setdefault(index, first_before)
            return False
        return self._begun.get(index) is first_before

    def _decides(self, before: MetadataState, after: MetadataState) -> None:
        """Of a scope: which epoch, with which attempts."""
        try:
            self.world.scopes.decides(before, after)
        except ViolationError as broken:
            self.world.violate(broken)

    def answers(self, command: Any, applied: Any) -> None:
        """Who proposed hears of it: it was applied, there, with that result."""
        known = self._applied.get(applied.index)
        if known is None or known != (command, applied.result):
            what = (
                f"{command} was answered with {applied.result} at {applied.index}, where {known} was applied"
            )
            self.world.violate(ViolationError("answered before it was committed", what[:2_000]))

    def _applies_once(self, before: MetadataState, entry: Any, after: MetadataState, result: Any) -> None:
        """A proposal that came twice changes nothing the second time, and gets the same answer.

        Session 0 is that of nodes which have none yet; what they propose may come twice (`node_commands`).
        """
        key = int(entry.proposal.session), int(entry.proposal.sequence)
        first = self._first.setdefault(key, (entry.index, result))
        if not key[0] or first[0] >= entry.index or isinstance(first[1], Refused):
            return
        forgotten = isinstance(result, Refused) and result.code in (Code.FORGOTTEN, Code.TOO_OLD)
        changed = [
            name
            for name in ("topics", "nodes", "ring", "producers", "tombstones", "removed")
            if getattr(before, name) != getattr(after, name)
        ]
        if changed or not (forgotten or result == first[1]):
            what = f"proposal {key} gave {first[1]} at {first[0]}, then {result} at {entry.index}: {changed}"
            self.world.violate(ViolationError("applied once", what))

    def _note_owners(self, before: MetadataState, after: MetadataState) -> None:
        for change, transition in after.transitions.items():
            if change not in before.transitions:  # children are opened before they have assignments
                for child in transition.children:
                    self.owners[int(child.partition), int(change)] = int(child.replicas[0].node)
        for number, topic in after.topics.items():
            if before.topics.get(number) is topic:
                continue
            for partition, assignment in topic.assignments.items():
                key = int(partition), int(assignment.epoch)
                owner = self.owners.setdefault(key, int(assignment.owner.node))
                if owner != assignment.owner.node:
                    new = assignment.owner.node
                    what = f"partition {key[0]} has the owners {owner} and {new} under {key[1]}"
                    self.world.violate(ViolationError("I4", what))

    def identity(self, client: str, identity: Identity) -> None:
        """An identity that was drawn is nobody else's."""
        known = self._identities.setdefault((identity.producer_id, identity.producer_epoch), client)
        if known != client:
            what = f"{client} and {known} were both given producer {tuple(identity)}"
            self.world.violate(ViolationError("I2", what))

    # ---- members ----

    def heard_beat(self, machine: Machine, sender: int, beat: Any) -> None:
        """One of an older start is no sign of life, so says rule 4 of `liveness`."""
        known = None if machine.replica is None else machine.replica.state.nodes.get(sender)
        if known is not None and known.store == beat.store and not 0 < beat.started < known.started:
            self._beats[machine.name, sender] = machine.clock.mono_s()

    def decides(self, machine: Machine, command: Any) -> None:
        """A leader wants a change of the members."""
        if not isinstance(command, FailNode):
            return
        node = machine.node
        assert node is not None
        failure_ms = limit(node.proposer.state, "failure_ms")
        now_s = machine.clock.mono_s()
        led = self._led_since.get(machine.name, (0, 0.0))[1]
        since = max(self._beats.get((machine.name, command.node), 0.0), led, machine.woke_s)
        silence_ms = (now_s - since) * 1000
        if silence_ms < failure_ms - SLACK_MS:
            what = (
                f"node {command.node} is failed by {machine.name} after {silence_ms:.0f} ms, not {failure_ms}"
            )
            self.world.violate(ViolationError("J1", what))
        self.world.count("node_failed")

    # ---- data ----

    def order_ended(self, machine: Machine, name: str, args: tuple[Any, ...], error: str | None) -> None:
        if error is not None:
            self.world.count("order_failed")
            self.world.tell(machine.name, f"{name}{args[:2]} failed", error[:160])
        elif name == "open":
            partition, epoch = args[1], args[4]
            owner = self.owners.get((partition, epoch))
            if owner != machine.node_id:
                what = (
                    f"node {machine.node_id} opened partition {partition} under {epoch}, which is {owner}'s"
                )
                self.world.violate(ViolationError("I4", what))
            self.world.ledger.opened(partition, epoch)
        if error is None:
            self.world.carried_out(machine, name, args)

    def stored(self, machine: Any, partition: int, epoch: int) -> None:
        """A batch was acknowledged by a machine under an epoch: the log must have given it to that node."""
        owner = self.owners.get((partition, epoch))
        if owner is None or (machine.node_id and owner != machine.node_id):
            what = f"{machine.name} stored a batch of partition {partition} under {epoch}, which is {owner}'s"
            self.world.violate(ViolationError("I4", what))

    def engine_said(self, machine: Machine, outcome: tuple[Any, ...]) -> None:
        self.world.count(str(outcome[0]))
        self.world.tell(machine.name, str(outcome[0]), str(outcome[1:])[:160])
        if outcome[0] == "quarantined":
            self.world.quarantined(machine)
        elif outcome[0] == "shard_failed":
            self.world.failed_shard(machine)
