"""Define the options of a node. Times are in ticks, of a length that the driver chooses."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from ringfence.control.consensus.errors import OptionsError

UNLIMITED: Final = (1 << 63) - 1


class ReadMode(enum.IntEnum):
    """The check of leadership before a leader answers a read."""

    # The leader asks a quorum.
    SAFE = 0
    # The leader trusts its check-quorum lease, and thereby clocks. Not linearizable if a clock is slow.
    LEASE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The defaults are for production. Sizes are in bytes; entries count by `messages.size_bytes`."""

    id: int
    # A follower without a message for [election_ticks, 2 * election_ticks) campaigns. Equal on all nodes: a
    # much quicker node that cannot be elected would interrupt the others again and again.
    election_ticks: int = 10
    heartbeat_ticks: int = 1
    # Entries of one append message, but at least one; within the limit of a control body.
    message_bytes_max: int = 1 << 20
    # Unacknowledged append messages to one follower: 25,000 messages a second at a round trip of 10 ms.
    inflight_messages_max: int = 256
    # The same in bytes; 0 = no limit.
    inflight_bytes_max: int = 64 << 20
    # Proposed data that is not yet applied; above it proposals are dropped. One entry always fits.
    uncommitted_bytes_max: int = 64 << 20
    # Entries handed out for applying that are not yet applied; at least one is handed out.
    committed_bytes_per_ready_max: int = 16 << 20
    # A follower that was sent a snapshot and has not answered for this time is probed again, because message
    # or report may be lost; 0 = never. Above the time that a large snapshot takes.
    snapshot_timeout_ticks: int = 600
    # Reads that wait for a quorum at the leader; further ones are dropped. 4096 x ~200 bytes.
    pending_reads_max: int = 4096
    # Pre-vote before a new term, so that a node that was partitioned deposes no leader on its return.
    pre_vote: bool = True
    # A leader without a quorum steps down; a node with a live leader ignores candidates.
    check_quorum: bool = True
    read_mode: ReadMode = ReadMode.SAFE
    forward_proposals: bool = True
    # The leader turns a change that cannot be applied into an empty entry.
    validate_changes: bool = True
    step_down_on_removal: bool = True
    # A node that refuses a vote, or answers a pre-vote, reports its commit index; a non-voter asks for it.
    # Without this a cluster can block forever, because changes take effect when they are applied: a voter of
    # the new configuration that does not know the commit asks the voters of the old one. These may have a
    # longer log and know that they are removed. TiKV's raft has the option (raft-rs, `maybe_commit_by_vote`),
    # etcd's has not. A non-voter asks if its log has a change that is not known to be committed and no leader
    # sends messages: the change may make this node the only voter.
    commit_by_vote: bool = True
    async_storage_writes: bool = False
    # With asynchronous writes, vote requests wait until the log that they claim is durable. etcd's do not: a
    # crash may then elect a node that has lost entries which it acknowledged before the crash.
    campaign_after_append: bool = True

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value}, must be at least {least}"
            for name, value, least in (
                ("id", self.id, 1),
                ("heartbeat_ticks", self.heartbeat_ticks, 1),
                ("inflight_messages_max", self.inflight_messages_max, 1),
                ("pending_reads_max", self.pending_reads_max, 1),
                ("snapshot_timeout_ticks", self.snapshot_timeout_ticks, 0),
                ("message_bytes_max", self.message_bytes_max, 0),
                ("inflight_bytes_max", self.inflight_bytes_max, 0),
                ("uncommitted_bytes_max", self.uncommitted_bytes_max, 0),
                ("committed_bytes_per_ready_max", self.committed_bytes_per_ready_max, 1),
            )
            if value < least
        ]
        if self.election_ticks <= self.heartbeat_ticks:
            problems.append(
                f"election_ticks is {self.election_ticks}, must be above heartbeat_ticks "
                f"{self.heartbeat_ticks}"
            )
        if self.inflight_bytes_max and self.inflight_bytes_max < self.message_bytes_max:
            problems.append(
                f"inflight_bytes_max is {self.inflight_bytes_max}, must hold one message of "
                f"{self.message_bytes_max}"
            )
        if self.read_mode is ReadMode.LEASE and not self.check_quorum:
            problems.append("read_mode LEASE needs check_quorum, whose lease it trusts")
        if problems:
            raise OptionsError("; ".join(problems))
