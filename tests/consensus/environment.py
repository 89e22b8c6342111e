"""The cluster of an interaction script: nodes, their stores, the network, all driven by hand."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from ringfence.control.consensus import describe
from ringfence.control.consensus.configuration_changes import from_entry
from ringfence.control.consensus.errors import (
    ConsensusError,
    LocalMessageError,
    ProposalDroppedError,
    UnknownPeerError,
)
from ringfence.control.consensus.events import Received
from ringfence.control.consensus.invariants import check_node
from ringfence.control.consensus.messages import (
    APPEND_THREAD,
    APPLY_THREAD,
    NO_HARD_STATE,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    Snapshot,
    StorageMessage,
)
from ringfence.control.consensus.options import Options
from ringfence.control.consensus.raft_node import Node
from ringfence.control.consensus.ready import Ready
from ringfence.control.consensus.storage import MemoryStorage
from tests.consensus.output import Output

_THREADS = {APPEND_THREAD, APPLY_THREAD}


class ScriptError(Exception):
    """A command ended with an error; its text is output."""


def script_text(error: ConsensusError) -> str:
    """An error in the words of the scripts."""
    if isinstance(error, ProposalDroppedError):
        return "raft proposal dropped"
    if isinstance(error, LocalMessageError):
        return "raft: cannot step raft local message"
    if isinstance(error, UnknownPeerError):
        return "raft: cannot step as peer not found"
    return str(error)


class HistoryStorage(MemoryStorage):
    """Sends the newest snapshot of the application, which may be newer than the store's."""

    def __init__(self) -> None:
        super().__init__()
        self.history = [Snapshot()]

    def snapshot(self) -> Snapshot:
        return self.history[-1]


class Member:
    """A node, its store, and the queues of its storage threads."""

    def __init__(self, node: Node, storage: HistoryStorage) -> None:
        self.node, self.storage = node, storage
        self.append_work: deque[StorageMessage] = deque()
        self.apply_work: deque[StorageMessage] = deque()

    @property
    def id(self) -> int:
        return self.node.core.id

    @property
    def asynchronous(self) -> bool:
        return self.node.core.options.async_storage_writes


class Environment:
    """Everything that a script's commands act on."""

    def __init__(self, seed: int | None = None) -> None:
        self.out = Output()
        self.members: list[Member] = []
        self.network: list[Message] = []
        self._random = random.Random(seed)

    def member(self, node: int) -> Member:
        if not 1 <= node <= len(self.members):
            raise ScriptError(f"there is no node {node}")
        return self.members[node - 1]

    def add(self, options: Options, snapshot: Snapshot) -> None:
        storage = HistoryStorage()
        if snapshot.index:
            storage.install(snapshot)
            storage.history = [snapshot]
        node = Node(
            options, storage, draw=self._random.randrange, applied=snapshot.index, trace=self.out.trace
        )
        self.members.append(Member(node, storage))

    # Ready

    def process_ready(self, member: Member) -> None:
        ready = member.node.ready()
        self.out.write(ready_text(ready))
        if not member.asynchronous:
            self._persist(member, ready.hard_state, ready.entries, ready.snapshot)
            self._apply(member, ready.committed)
        for message in ready.messages:
            if message.to == APPEND_THREAD:
                assert isinstance(message, StorageMessage)
                member.append_work.append(message)
            elif message.to == APPLY_THREAD:
                assert isinstance(message, StorageMessage)
                member.apply_work.append(message)
            else:
                self.network.append(message)
        if not member.asynchronous:
            member.node.advance()
        check_node(member.node.core)

    def _persist(
        self, member: Member, hard: HardState | None, entries: Sequence[Entry], snapshot: Snapshot | None
    ) -> None:
        if hard is not None and hard != NO_HARD_STATE:
            member.storage.hard_state = hard
        if snapshot is not None and snapshot.index:
            if entries:
                raise ScriptError("can't apply snapshot and entries at the same time")
            member.storage.install(snapshot)
        else:
            member.storage.append(entries)

    def _apply(self, member: Member, committed: Sequence[Entry]) -> None:
        history = member.storage.history
        for entry in committed:
            last = history[-1]
            configuration, data = last.configuration, last.data
            if entry.type is EntryType.NORMAL:
                data += entry.data
            else:
                configuration = member.node.apply_change(from_entry(entry))
            history.append(Snapshot(entry.index, entry.term, configuration, data))

    # Storage threads

    def process_append(self, member: Member) -> bool:
        """One item of the append thread; False if there is none."""
        if not member.append_work:
            return False
        work = member.append_work.popleft()
        self.out.line("Processing:\n" + describe.message(replace(work, responses=())))
        self._persist(member, HardState(work.term, work.vote, work.commit), work.entries, work.snapshot)
        self._respond(work)
        return True

    def process_apply(self, member: Member) -> bool:
        """One item of the apply thread; False if there is none."""
        if not member.apply_work:
            return False
        work = member.apply_work.popleft()
        self.out.line("Processing:\n" + describe.message(replace(work, responses=())))
        self._apply(member, work.entries)
        self._respond(work)
        return True

    def _respond(self, work: StorageMessage) -> None:
        self.out.line("Responses:")
        for message in work.responses:
            self.out.line(describe.message(message))
            self.network.append(message)

    # Network

    def deliver(self, to: int, *, drop: bool = False, kind: MessageType | None = None) -> int:
        """Deliver or drop what is under way to `to`; how many messages that were."""
        taken: list[Message] = []
        kept: list[Message] = []
        for message in self.network:
            local = message.sender == message.to or message.sender in _THREADS or message.to in _THREADS
            wanted = message.to == to and kind in (None, message.type) and not (drop and local)
            (taken if wanted else kept).append(message)
        self.network = kept
        for message in taken:
            self.out.line(("dropped: " if drop else "") + describe.message(message))
            if drop:
                continue
            node = self.member(to).node
            try:
                node.step(Received(message))
            except ConsensusError as error:
                self.out.line(script_text(error))
            check_node(node.core)
        return len(taken)


def ready_text(ready: Ready) -> str:
    if not ready:
        return "<empty Ready>"
    lines = [f"Ready MustSync={str(ready.must_sync).lower()}:"]
    if ready.soft_state is not None:
        lines.append(describe.soft_state(ready.soft_state.lead, ready.soft_state.role))
    if ready.hard_state is not None:
        lines.append(f"HardState {describe.hard_state(ready.hard_state)}")
    if ready.read_states:
        states = " ".join(f"{{{s.index} [{' '.join(map(str, s.context))}]}}" for s in ready.read_states)
        lines.append(f"ReadStates [{states}]")
    if ready.entries:
        lines += ["Entries:", *map(describe.entry, ready.entries)]
    if ready.snapshot is not None:
        lines.append(f"Snapshot {describe.snapshot(ready.snapshot)}")
    if ready.committed:
        lines += ["CommittedEntries:", *map(describe.entry, ready.committed)]
    if ready.messages:
        lines += ["Messages:", *map(describe.message, ready.messages)]
    return "".join(line + "\n" for line in lines)
