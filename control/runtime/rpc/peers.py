"""Connect consensus with the network: map node ids to addresses, and Raft messages to frames.

The metadata has the address of each node. An address that a node reported itself comes first, because a node
that has moved reports its new address before it can commit the address.
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
from ringfence.control.runtime.raft.replica import Replica, snapshot_message
from ringfence.control.store.raft_store import RaftStore
from ringfence.control.transport import body_chunks
from ringfence.control.transport.body_chunks import TRANSFER_BYTES_MAX, Inbox
from ringfence.control.transport.envelope import Envelope, Kind
from ringfence.control.transport.hub import Hub
from ringfence.control.transport.large_bodies import LargeBodies
from ringfence.native.errors import RingfenceError

_LOG = structlog.get_logger("ringfence.peers")
# Addresses reported by nodes themselves; as many as the hub keeps connections.
REPORTED_MAX: Final = 1_024
# Followers pass these on to the leader: the sender of the message is not that of the envelope.
_FORWARDED: Final = frozenset({MessageType.PROPOSE, MessageType.READ_INDEX})


class Peers:
    """Sends and receives Raft messages, snapshots and heartbeats."""

    def __init__(self, hub: Hub, store: RaftStore, *, on_beat: Callable[[int, bytes], None]) -> None:
        self._hub, self._store, self._on_beat = hub, store, on_beat
        self._replica: Replica | None = None
        # Control addresses by node id: from the metadata, and from the nodes' own messages if they differ.
        self._committed: dict[int, str] = {}
        self._reported: dict[int, str] = {}
        self._inbox = Inbox()
        self._large_bodies = LargeBodies(lambda peer, body: self.send(peer, Kind.CHUNK, body))
        self._sending: set[asyncio.Task[None]] = set()

    def attach(self, replica: Replica) -> None:
        self._replica = replica

    def set_committed(self, nodes: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Set the control addresses of nodes from the metadata: (id, addresses)."""
        for node, control in nodes:
            if control and node != self._hub.node:
                self._committed[node] = control[0]

    def keep_only(self, nodes: Iterable[int]) -> None:
        """Forget the addresses of all nodes but `nodes`, the members."""
        members = set(nodes)
        self._committed = {node: address for node, address in self._committed.items() if node in members}
        self._reported = {node: address for node, address in self._reported.items() if node in members}
        self._hub.close_except({*self._committed.values(), *self._reported.values()})

    def address(self, node: int) -> str:
        """The control address of `node`; empty if it is unknown."""
        return self._reported.get(node) or self._committed.get(node, "")

    def send(self, node: int, kind: Kind, body: bytes) -> bool:
        return self._hub.send(self.address(node), node, kind, body)

    def send_message(self, message: Message) -> None:
        """Send a Raft message, which may be lost."""
        if message.type is MessageType.SNAPSHOT:
            self._send_snapshot(message)
        elif not self.send(message.to, Kind.RAFT, codec.encode(message)):
            self._unreachable(message)

    def receive(self, envelope: Envelope) -> None:
        """Process an envelope of this cluster that is for this node; the hub has checked both."""
        if envelope.address and envelope.sender:
            self._note_address(envelope)
        try:
            match envelope.kind:
                case Kind.RAFT:
                    message = codec.decode(envelope.body)
                    self._receive_raft(envelope, message)
                case Kind.BEAT:
                    self._on_beat(envelope.sender, envelope.body)
                case Kind.CHUNK:
                    self._take_chunk(envelope)
                case Kind.CHUNK_ANSWER:
                    self._large_bodies.acknowledge(envelope.sender, body_chunks.decode_answer(envelope.body))
        except (MalformedMessageError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            self._hub.counters["garbage"] += 1
            _LOG.debug("malformed message", sender=envelope.sender, why=str(error)[:200])
        except ConsensusError as error:
            _LOG.debug("event refused", sender=envelope.sender, why=str(error)[:200])

    def close(self) -> None:
        for task in self._sending:
            task.cancel()

    # ---- parts --------------------------------------------------------------------------------------

    @property
    def _consensus(self) -> Replica:
        assert self._replica is not None, "peers are not attached"
        return self._replica

    def _note_address(self, envelope: Envelope) -> None:
        if envelope.address != self._committed.get(envelope.sender):
            if len(self._reported) < REPORTED_MAX or envelope.sender in self._reported:
                self._reported[envelope.sender] = envelope.address
        else:
            self._reported.pop(envelope.sender, None)

    def _receive_raft(self, envelope: Envelope, message: Message) -> None:
        forwarded = message.type in _FORWARDED
        if message.to != self._consensus.id or (message.sender != envelope.sender and not forwarded):
            text = f"{message.type.name} from {message.sender} to {message.to} in an envelope of "
            raise MalformedMessageError(f"{text}{envelope.sender}")
        if message.type is MessageType.SNAPSHOT:
            raise MalformedMessageError("a snapshot must arrive as a transfer of chunks")
        self._consensus.step(events.Received(message))

    def _unreachable(self, message: Message) -> None:
        """Report an unreachable node to the core later, not within the step that sent the message."""
        if message.type is MessageType.APPEND:
            asyncio.get_running_loop().call_soon(self._step_event, events.Unreachable(message.to))

    def _step_event(self, event: events.Event) -> None:
        try:
            self._consensus.step(event)
        except ConsensusError as error:
            _LOG.debug("event refused", why=str(error)[:200])

    # ---- snapshots ----------------------------------------------------------------------------------

    def _send_snapshot(self, message: Message) -> None:
        if self._large_bodies.is_busy(message.to):
            return
        task = asyncio.get_running_loop().create_task(self._transfer_snapshot(message))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _transfer_snapshot(self, message: Message) -> None:
        is_delivered = False
        try:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(None, self._encode_snapshot, message)
            is_delivered = not self._large_bodies.is_busy(message.to) and await self._large_bodies.send(
                message.to, body
            )
            _LOG.info("snapshot sent", to=message.to, bytes=len(body), is_delivered=is_delivered)
        except (OSError, RingfenceError) as error:
            _LOG.warning("snapshot not sent", to=message.to, why=str(error))
        self._step_event(events.SnapshotSent(message.to, ok=is_delivered))

    def _encode_snapshot(self, message: Message) -> bytes:
        return codec.encode(snapshot_message(self._store.snapshot_bytes(), message, self._store))

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
            opened = self._store.unpack_snapshot(message.snapshot.data)
        except RingfenceError as error:
            raise MalformedMessageError(f"a snapshot that cannot be opened: {error}") from error
        claimed = (message.snapshot.index, message.snapshot.term, message.snapshot.configuration)
        if claimed != (*(opened.position.index, opened.position.term), opened.configuration):
            raise MalformedMessageError(f"a snapshot of {opened.position} in a message of {claimed[:2]}")
        self._consensus.step(events.Received(message))
