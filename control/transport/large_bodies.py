"""Large bodies on their way out: at most one to each peer, piece by piece, given up when a peer is silent."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable
from typing import Final

from ringfence.control.transport.body_chunks import CHUNK_BYTES, Chunk, ChunkAnswer, encode

SILENCE_S: Final = 1.0
"""A piece without an answer is sent again after this time."""
TRIES_MAX: Final = 5
"""Tries of one piece; then the peer is taken for gone, and consensus begins anew when it is back."""


class LargeBodies:
    """Sends bodies; `send_chunk(peer, bytes)` puts one piece on its way."""

    def __init__(self, send_chunk: Callable[[int, bytes], object]) -> None:
        self._send_chunk = send_chunk
        self._transfers = itertools.count(secrets.randbits(48))  # other ones than before a restart
        self._under_way: dict[int, tuple[int, asyncio.Queue[int]]] = {}

    def is_busy(self, peer: int) -> bool:
        return peer in self._under_way

    def answered(self, peer: int, answer: ChunkAnswer) -> None:
        transfer, progress = self._under_way.get(peer, (0, None))
        if progress is not None and transfer == answer.transfer and not progress.full():
            progress.put_nowait(answer.received)

    async def send(self, peer: int, body: bytes) -> bool:
        """Send a body; whether all of it has arrived. Called when no other is under way to this peer."""
        assert peer not in self._under_way, f"a body is under way to node {peer}"
        transfer, start = next(self._transfers), 0
        progress: asyncio.Queue[int] = asyncio.Queue(maxsize=TRIES_MAX)
        self._under_way[peer] = (transfer, progress)
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
            del self._under_way[peer]
