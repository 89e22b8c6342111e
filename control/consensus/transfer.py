"""Handing leadership over.

Bring the other up to date, then tell it to campaign at once (Raft thesis, 3.10).
"""

from __future__ import annotations

from ringfence.control.consensus import replication
from ringfence.control.consensus.core import Core
from ringfence.control.consensus.messages import NOBODY, Message, MessageType
from ringfence.control.consensus.progress import Progress
from ringfence.control.consensus.trace import Level


def start(core: Core, to: int, progress: Progress) -> None:
    """Hand over to `to`, until it leads or an election time-out is over; proposals are refused meanwhile."""
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


def on_match(core: Core, peer: int, progress: Progress) -> None:
    """A follower has caught up; if leadership goes to it, it can campaign now."""
    if peer == core.transferee and progress.match == core.log.last_index():
        core.say(Level.INFO, f"sent MsgTimeoutNow to {peer:x} after received MsgAppResp")
        send_timeout_now(core, peer)


def send_timeout_now(core: Core, to: int) -> None:
    core.send(Message(type=MessageType.TIMEOUT_NOW, to=to, sender=core.id, term=core.term))
