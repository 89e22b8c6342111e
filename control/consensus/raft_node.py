"""The interface of consensus: events in by `step`, orders out by `ready`, `advance` when they are done."""

from __future__ import annotations

from ringfence.control.consensus import (
    configuration_changes,
    configuration_switch,
    events,
    follower,
    leader,
    roles,
    terms,
    transfer,
)
from ringfence.control.consensus.configuration_changes import Change
from ringfence.control.consensus.core import Core, Draw, Role
from ringfence.control.consensus.errors import LocalMessageError, UnknownPeerError
from ringfence.control.consensus.events import Event
from ringfence.control.consensus.messages import (
    ANSWERS,
    APPEND_THREAD,
    APPLY_THREAD,
    LOCAL,
    NOBODY,
    ConfigurationState,
    Entry,
    HardState,
    Message,
    MessageType,
    size_bytes,
)
from ringfence.control.consensus.options import Options
from ringfence.control.consensus.ready import Ready, SoftState
from ringfence.control.consensus.status import Status, status
from ringfence.control.consensus.storage import Storage
from ringfence.control.consensus.storage_work import append_answer, append_work, apply_answer, apply_work
from ringfence.control.consensus.trace import Level, Trace, silent

_STORAGE_THREADS = frozenset({APPEND_THREAD, APPLY_THREAD})


