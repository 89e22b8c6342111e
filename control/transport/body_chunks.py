"""A large body in pieces, one after the other: the sender goes on when the receiver says how much it has.

One transfer from each sender at a time; a new one replaces the one before. What has come is bounded by
TRANSFER_BYTES_MAX for each sender, of which there are as many as may send snapshots: one leader.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

CHUNK_BYTES: Final = 256 << 10
"""A piece; at 1 ms a round trip 256 MB/s, and no heartbeat waits longer than for one piece."""
TRANSFER_BYTES_MAX: Final = 256 << 20
"""The state of 1,000 nodes and 100,000 partitions has less than 100 MB."""
SENDERS_MAX: Final = 4
"""Senders whose pieces are kept: the leader, and those who were a moment ago."""

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Chunk(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`transfer` is new for each body."""

    transfer: Number
    start: Number
    total: Annotated[int, Meta(ge=1, le=TRANSFER_BYTES_MAX)]
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES)]


class ChunkAnswer(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`received` bytes of the transfer are there; the next piece begins at that."""

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
    """Bodies that are coming in."""

    def __init__(self) -> None:
        self._coming: dict[int, tuple[int, int, bytearray]] = {}

    def take(self, sender: int, chunk: Chunk) -> tuple[ChunkAnswer, bytes | None]:
        """What to answer, and the body once it is whole. A piece that does not fit is answered, not kept."""
        transfer, total, data = self._coming.get(sender, (-1, 0, bytearray()))
        if chunk.start == 0 and chunk.transfer != transfer:
            self._coming.pop(sender, None)
            while len(self._coming) >= SENDERS_MAX:
                del self._coming[next(iter(self._coming))]
            transfer, total, data = chunk.transfer, chunk.total, bytearray()
            self._coming[sender] = (transfer, total, data)
        fits = (
            (chunk.transfer, chunk.total) == (transfer, total)
            and chunk.start == len(data)
            and len(data) + len(chunk.data) <= total
        )
        if fits:
            data += chunk.data
        answer = ChunkAnswer(chunk.transfer, len(data) if chunk.transfer == transfer else 0)
        if fits and len(data) == total:
            del self._coming[sender]
            return answer, bytes(data)
        return answer, None
