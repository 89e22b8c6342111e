"""Transfer leadership: bring the target up to date, then tell it to campaign (Raft thesis, 3.10)."""

from __future__ import annotations

from ringfence.control.consensus import quorum, replication
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import NOBODY, Message, MessageType
from ringfence.control.consensus.progress import Progress
from ringfence.control.consensus.quorum import VoteResult
from ringfence.control.consensus.trace import Level


def start(core: Core, to: int, progress: Progress) -> None:
    """Transfer to `to`, until it leads or an election timeout passes; proposals are refused meanwhile."""
    if progress.is_learner:
        core.say(Level.DEBUG, "is learner. Ignored transferring leadership")
        return
    if core.transferee == to:
        core.say(
            Level.INFO,
            f"[term {core.term}] transfer leadership to {to:x} is in progress, ignores request to same node "
            f"{to:x}",
        )
        return
    if core.transferee != NOBODY:
        core.say(
            Level.INFO, f"[term {core.term}] abort previous transferring leadership to {core.transferee:x}"
        )
        core.transferee = NOBODY
    if to == core.id:
        core.say(Level.DEBUG, "is already leader. Ignored transferring leadership to self")
        return
    core.say(Level.INFO, f"[term {core.term}] starts to transfer leadership to {to:x}")
    core.election_elapsed_ticks = 0
    core.transferee = to
    if progress.match == core.log.last_index():
        send_timeout_now(core, to)
        core.say(
            Level.INFO, f"sends MsgTimeoutNow to {to:x} immediately as {to:x} already has up-to-date log"
        )
    else:
        replication.send_append(core, to)


def on_space(core: Core, *, full: bool) -> None:
    """Handle a full disk, or free space again: a node without space must not lead."""
    core.storage_full = full
    if full and core.role is Role.LEADER and core.transferee == NOBODY:
        _give_up(core)


def _give_up(core: Core) -> None:
    """Transfer to the voter with the longest matching log.

    The leader stays while the active voters are no majority without it: none of them could be elected, and
    the cluster would have no leader at all.
    """
    configuration = core.tracker.configuration
    heard = {
        member: progress
        for member, progress in core.tracker.progress.items()
        if member != core.id and member in configuration.voters and progress.recent_active
    }
    votes = {voter: voter in heard for voter in configuration.voters}
    if quorum.joint_vote(configuration.incoming, configuration.outgoing, votes) is not VoteResult.WON:
        core.say(Level.WARN, "its storage is full, and it leads on: the active others are no majority")
        return
    heirs = [member for member in sorted(heard) if member in configuration.incoming]
    best = max(heirs, key=lambda member: heard[member].match)
    start(core, best, heard[best])


def on_match(core: Core, peer: int, progress: Progress) -> None:
    """Tell a follower that has caught up to campaign, if it is the target."""
    if peer == core.transferee and progress.match == core.log.last_index():
        core.say(Level.INFO, f"sent MsgTimeoutNow to {peer:x} after received MsgAppResp")
        send_timeout_now(core, peer)


def send_timeout_now(core: Core, to: int) -> None:
    core.send(Message(type=MessageType.TIMEOUT_NOW, to=to, sender=core.id, term=core.term))
