"""Track the unacknowledged append messages to one follower, oldest first, within count and bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Window:
    """A queue of (last index of a message, its bytes). An acknowledged index frees all up to it."""

    __slots__ = ("_messages", "bytes_max", "size_bytes", "size_max")

    def __init__(self, size_max: int, bytes_max: int = 0) -> None:
        """At most `size_max` messages, of together `bytes_max` bytes (0 = no limit.

        The last may exceed it).
        """
        self.size_max, self.bytes_max = size_max, bytes_max
        self.size_bytes = 0
        self._messages: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def messages(self) -> tuple[tuple[int, int], ...]:
        """All unacknowledged messages: (last index, bytes), oldest first."""
        return tuple(self._messages)

    def restore(self, messages: Iterable[tuple[int, int]]) -> None:
        """Restore the window from `messages` of another one."""
        self._messages = deque(messages)
        self.size_bytes = sum(size for _, size in self._messages)

    def full(self) -> bool:
        return len(self._messages) >= self.size_max or (0 < self.bytes_max <= self.size_bytes)

    def add(self, last_index: int, message_bytes: int = 0) -> None:
        """Add a sent message. The window must not be full."""
        assert not self.full(), (
            f"{len(self)} messages of {self.size_bytes} bytes are unacknowledged: the window is full"
        )
        self._messages.append((last_index, message_bytes))
        self.size_bytes += message_bytes

    def free_up_to(self, index: int) -> None:
        """Remove the messages that end at or below `index`."""
        messages = self._messages
        while messages and messages[0][0] <= index:
            self.size_bytes -= messages.popleft()[1]

    def clear(self) -> None:
        self._messages.clear()
        self.size_bytes = 0
