"""How a node behaves. Times are in ticks; the driver decides how long a tick is."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from ringfence.control.consensus.errors import OptionsError

UNLIMITED: Final = (1 << 63) - 1


class ReadMode(enum.IntEnum):
    """How a leader makes sure that it still leads before it answers a read."""

    SAFE = 0
    """It asks a quorum."""
    LEASE = 1
    """It trusts its check-quorum lease, and so the clocks. Not linearizable when a clock runs slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The defaults are for production. Sizes are in bytes, by `messages.size_bytes` where entries count."""

    id: int
    election_ticks: int = 10
    """A follower that hears nothing for [election_ticks, 2 * election_ticks) campaigns.

    Equal on all nodes: one that is much quicker than the others, and may not lead, would always interrupt
    them.
    """
    heartbeat_ticks: int = 1
    message_bytes_max: int = 1 << 20
    """Entries of one append message; at least one entry travels. A control body's limit."""
    inflight_messages_max: int = 256
    """Append messages under way to one follower: a round trip of 10 ms at 25,000 messages a second."""
    inflight_bytes_max: int = 64 << 20
    """The same in bytes; 0 = no limit."""
    uncommitted_bytes_max: int = 64 << 20
    """Data a leader takes that is not yet applied; beyond it proposals are dropped. One entry always fits."""
    committed_bytes_per_ready_max: int = 16 << 20
    """Entries handed out for applying that are not yet applied; at least one is handed out."""
    snapshot_timeout_ticks: int = 600
    """A follower that gets a snapshot and shows no sign of it for so long is probed again; 0 = never.

    Message or report may be lost. Above the time that a large snapshot takes.
    """
    pending_reads_max: int = 4096
    """Reads that wait for a quorum at the leader; beyond it they are dropped. 4096 x ~200 bytes."""
    pre_vote: bool = True
    """Ask before raising the term: a node that was cut off does not depose a leader when it returns."""
    check_quorum: bool = True
    """A leader without a quorum steps down; a node that hears from a leader ignores candidates."""
    read_mode: ReadMode = ReadMode.SAFE
    forward_proposals: bool = True
    validate_changes: bool = True
    """The leader turns a change that cannot be applied into an empty entry."""
    step_down_on_removal: bool = True
    commit_by_vote: bool = True
    """Who refuses a vote, or answers a pre-vote, tells how far the log is committed; who is no voter asks.

    Without it a cluster can be stuck for ever: changes take effect when they are applied, so a voter of the
    new configuration that does not know that it is committed asks for votes of the old one, whose members may
    hold a longer log and know that they are out. TiKV's raft does so (raft-rs, `maybe_commit_by_vote`),
    etcd's does not. A node that is no voter yet asks when its log holds a change that it does not know to be
    committed and no leader is heard: it may be all voters that there are.
    """
    async_storage_writes: bool = False
    campaign_after_append: bool = True
    """With asynchronous writes, vote requests wait for what they claim to be durable. etcd's do not: a crash
    may then elect a node that lost entries that an answer from before the crash vouched for."""

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
