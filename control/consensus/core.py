"""Hold the state of one node. The rules in the other files read and change it."""

from __future__ import annotations

import enum
from collections.abc import Callable

from ringfence.control.consensus.log import Log
from ringfence.control.consensus.messages import AFTER_APPEND, NOBODY, Message, StorageMessage
from ringfence.control.consensus.options import Options
from ringfence.control.consensus.read_queue import ReadQueue, ReadState
from ringfence.control.consensus.storage import Storage
from ringfence.control.consensus.trace import Level, Trace
from ringfence.control.consensus.tracker import Tracker

# draw(n): a random number in 0 .. n - 1. Randomness comes from outside, so that a simulator can repeat it.
Draw = Callable[[int], int]


class Role(enum.IntEnum):
    """The role of a node at its term."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2
    PRE_CANDIDATE = 3


class Core:
    """The state of one node; only the rules change it."""

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
        # The target of a transfer of leadership; NOBODY without one.
        self.transferee = NOBODY
        # The leader accepts no change of the configuration until this index is applied.
        self.pending_change_index = 0
        self.uncommitted_bytes = 0
        self.election_elapsed_ticks = self.heartbeat_elapsed_ticks = 0
        # Drawn again at each reset, so that elections seldom collide (Raft paper, 5.2).
        self.election_timeout_ticks = 0
        self.reads = ReadQueue(options.pending_reads_max)
        # Messages that may leave immediately.
        self.messages: list[Message] = []
        # Messages that may leave once the present unstable tail is durable; some are to this node itself.
        self.after_append: list[Message] = []
        # A follower needs a snapshot that storage does not have.
        self.snapshot_wanted = False
        # The disk is full: nothing becomes durable here, so this node must not lead.
        self.storage_full = False
        self.read_states: list[ReadState] = []

    def say(self, level: Level, text: str) -> None:
        """Write a line to the trace, with this node's id as prefix."""
        self.trace(level, f"{self.id:x} {text}")

    def send(self, message: Message | StorageMessage) -> None:
        """Queue a message, complete with sender and term, for the next Ready."""
        (self.after_append if message.type in AFTER_APPEND else self.messages).append(message)

    def is_promotable(self) -> bool:
        """Whether the node may become leader: a voter with disk space and no snapshot to install."""
        progress = self.tracker.progress.get(self.id)
        if progress is None or progress.is_learner or self.storage_full:
            return False
        return self.log.unstable.snapshot is None
