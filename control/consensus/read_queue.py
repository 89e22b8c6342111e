"""Queue linearizable reads at the leader until a quorum has confirmed them.

For each read the leader notes its commit index and sends a heartbeat with a token that only grows. A quorum
of answers to that token, or a later one, proves that no other leader had committed an entry when the read
arrived. A read at the noted index is then linearizable (Raft thesis, 6.4). Confirmation uses the arithmetic
of commits: the greatest token that a majority has answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct


class ReadState(Struct, frozen=True):
    """The state at `index`, once applied, answers the read with this `context`."""

    index: int
    context: bytes


class PendingRead(Struct, frozen=True):
    """A waiting read; `requester` is the node that sent it."""

    token: int
    index: int
    requester: int
    context: bytes


class ReadQueue:
    """Reads of one leader's term, oldest first."""

    __slots__ = ("_acknowledged", "_confirming", "_count_max", "_token", "_waiting")

    def __init__(self, count_max: int) -> None:
        """At most `count_max` reads wait."""
        self._count_max = count_max
        self._token = 0
        self._acknowledged: dict[int, int] = {}
        self._confirming: deque[PendingRead] = deque()
        self._waiting: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._confirming) + len(self._waiting)

    def frozen(self) -> dict[str, Any]:
        """The queue as values, for `consensus.frozen`."""
        return {
            "read_token": self._token,
            "reads_acknowledged": dict(self._acknowledged),
            "reads_confirming": tuple(self._confirming),
            "reads_waiting": tuple(self._waiting),
        }

    @classmethod
    def thawed(
        cls,
        count_max: int,
        token: int,
        acknowledged: Mapping[int, int],
        confirming: deque[PendingRead],
        waiting: deque[tuple[int, bytes]],
    ) -> ReadQueue:
        """Restore the queue from values of `consensus.frozen`."""
        queue = cls(count_max)
        queue._token, queue._acknowledged = token, dict(acknowledged)
        queue._confirming, queue._waiting = confirming, waiting
        return queue

    def is_full(self) -> bool:
        return len(self) >= self._count_max

    def clear(self) -> None:
        """Drop all reads and answers, because the term has changed. Tokens still only grow."""
        self._acknowledged.clear()
        self._confirming.clear()
        self._waiting.clear()

    def wait(self, requester: int, context: bytes) -> None:
        """Queue a read that arrived before the leader had committed an entry of its term."""
        self._waiting.append((requester, context))

    def take_waiting(self) -> list[tuple[int, bytes]]:
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def add(self, index: int, requester: int, context: bytes) -> None:
        """Queue a read at `index` under a new token."""
        self._token += 1
        self._confirming.append(PendingRead(self._token, index, requester, context))

    def token(self) -> bytes:
        """The context of a heartbeat: the newest token, or empty if no read waits."""
        return self._token.to_bytes(8, "little") if self._confirming else b""

    def acknowledge(self, peer: int, token: bytes) -> None:
        """Note that `peer` answered a heartbeat. A token that was never sent does not count."""
        number = int.from_bytes(token[:8], "little")
        if number <= self._token:
            self._acknowledged[peer] = max(number, self._acknowledged.get(peer, 0))

    def confirmed(self, own_id: int, committed_of: Callable[[Mapping[int, int]], int]) -> list[PendingRead]:
        """Remove and return the reads that a quorum has confirmed; the leader counts as confirmed."""
        if not self._confirming:
            return []
        token = committed_of({**self._acknowledged, own_id: self._token})
        done = []
        while self._confirming and self._confirming[0].token <= token:
            done.append(self._confirming.popleft())
        return done
