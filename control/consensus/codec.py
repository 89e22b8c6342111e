"""Encode messages between nodes as MessagePack, and validate received ones."""

from __future__ import annotations

from typing import Final

import msgspec

from ringfence.control.consensus.errors import MalformedMessageError
from ringfence.control.consensus.messages import LOCAL, NOBODY, Entry, Message, MessageType, StorageMessage

# An append of 1 MiB, and one further entry above that. Send the data of snapshots another way.
MESSAGE_BYTES_MAX: Final = 4 << 20
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The bytes of a message to another node."""
    assert message.type not in LOCAL, f"{message.type.name} never leaves a node"
    assert not isinstance(message, StorageMessage), "work for storage never leaves a node"
    return _ENCODER.encode(message)


def decode(data: bytes, *, bytes_max: int = MESSAGE_BYTES_MAX) -> Message:
    """Decode and validate a message. Memory is limited to a small multiple of `bytes_max`.

    Raises:
        MalformedMessageError: `data` is too long, no message, or a message that no node sends.
    """
    if len(data) > bytes_max:
        raise MalformedMessageError(f"a message of {len(data)} bytes, {bytes_max} is the limit")
    try:
        message = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedMessageError(f"{len(data)} bytes that are no message: {error}") from error
    fault = _fault(message)
    if fault is not None:
        raise MalformedMessageError(f"{message.type.name} from {message.sender}: {fault}")
    return message


def _fault(message: Message) -> str | None:
    """The fault of a message that no node would send; `Core` relies on valid messages."""
    kind = message.type
    if kind in LOCAL:
        return "it is local to a node"
    if message.to <= NOBODY or message.sender < NOBODY:
        return f"from {message.sender} to {message.to}: no such nodes"
    if message.sender == NOBODY and kind is not MessageType.PROPOSE:
        return "it has no sender"
    if kind is MessageType.APPEND:
        return _fault_of_append(message)
    if kind is MessageType.SNAPSHOT:
        return None if message.snapshot is not None and message.snapshot.index else "it has no snapshot"
    if kind is MessageType.PROPOSE:
        if not message.entries or message.term:
            return f"a proposal of {len(message.entries)} entries at term {message.term}"
        return None if all(not (e.term or e.index) for e in message.entries) else "its entries are placed"
    if kind in (MessageType.READ_INDEX, MessageType.READ_INDEX_ANSWER):
        return None if len(message.entries) == 1 else f"it has {len(message.entries)} contexts"
    return "it has entries" if message.entries else None


def _fault_of_append(message: Message) -> str | None:
    before = Entry(message.log_term, message.index)
    if not message.term:
        return "it has no term"
    for entry in message.entries:
        if entry.index != before.index + 1:
            return f"entry {entry.index} follows {before.index}"
        if not before.term <= entry.term <= message.term:
            return f"entry {entry.index} has term {entry.term}, after {before.term}, in term {message.term}"
        before = entry
    return None
