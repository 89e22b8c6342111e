"""The state of one node: what the rules in the other files read and change. It decides nothing itself."""

from __future__ import annotations

import enum
from collections.abc import Callable

from ringfence.control.consensus.log import Log
from ringfence.control.consensus.messages import AFTER_APPEND, NOBODY, Message, StorageMessage
from ringfence.control.consensus.options import Options
from ringfence.control.consensus.reads import ReadQueue, ReadState
from ringfence.control.consensus.storage import Storage
from ringfence.control.consensus.trace import Level, Trace
from ringfence.control.consensus.tracker import Tracker

Draw = Callable[[int], int]
"""draw(n): a random number in 0 ..

n - 1. Randomness comes from outside, so that a simulator can repeat it.
"""


class Role(enum.IntEnum):
    """What a node is at its term."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2
    PRE_CANDIDATE = 3


class Core:
    """See the top of the file."""

    __slots__ = (
        "after_append",
        "draw",
        "election_elapsed_ticks",
        "election_timeout_ticks",
        "heartbeat_elapsed_ticks",
        "id",
        "lead",
        "log",
        "messages",
        "options",
        "pending_change_index",
        "read_states",
        "reads",
        "role",
        "snapshot_wanted",
        "storage_full",
        "term",
        "trace",
        "tracker",
        "transferee",
        "uncommitted_bytes",
        "vote",
    )

    def __init__(self, options: Options, storage: Storage, draw: Draw, trace: Trace) -> None:
        self.options, self.id = options, options.id
        self.draw, self.trace = draw, trace
        self.log = Log(storage, trace, options.committed_bytes_per_ready_max)
        self.tracker = Tracker(options.inflight_messages_max, options.inflight_bytes_max)
        self.role = Role.FOLLOWER
        self.term = 0
        self.vote = NOBODY
        self.lead = NOBODY
        self.transferee = NOBODY
        """To whom leadership is being handed over."""
        self.pending_change_index = 0
        """No change of the configuration is taken until this index is applied."""
        self.uncommitted_bytes = 0
        self.election_elapsed_ticks = self.heartbeat_elapsed_ticks = 0
        self.election_timeout_ticks = 0
        """Drawn anew at each reset, so that candidates seldom meet (Raft paper, 5.2)."""
        self.reads = ReadQueue(options.pending_reads_max)
        self.messages: list[Message] = []
        """May leave at once."""
        self.after_append: list[Message] = []
        """May leave once all that is unstable now is durable; some are to this node itself."""
        self.snapshot_wanted = False
        """A follower needs a snapshot that storage does not have."""
        self.storage_full = False
        """Nothing is durable here until storage finds space: this node must not lead."""
        self.read_states: list[ReadState] = []

    def say(self, level: Level, text: str) -> None:
        """A line in the trace, with this node's id in front."""
        self.trace(level, f"{self.id:x} {text}")

    def send(self, message: Message | StorageMessage) -> None:
        """Put a message, with sender and term filled in, where it waits for the next Ready."""
        (self.after_append if message.type in AFTER_APPEND else self.messages).append(message)

    def is_promotable(self) -> bool:
        """It may become leader: it is a voter, has all of its log, and space for more."""
        progress = self.tracker.progress.get(self.id)
        if progress is None or progress.is_learner or self.storage_full:
            return False
        return self.log.unstable.snapshot is None
