"""Define the envelope of every control message, and validate it before the body is decoded."""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

# Version 2 added the sender's incarnation.
VERSION: Final = 2
ID_BYTES: Final = 16
# The largest message of consensus (`consensus.codec.MESSAGE_BYTES_MAX`) and its framing.
BODY_BYTES_MAX: Final = (4 << 20) + 4_096
ENVELOPE_BYTES_MAX: Final = BODY_BYTES_MAX + 1_024
ADDRESS_CHARACTERS_MAX: Final = 256
NUMBER_MAX: Final = (1 << 63) - 1


class Kind(enum.IntEnum):
    """The kind of a message. Numbers are never reused."""

    # A message of consensus, in the encoding of `consensus.codec`.
    RAFT = 1
    # A heartbeat, with the node's applied index and the hash of its state.
    BEAT = 2
    # A part of a snapshot.
    CHUNK = 3
    # The number of bytes of a snapshot that have arrived.
    CHUNK_ANSWER = 4
    # A question; the ANSWER returns on the same connection.
    ASK = 5
    ANSWER = 6
    # The answer to a question of another cluster; the envelope has this cluster's id.
    FOREIGN = 7
    # The answer to a process with an identity that another process has.
    FENCED = 8


Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class Envelope(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The header of a message, with its body.

    `cluster` is empty in questions of senders without a cluster: joining nodes and administrators. `address`
    is the sender's listening address, or empty. `number` pairs an ANSWER with its ASK. `incarnation`
    distinguishes processes with the same identity (see `incarnations`); 0 for senders that are no nodes.
    """

    version: Annotated[int, Meta(ge=0, le=0xFFFF)]
    kind: Kind
    cluster: Annotated[bytes, Meta(max_length=ID_BYTES)]
    sender: Number
    to: Number
    address: Annotated[str, Meta(max_length=ADDRESS_CHARACTERS_MAX)]
    number: Number
    body: Annotated[bytes, Meta(max_length=BODY_BYTES_MAX)]
    incarnation: Number = 0


class EnvelopeError(Exception):
    """The bytes are no control message of this version. `reason` is the name of a counter."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Envelope)


def encode(envelope: Envelope) -> bytes:
    return _ENCODER.encode(envelope)


def decode(data: bytes) -> Envelope:
    """The envelope in a frame.

    Raises:
        EnvelopeError: the frame is too long, no envelope, or of another version.
    """
    if len(data) > ENVELOPE_BYTES_MAX:
        text = f"a control message of {len(data)} bytes; the limit is {ENVELOPE_BYTES_MAX}"
        raise EnvelopeError("oversized", text)
    try:
        envelope = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise EnvelopeError("garbage", f"{len(data)} bytes that are no control message: {error}") from error
    if envelope.version != VERSION:
        raise EnvelopeError("version", f"control version {envelope.version}, this program speaks {VERSION}")
    if len(envelope.cluster) not in {0, ID_BYTES}:
        raise EnvelopeError("garbage", f"a cluster id of {len(envelope.cluster)} bytes")
    return envelope
