"""What stands around every control message, and what is checked before a body is looked at."""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

VERSION: Final = 2
"""2 added to 1: the sender's life."""
ID_BYTES: Final = 16
BODY_BYTES_MAX: Final = (4 << 20) + 4_096
"""The largest message of consensus (`consensus.codec.MESSAGE_BYTES_MAX`) and its frame."""
ENVELOPE_BYTES_MAX: Final = BODY_BYTES_MAX + 1_024
ADDRESS_CHARACTERS_MAX: Final = 256
NUMBER_MAX: Final = (1 << 63) - 1


class Kind(enum.IntEnum):
    """Numbers are never reused."""

    RAFT = 1
    """A message of consensus, by its own codec."""
    BEAT = 2
    """A node says that it lives, how far it is, and the hash of its state."""
    CHUNK = 3
    """A piece of a snapshot."""
    CHUNK_ANSWER = 4
    """How much of a snapshot has arrived."""
    ASK = 5
    """A question; an ANSWER comes back on the same connection."""
    ANSWER = 6
    FOREIGN = 7
    """The answer to a message of another cluster; the envelope names this one."""
    FENCED = 8
    """The answer to a process whose identity another one has."""


Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class Envelope(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`cluster` is empty in questions of those who belong to none: joining nodes, administrators.

    `address` is where the sender listens; empty for who does not. `number` pairs an ANSWER with its ASK.
    `life` tells processes with one identity apart (see `lives`); 0 for who is no node.
    """

    version: Annotated[int, Meta(ge=0, le=0xFFFF)]
    kind: Kind
    cluster: Annotated[bytes, Meta(max_length=ID_BYTES)]
    sender: Number
    to: Number
    address: Annotated[str, Meta(max_length=ADDRESS_CHARACTERS_MAX)]
    number: Number
    body: Annotated[bytes, Meta(max_length=BODY_BYTES_MAX)]
    life: Number = 0


class EnvelopeError(Exception):
    """Bytes that are no control message of this version; `reason` is a counter's name."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Envelope)


def encode(envelope: Envelope) -> bytes:
    return _ENCODER.encode(envelope)


def decode(data: bytes) -> Envelope:
    """The envelope of a frame.

    Raises:
        EnvelopeError: it is too long, is none, or of another version.
    """
    if len(data) > ENVELOPE_BYTES_MAX:
        raise EnvelopeError("oversized", f"{len(data)} bytes, {ENVELOPE_BYTES_MAX} is the limit")
    try:
        envelope = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise EnvelopeError("garbage", f"{len(data)} bytes that are no control message: {error}") from error
    if envelope.version != VERSION:
        raise EnvelopeError("version", f"control version {envelope.version}, this program speaks {VERSION}")
    if len(envelope.cluster) not in {0, ID_BYTES}:
        raise EnvelopeError("garbage", f"a cluster id of {len(envelope.cluster)} bytes")
    return envelope
