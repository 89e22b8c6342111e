"""Send large bodies chunk by chunk: at most one to each peer, aborted if the peer stays silent."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from typing import Final

from ringfence.control.transport.body_chunks import CHUNK_BYTES, Chunk, ChunkAnswer, encode

# A chunk without an answer is sent again after this time.
SILENCE_S: Final = 1.0
# Tries of one chunk. Then the transfer fails, and consensus starts a new one once the peer answers again.
TRIES_MAX: Final = 5


class LargeBodies:
    """Sends bodies; `send_chunk(peer, bytes)` sends one encoded chunk."""

    def __init__(self, send_chunk: Callable[[int, bytes], object]) -> None:
        self._send_chunk = send_chunk
        # A random first number: transfers after a restart must have other numbers.
        self._numbers = itertools.count(secrets.randbits(48))
        # By peer: the number of the transfer, and acknowledged bytes for `send`.
        self._transfers: dict[int, tuple[int, asyncio.Queue[int]]] = {}

    def is_busy(self, peer: int) -> bool:
        return peer in self._transfers

    def acknowledge(self, peer: int, answer: ChunkAnswer) -> None:
        transfer, progress = self._transfers.get(peer, (0, None))
        if progress is not None and transfer == answer.transfer and not progress.full():
            progress.put_nowait(answer.received)

    async def send(self, peer: int, body: bytes) -> bool:
        """Send a body, and return whether all of it has arrived. The peer must have no other transfer."""
        assert peer not in self._transfers, f"node {peer} has a transfer already"
        transfer, start = next(self._numbers), 0
        progress: asyncio.Queue[int] = asyncio.Queue(maxsize=TRIES_MAX)
        self._transfers[peer] = (transfer, progress)
        try:
            tries = 0
            while start < len(body) and tries < TRIES_MAX:
                data = body[start : start + CHUNK_BYTES]
                self._send_chunk(peer, encode(Chunk(transfer, start, len(body), data)))
                try:
                    received = await asyncio.wait_for(progress.get(), SILENCE_S)
                except TimeoutError:
                    received = start
                tries = 0 if received > start else tries + 1
                start = max(start, min(received, len(body)))
            return start >= len(body)
        finally:
            del self._transfers[peer]