class Node:
    """One member of the cluster. Not thread-safe; it neither waits nor reads a clock.

    The package's docstring describes its use by a driver.
    """

    def __init__(
        self, options: Options, storage: Storage, *, draw: Draw, applied: int = 0, trace: Trace = silent
    ) -> None:
        """Start from `storage`.

        Args:
            options: the behaviour.
            storage: the durable log; the node only reads it.
            draw: draw(n) returns a random number in 0 .. n - 1, for election timeouts.
            applied: the last index whose effects the application has; 0 = those of the snapshot.
            trace: receives a line for each action.
        """
        core = self.core = Core(options, storage, draw, trace)
        hard_state, configuration = storage.initial_state()
        # Applied entries are committed. The stored commit index may be older: it need not be synced.
        core.log.commit_to(max(hard_state.commit, applied))
        core.term, core.vote = hard_state.term, hard_state.vote
        if applied:
            core.log.applied_to(applied, 0)
        configuration_switch.restore(core, configuration)
        roles.become_follower(core, core.term, NOBODY)
        peers = ",".join(f"{voter:x}" for voter in sorted(core.tracker.configuration.voters))
        log = core.log
        core.trace(
            Level.INFO,
            f"newRaft {core.id:x} [peers: [{peers}], term: {core.term}, commit: {log.commit}, applied: "
            f"{log.applied}, lastindex: {log.last_index()}, lastterm: {log.last_term()}]",
        )
        self._shown_soft = SoftState(core.lead, core.role)
        self._shown_hard = self._hard_state()
        self._on_advance: list[Message] = []

    @property
    def shown(self) -> tuple[SoftState, HardState]:
        """The states in the last Ready; the next one has them only if they change."""
        return self._shown_soft, self._shown_hard

    @shown.setter
    def shown(self, value: tuple[SoftState, HardState]) -> None:
        self._shown_soft, self._shown_hard = value

    # Events in

    def step(self, event: Event) -> None:
        """Process one event.

        Raises:
            ConsensusError: the event was refused; see `errors`. Continue with the next event.
        """
        core = self.core
        match event:
            case events.Received(message):
                self._receive(message)
            case events.Tick():
                (leader if core.role is Role.LEADER else follower).on_tick(core)
            case events.Propose(data):
                entries = tuple(Entry(data=each) for each in data)
                self._local(MessageType.PROPOSE, sender=core.id, entries=entries)
            case events.ProposeChange(change, version_1):
                entry = configuration_changes.to_entry(change, version_1=version_1)
                self._local(MessageType.PROPOSE, entries=(entry,))
            case events.Read(context):
                self._local(MessageType.READ_INDEX, entries=(Entry(data=context),))
            case events.Transfer(to):
                self._local(MessageType.TRANSFER, sender=to)
            case events.Campaign():
                self._local(MessageType.HUP)
            case events.StorageFull(full):
                transfer.on_space(core, full=full)
            case events.ForgetLeader():
                self._local(MessageType.FORGET_LEADER)
            case events.Unreachable(peer):
                self._local(MessageType.UNREACHABLE, sender=peer)
            case events.SnapshotSent(peer, ok):
                self._local(MessageType.SNAPSHOT_STATUS, sender=peer, reject=not ok)

    def _receive(self, message: Message) -> None:
        if message.sender not in _STORAGE_THREADS:
            if message.type in LOCAL:
                raise LocalMessageError(message)
            if message.type in ANSWERS and message.sender not in self.core.tracker.progress:
                raise UnknownPeerError(message)
        terms.step(self.core, message)

    def _local(
        self,
        kind: MessageType,
        *,
        sender: int = NOBODY,
        entries: tuple[Entry, ...] = (),
        reject: bool = False,
    ) -> None:
        terms.step(self.core, Message(type=kind, sender=sender, entries=entries, reject=reject))

    def apply_change(self, change: Change) -> ConfigurationState:
        """Put a committed change of the configuration into effect; store the result with the applied index.

        The driver calls it for each such entry, in order, while it applies the Ready; except for an entry
        that a snapshot has overtaken.
        """
        return configuration_switch.apply_change(self.core, change)

    def is_overtaken(self, index: int) -> bool:
        """Whether a received snapshot includes this entry, which was handed out and is not applied yet.

        The configuration of the snapshot is used from its arrival on, before it is durable. A change that the
        snapshot includes must not be applied again.
        """
        return index < self.core.log.first_index()

    # Orders out

    def has_ready(self) -> bool:
        """Whether there are new orders."""
        core, log = self.core, self.core.log
        unstable = log.unstable
        return bool(
            core.messages
            or core.after_append
            or core.read_states
            or unstable.handed < unstable.offset + len(unstable.entries)
            or (unstable.snapshot is not None and not unstable.snapshot_handed)
            or self._changed_hard_state() is not None
            or self._changed_soft_state() is not None
            or log.has_next_committed(unstable=not core.options.async_storage_writes)
        )

    def status(self) -> Status:
        """The status of the node, as a copy."""
        return status(self.core)

    def wants_snapshot(self) -> bool:
        """Whether a follower needs a newer snapshot: the driver makes one of the applied state."""
        return self.core.snapshot_wanted

    def ready(self) -> Ready:
        """Return the new orders, which then count as issued. Synchronously, `advance` must follow."""
        assert not self._on_advance, "the last Ready was not advanced"
        core, log = self.core, self.core.log
        asynchronous = core.options.async_storage_writes
        soft, hard = self._changed_soft_state(), self._changed_hard_state()
        entries = log.unstable.not_handed()
        snapshot = None if log.unstable.snapshot_handed else log.unstable.snapshot
        committed = log.next_committed(unstable=not asynchronous)
        ready = Ready(
            soft_state=soft,
            hard_state=hard,
            read_states=core.read_states,
            entries=entries,
            snapshot=snapshot,
            committed=committed,
            messages=core.messages,
            must_sync=bool(entries)
            or (
                hard is not None and (hard.term, hard.vote) != (self._shown_hard.term, self._shown_hard.vote)
            ),
        )
        log.unstable.hand_out()
        if asynchronous:
            append = append_work(core, ready)
            if append is not None:
                core.messages.append(append)
            if committed:
                core.messages.append(apply_work(core, committed))
        else:
            self._plan_advance(ready)
        self._accept(ready)
        return ready

    def advance(self) -> None:
        """Note that all orders of the last Ready are done. Only with synchronous storage."""
        steps, self._on_advance = self._on_advance, []
        for message in steps:
            terms.step(self.core, message)

    def _plan_advance(self, ready: Ready) -> None:
        core = self.core
        own = [message for message in core.after_append if message.to == core.id]
        core.messages.extend(message for message in core.after_append if message.to != core.id)
        self._on_advance = own
        answer = append_answer(core, ready.snapshot)
        if answer is not None:
            self._on_advance.append(answer)
        if ready.committed:
            self._on_advance.append(apply_answer(core, ready.committed))

    def _accept(self, ready: Ready) -> None:
        core, log = self.core, self.core.log
        if ready.soft_state is not None:
            self._shown_soft = ready.soft_state
        if ready.hard_state is not None:
            self._shown_hard = ready.hard_state
        if ready.committed:
            bytes_count = sum(map(size_bytes, ready.committed))
            unstable = not core.options.async_storage_writes
            log.start_applying(ready.committed[-1].index, bytes_count, unstable=unstable)
        core.messages, core.after_append, core.read_states = [], [], []

    def _hard_state(self) -> HardState:
        core = self.core
        return HardState(core.term, core.vote, core.log.commit)

    def _changed_hard_state(self) -> HardState | None:
        core, shown = self.core, self._shown_hard
        if core.log.commit == shown.commit and core.term == shown.term and core.vote == shown.vote:
            return None
        return self._hard_state()

    def _changed_soft_state(self) -> SoftState | None:
        core, shown = self.core, self._shown_soft
        if core.lead == shown.lead and core.role is shown.role:
            return None
        return SoftState(core.lead, core.role)
