"""Track one follower's log at the leader, and decide whether the leader may send to the follower now.

    PROBE      one append a heartbeat until the follower's log is found        next may be too high
    REPLICATE  appends without waiting, up to a window                         next is optimistic
    SNAPSHOT   only heartbeats until the snapshot has arrived

    PROBE -> REPLICATE: an append was accepted.   REPLICATE -> PROBE: one was rejected, or lost.
    PROBE -> SNAPSHOT: the entries that it needs are compacted.
    SNAPSHOT -> PROBE -> REPLICATE: it has caught up with the leader's log.

Invariant: match < next, but for a new progress where both may be 0.
"""

from __future__ import annotations

import enum

from ringfence.control.consensus.window import Window


class ProgressState(enum.IntEnum):
    """The state of replication to one follower."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


class Progress:
    """One follower, from the leader's view."""

    __slots__ = (
        "is_learner",
        "match",
        "next",
        "pause",
        "pending_snapshot",
        "recent_active",
        "sent_commit",
        "snapshot_ticks",
        "state",
        "window",
    )

    def __init__(self, *, next_index: int, window: Window, match: int = 0, is_learner: bool = False) -> None:
        self.state = ProgressState.PROBE
        self.match = match
        self.next = next_index
        # The highest commit index that was sent to the follower; the message may be lost.
        self.sent_commit = 0
        self.pending_snapshot = 0
        # Ticks since the follower entered SNAPSHOT.
        self.snapshot_ticks = 0
        # The follower has sent a message since the last check of the quorum.
        self.recent_active = False
        # No more appends until the follower answers.
        self.pause = False
        self.window = window
        self.is_learner = is_learner

    def copy(self) -> Progress:
        """A copy, for a change that may still be refused. The window is shared."""
        twin = Progress(
            next_index=self.next, window=self.window, match=self.match, is_learner=self.is_learner
        )
        twin.state, twin.sent_commit = self.state, self.sent_commit
        twin.pending_snapshot, twin.recent_active, twin.pause = (
            self.pending_snapshot,
            self.recent_active,
            self.pause,
        )
        return twin

    def is_paused(self) -> bool:
        return self.pause or self.state is ProgressState.SNAPSHOT

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.pause = False
        self.pending_snapshot = self.snapshot_ticks = 0
        self.window.clear()

    def become_probe(self) -> None:
        # A sent snapshot is assumed to have arrived; otherwise the first rejection corrects `next`.
        beyond = self.pending_snapshot if self.state is ProgressState.SNAPSHOT else 0
        self._enter(ProgressState.PROBE)
        self.next = max(self.match, beyond) + 1
        self.sent_commit = min(self.sent_commit, self.next - 1)

    def become_replicate(self) -> None:
        self._enter(ProgressState.REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        self._enter(ProgressState.SNAPSHOT)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def sent(self, entry_count: int, message_bytes: int) -> None:
        """Note that an append with this many entries was sent."""
        if self.state is ProgressState.REPLICATE:
            if entry_count:
                self.next += entry_count
                self.window.add(self.next - 1, message_bytes)
            self.pause = self.window.full()
        elif entry_count:
            assert self.state is ProgressState.PROBE, "an append while a snapshot is being sent"
            self.pause = True

    def may_tell_commit(self, commit: int) -> bool:
        """Whether an append would bring the follower a commit index that is new and useful to it."""
        return commit > self.sent_commit and self.sent_commit < self.next - 1

    def maybe_update(self, index: int) -> bool:
        """Note that the follower has the log up to `index`; False if that is not new."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        self.pause = False
        return True

    def maybe_decrease(self, rejected: int, guess: int) -> bool:
        """Note a refused append after `rejected`; `guess` may match. False if the answer is outdated."""
        if self.state is ProgressState.REPLICATE:
            if rejected <= self.match:
                return False
            self.next = self.match + 1
        elif rejected != self.next - 1:
            return False
        else:
            self.next = max(min(rejected, guess + 1), self.match + 1)
            self.pause = False
        self.sent_commit = min(self.sent_commit, self.next - 1)
        return True
