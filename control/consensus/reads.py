"""Linearizable reads at the leader: which of them a quorum has confirmed.

A leader that is asked for a read notes its commit index and sends a heartbeat with a token that only grows.
Once a quorum has answered that token or a later one, no other leader can have committed anything before the
question came, so the noted index is safe to read at (Raft thesis, 6.4). Confirming is the same arithmetic as
committing: the greatest token that a majority has answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct


class ReadState(Struct, frozen=True):
    """The state at `index`, once applied, answers the read that was asked with `context`."""

    index: int
    context: bytes


class PendingRead(Struct, frozen=True):
    """A read that waits; `requester` is the node that asked."""

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
        """All of it as values, for `consensus.frozen`."""
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
        """What `frozen` told of."""
        queue = cls(count_max)
        queue._token, queue._acknowledged = token, dict(acknowledged)
        queue._confirming, queue._waiting = confirming, waiting
        return queue

    def is_full(self) -> bool:
        return len(self) >= self._count_max

    def clear(self) -> None:
        """Another term: nothing that was asked or answered counts any more. Tokens still only grow."""
        self._acknowledged.clear()
        self._confirming.clear()
        self._waiting.clear()

    def wait(self, requester: int, context: bytes) -> None:
        """A read that came before the leader had committed anything in its term."""
        self._waiting.append((requester, context))

    def take_waiting(self) -> list[tuple[int, bytes]]:
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def add(self, index: int, requester: int, context: bytes) -> None:
        """A read at `index`, to be confirmed under a new token."""
        self._token += 1
        self._confirming.append(PendingRead(self._token, index, requester, context))

    def token(self) -> bytes:
        """What a heartbeat carries now: the newest token, or nothing if no read waits for one."""
        return self._token.to_bytes(8, "little") if self._confirming else b""

    def acknowledge(self, peer: int, token: bytes) -> None:
        """`peer` answered a heartbeat. A token that was never sent does not count."""
        number = int.from_bytes(token[:8], "little")
        if number <= self._token:
            self._acknowledged[peer] = max(number, self._acknowledged.get(peer, 0))

    def confirmed(self, own_id: int, committed_of: Callable[[Mapping[int, int]], int]) -> list[PendingRead]:
        """Take the reads that a quorum has confirmed; the leader itself always agrees."""
        if not self._confirming:
            return []
        token = committed_of({**self._acknowledged, own_id: self._token})
        done = []
        while self._confirming and self._confirming[0].token <= token:
            done.append(self._confirming.popleft())
        return done
