"""Single nodes with the logs that a test wants, and messages by hand."""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus.core import Core
from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.consensus.events import Campaign, Event, Received
from ringfence.control.consensus.invariants import check_node
from ringfence.control.consensus.messages import (
    ConfigurationState,
    Entry,
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


class Lab:
    """A node with its disk. `sent` gathers what it has said; nothing is delivered by itself."""

    def __init__(
        self,
        node: int = 1,
        *,
        voters: Sequence[int] = (1, 2, 3),
        learners: Sequence[int] = (),
        terms: Sequence[int] = (),
        term: int = 0,
        commit: int = 0,
        configuration: ConfigurationState | None = None,
        **options: object,
    ) -> None:
        """`terms` are those of the entries from index 1 on; the snapshot below is empty, its data small."""
        self.disk = MemoryStorage()
        self.disk.configuration = configuration or ConfigurationState(tuple(voters), (), tuple(learners))
        self.disk.append([Entry(each, index, data=b"x") for index, each in enumerate(terms, 1)])
        self.disk.hard_state = HardState(max(term, *terms, 0) if terms else term, 0, commit)
        given = {"election_ticks": 10, "pre_vote": False, "check_quorum": False, **options}
        self.options = Options(id=node, **given)  # type: ignore[arg-type]  # tests name real options
        self.sent: list[Message] = []
        self.lines: list[str] = []
        self.readies: list[Ready] = []
        self.applied: list[Entry] = []
        self.start()

    def start(self) -> None:
        """Start, or start again with nothing but the disk."""
        self.append_work: list[StorageMessage] = []
        self.node = Node(
            self.options,
            self.disk,
            draw=lambda count: count - 1,
            applied=self.disk.hard_state.commit,
            trace=lambda _level, text: self.lines.append(text),
        )

    @property
    def core(self) -> Core:
        return self.node.core

    def step(self, event: Event | Message) -> None:
        self.node.step(Received(event) if isinstance(event, Message) else event)
        check_node(self.core)

    def refuses(self, event: Event | Message, error: type[ConsensusError]) -> str:
        """The text of the refusal; it must come."""
        try:
            self.step(event)
        except error as refusal:
            check_node(self.core)
            return str(refusal)
        raise AssertionError(f"{event} was not refused")

    def ready(self) -> Ready:
        """One Ready, carried out in full; with asynchronous writes only taken."""
        ready = self.node.ready()
        self.readies.append(ready)
        if self.options.async_storage_writes:
            for message in ready.messages:
                if isinstance(message, StorageMessage):
                    self.append_work.append(message)
                else:
                    self.sent.append(message)
            return ready
        self.sent += ready.messages_at_once()
        if ready.hard_state is not None:
            self.disk.hard_state = ready.hard_state
        if ready.snapshot is not None:
            self.disk.install(ready.snapshot)
        self.disk.append(ready.entries)
        self.sent += ready.messages_after_sync()
        self.applied += ready.committed
        self.node.advance()
        check_node(self.core)
        return ready

    def settle(self) -> list[Message]:
        """All Readies that there are; what was sent since the last time."""
        while self.node.has_ready():
            self.ready()
        sent, self.sent = self.sent, []
        return sent

    def work(self) -> None:
        """The oldest work of a storage thread, with its answers."""
        work = self.append_work.pop(0)
        if work.type is MessageType.STORAGE_APPEND:
            if work.term:
                self.disk.hard_state = HardState(work.term, work.vote, work.commit)
            self.disk.append(work.entries)
        for answer in work.responses:
            if answer.to == self.core.id:
                self.step(answer)
            else:
                self.sent.append(answer)

    def lead(self, *, acknowledged: bool = True) -> None:
        """Make it leader by the votes of all, and its first entry committed if `acknowledged`."""
        self.step(Campaign())
        self.settle()
        for voter in sorted(self.core.tracker.configuration.voters - {self.core.id}):
            if self.core.role.name == "CANDIDATE":
                self.step(self.answer(voter, MessageType.VOTE_ANSWER))
        self.settle()
        if acknowledged:
            self.acknowledge()

    def answer(self, sender: int, kind: MessageType, **fields: object) -> Message:
        return Message(type=kind, sender=sender, to=self.core.id, term=self.core.term, **fields)  # type: ignore[arg-type]

    def acknowledge(self, *members: int) -> list[Message]:
        """Members have all of the log; what is sent then."""
        for member in members or [m for m in self.core.tracker.members if m != self.core.id]:
            index = self.core.log.last_index()
            self.step(self.answer(member, MessageType.APPEND_ANSWER, index=index))
        return self.settle()

    def acknowledge_index(self, member: int, index: int) -> list[Message]:
        """A member has the log up to `index`; what is sent then."""
        self.step(self.answer(member, MessageType.APPEND_ANSWER, index=index))
        return self.settle()


def snapshot(index: int, term: int, voters: Sequence[int] = (1, 2, 3)) -> Snapshot:
    return Snapshot(index, term, ConfigurationState(tuple(voters)))


def entries(first: int, *terms: int, data: bytes = b"x") -> tuple[Entry, ...]:
    return tuple(Entry(term, index, data=data) for index, term in enumerate(terms, first))


def leader(**options: object) -> Lab:
    lab = Lab(1, **options)  # type: ignore[arg-type]
    lab.lead()
    return lab


def heartbeat(lab: Lab, sender: int = 2, term: int = 0, commit: int = 0) -> Message:
    return Message(
        type=MessageType.HEARTBEAT, sender=sender, to=lab.core.id, term=term or lab.core.term, commit=commit
    )


def of_type(messages: list[Message], kind: MessageType) -> list[Message]:
    return [message for message in messages if message.type is kind]
