"""The other nodes as consensus sees them: ids become addresses, messages become frames, and back.

Where a node is reached stands in the metadata; what it said of itself lately comes first, for a node that
was moved says so before it can commit it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog

from ringfence.control.consensus import codec, events
from ringfence.control.consensus.errors import ConsensusError, MalformedMessageError
from ringfence.control.consensus.messages import Message, MessageType
from ringfence.control.runtime.raft.replica import Replica, message_of
from ringfence.control.store.raft_store import RaftStore
from ringfence.control.transport import body_chunks
from ringfence.control.transport.body_chunks import TRANSFER_BYTES_MAX, Inbox
from ringfence.control.transport.envelope import Envelope, Kind
from ringfence.control.transport.hub import Hub
from ringfence.control.transport.large_bodies import LargeBodies
from ringfence.native.errors import RingfenceError

_LOG = structlog.get_logger("ringfence.peers")
HEARD_MAX: Final = 1_024
"""Addresses that nodes said of themselves; as many as the hub keeps connections."""


class Peers:
    """Sends and takes messages of consensus and heartbeats."""

    def __init__(self, hub: Hub, store: RaftStore, *, on_beat: Callable[[int, bytes], None]) -> None:
        self._hub, self._store, self._on_beat = hub, store, on_beat
        self._replica: Replica | None = None
        self._known: dict[int, str] = {}
        self._heard: dict[int, str] = {}
        self._inbox = Inbox()
        self._courier = LargeBodies(lambda peer, body: self.send(peer, Kind.CHUNK, body))
        self._sending: set[asyncio.Task[None]] = set()

    def attach(self, replica: Replica) -> None:
        self._replica = replica

    def know(self, nodes: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Where the metadata says that nodes are: ids and control addresses."""
        for node, control in nodes:
            if control and node != self._hub.node:
                self._known[node] = control[0]

    def forget_others(self, nodes: Iterable[int]) -> None:
        """Only these are members any more."""
        members = set(nodes)
        self._known = {node: told for node, told in self._known.items() if node in members}
        self._heard = {node: told for node, told in self._heard.items() if node in members}
        self._hub.keep({*self._known.values(), *self._heard.values()})

    def address(self, node: int) -> str:
        """Empty for a node of which nobody knows where it is."""
        return self._heard.get(node) or self._known.get(node, "")

    def send(self, node: int, kind: Kind, body: bytes) -> bool:
        return self._hub.send(self.address(node), node, kind, body)

    def send_message(self, message: Message) -> None:
        """A message of consensus, on its way or lost."""
        if message.type is MessageType.SNAPSHOT:
            self._send_snapshot(message)
        elif not self.send(message.to, Kind.RAFT, codec.encode(message)):
            self._unreachable(message)

    def take(self, envelope: Envelope) -> None:
        """A checked envelope of this cluster, for this node."""
        if envelope.address and envelope.sender:
            self._hear(envelope)
        try:
            match envelope.kind:
                case Kind.RAFT:
                    message = codec.decode(envelope.body)
                    self._step(envelope, message)
                case Kind.BEAT:
                    self._on_beat(envelope.sender, envelope.body)
                case Kind.CHUNK:
                    self._take_chunk(envelope)
                case Kind.CHUNK_ANSWER:
                    self._courier.answered(envelope.sender, body_chunks.decode_answer(envelope.body))
        except (MalformedMessageError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            self._hub.counters["garbage"] += 1
            _LOG.debug("refused", sender=envelope.sender, why=str(error)[:200])
        except ConsensusError as error:
            _LOG.debug("not taken", sender=envelope.sender, why=str(error)[:200])

    def close(self) -> None:
        for task in self._sending:
            task.cancel()

    # ---- parts --------------------------------------------------------------------------------------

    @property
    def _consensus(self) -> Replica:
        assert self._replica is not None, "peers are not attached"
        return self._replica

    def _hear(self, envelope: Envelope) -> None:
        if envelope.address != self._known.get(envelope.sender):
            if len(self._heard) < HEARD_MAX or envelope.sender in self._heard:
                self._heard[envelope.sender] = envelope.address
        else:
            self._heard.pop(envelope.sender, None)

    def _step(self, envelope: Envelope, message: Message) -> None:
        forwarded = message.type in {MessageType.PROPOSE, MessageType.READ_INDEX}
        if message.to != self._consensus.id or (message.sender != envelope.sender and not forwarded):
            text = f"{message.type.name} from {message.sender} to {message.to} in an envelope of "
            raise MalformedMessageError(f"{text}{envelope.sender}")
        if message.type is MessageType.SNAPSHOT:
            raise MalformedMessageError("a snapshot outside of a transfer")
        self._consensus.step(events.Received(message))

    def _unreachable(self, message: Message) -> None:
        """Consensus hears of it later, not inside of the step that sent the message."""
        if message.type is MessageType.APPEND:
            asyncio.get_running_loop().call_soon(self._tell, events.Unreachable(message.to))

    def _tell(self, event: events.Event) -> None:
        try:
            self._consensus.step(event)
        except ConsensusError as error:
            _LOG.debug("not taken", why=str(error)[:200])

    # ---- snapshots ----------------------------------------------------------------------------------

    def _send_snapshot(self, message: Message) -> None:
        if self._courier.is_busy(message.to):
            return
        task = asyncio.get_running_loop().create_task(self._carry(message))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _carry(self, message: Message) -> None:
        arrived = False
        try:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(None, self._packed, message)
            arrived = not self._courier.is_busy(message.to) and await self._courier.send(message.to, body)
            _LOG.info("snapshot sent", to=message.to, bytes=len(body), arrived=arrived)
        except (OSError, RingfenceError) as error:
            _LOG.warning("snapshot not sent", to=message.to, why=str(error))
        self._tell(events.SnapshotSent(message.to, ok=arrived))

    def _packed(self, message: Message) -> bytes:
        return codec.encode(message_of(self._store.snapshot_bytes(), message, self._store))

    def _take_chunk(self, envelope: Envelope) -> None:
        answer, body = self._inbox.take(envelope.sender, body_chunks.decode_chunk(envelope.body))
        self.send(envelope.sender, Kind.CHUNK_ANSWER, body_chunks.encode(answer))
        if body is None:
            return
        message = codec.decode(body, bytes_max=TRANSFER_BYTES_MAX)
        if message.type is not MessageType.SNAPSHOT or message.sender != envelope.sender:
            raise MalformedMessageError(f"a transfer of {message.type.name} from {message.sender}")
        assert message.snapshot is not None
        try:
            opened = self._store.opened(message.snapshot.data)
        except RingfenceError as error:
            raise MalformedMessageError(f"a snapshot that cannot be opened: {error}") from error
        told = (message.snapshot.index, message.snapshot.term, message.snapshot.configuration)
        if told != (*(opened.position.index, opened.position.term), opened.configuration):
            raise MalformedMessageError(f"a snapshot of {opened.position} in a message of {told[:2]}")
        self._consensus.step(events.Received(message))
