"""Split a large body into chunks, and assemble received chunks.

The sender sends the next chunk after the receiver has acknowledged the bytes so far. Each sender has one
transfer at a time; a new one replaces the previous one. Received bytes are limited to TRANSFER_BYTES_MAX for
each sender, and there are few senders, because only a leader sends snapshots.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

# Size of a chunk: 256 MB/s with round trips of 1 ms, and a heartbeat waits for one chunk at most.
CHUNK_BYTES: Final = 256 << 10
# The state of 1,000 nodes and 100,000 partitions has less than 100 MB.
TRANSFER_BYTES_MAX: Final = 256 << 20
# Senders with a stored transfer: the leader and recent former leaders.
SENDERS_MAX: Final = 4

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Chunk(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A part of a body. `transfer` is new for each body; `start` and `total` are in bytes."""

    transfer: Number
    start: Number
    total: Annotated[int, Meta(ge=1, le=TRANSFER_BYTES_MAX)]
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES)]


class ChunkAnswer(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`received` bytes of the transfer have arrived; the next chunk begins there."""

    transfer: Number
    received: Number


_ENCODER: Final = msgspec.msgpack.Encoder()
_CHUNK: Final = msgspec.msgpack.Decoder(Chunk)
_ANSWER: Final = msgspec.msgpack.Decoder(ChunkAnswer)


def encode(part: Chunk | ChunkAnswer) -> bytes:
    return _ENCODER.encode(part)


def decode_chunk(body: bytes) -> Chunk:
    """Raises msgspec.MsgspecError."""
    return _CHUNK.decode(body)


def decode_answer(body: bytes) -> ChunkAnswer:
    """Raises msgspec.MsgspecError."""
    return _ANSWER.decode(body)


class Inbox:
    """Assembles received bodies."""

    def __init__(self) -> None:
        # By sender: transfer, total bytes, bytes so far. The oldest transfer comes first.
        self._transfers: dict[int, tuple[int, int, bytearray]] = {}

    def take(self, sender: int, chunk: Chunk) -> tuple[ChunkAnswer, bytes | None]:
        """Add a chunk; return the answer, and the body once it is complete.

        A chunk that does not continue the transfer is dropped; its answer has the position to continue from.
        """
        transfer, total, data = self._transfers.get(sender, (-1, 0, bytearray()))
        if chunk.start == 0 and chunk.transfer != transfer:
            self._transfers.pop(sender, None)
            while len(self._transfers) >= SENDERS_MAX:
                del self._transfers[next(iter(self._transfers))]
            transfer, total, data = chunk.transfer, chunk.total, bytearray()
            self._transfers[sender] = (transfer, total, data)
        fits = (
            (chunk.transfer, chunk.total) == (transfer, total)
            and chunk.start == len(data)
            and len(data) + len(chunk.data) <= total
        )
        if fits:
            data += chunk.data
        answer = ChunkAnswer(chunk.transfer, len(data) if chunk.transfer == transfer else 0)
        if fits and len(data) == total:
            del self._transfers[sender]
            return answer, bytes(data)
        return answer, None
