"""Compare a message's term with the node's before any other rule.

A newer term makes any node a follower; a message of an older term is refused. Then the rules of elections,
storage and the role handle the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringfence.control.consensus import applying, describe, election, follower, leader, roles
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.election import TRANSFER_MARK, Campaign
from ringfence.control.consensus.messages import NOBODY, Message, MessageType
from ringfence.control.consensus.trace import Level

_BY_ROLE: Final[dict[Role, Callable[[Core, Message], None]]] = {
    Role.FOLLOWER: follower.step,
    Role.CANDIDATE: follower.step_candidate,
    Role.PRE_CANDIDATE: follower.step_candidate,
    Role.LEADER: leader.step,
}
_REQUESTS: Final = frozenset({MessageType.VOTE, MessageType.PRE_VOTE})
_OF_A_LEADER: Final = frozenset({MessageType.APPEND, MessageType.HEARTBEAT, MessageType.SNAPSHOT})


def step(core: Core, message: Message) -> None:
    """Handle one message, of another node or of this one.

    Raises:
        ConsensusError: the message was refused; see `errors`.
    """
    if message.term > core.term:
        if not _admit_newer(core, message):
            return
    elif 0 < message.term < core.term:
        _on_older(core, message)
        return
    match message.type:
        case MessageType.HUP:
            election.start(core, Campaign.PRE_ELECTION if core.options.pre_vote else Campaign.ELECTION)
        case MessageType.STORAGE_APPEND_ANSWER:
            if message.index:
                core.log.unstable.confirm(message.index, message.log_term)
            if message.snapshot is not None:
                applying.snapshot_applied(core, message.snapshot)
        case MessageType.STORAGE_APPLY_ANSWER:
            if message.entries:
                applying.entries_applied(core, message.entries)
        case MessageType.VOTE | MessageType.PRE_VOTE:
            election.on_request(core, message)
        case _:
            _BY_ROLE[core.role](core, message)


def _admit_newer(core: Core, message: Message) -> bool:
    """Adopt a newer term, except for pre-votes and under a lease; False if the message is to be ignored."""
    kind = message.type
    if kind in _REQUESTS and message.context != TRANSFER_MARK and _has_lease(core):
        remaining = core.options.election_ticks - core.election_elapsed_ticks
        core.say(
            Level.INFO,
            f"{election.own_position(core)} ignored {describe.type_of(kind)} from {message.sender:x} "
            "[logterm: "
            f"{message.log_term}, index: {message.index}] at term {core.term}: lease is not expired "
            "(remaining "
            f"ticks: {remaining})",
        )
        return False
    if kind is MessageType.PRE_VOTE or (kind is MessageType.PRE_VOTE_ANSWER and not message.reject):
        # No node has that term yet: a pre-vote asks about the next term, and a granted answer repeats it.
        return True
    core.say(
        Level.INFO,
        f"[term: {core.term}] received a {describe.type_of(kind)} message with higher term from "
        f"{message.sender:x} [term: {message.term}]",
    )
    roles.become_follower(core, message.term, message.sender if kind in _OF_A_LEADER else NOBODY)
    return True


def _has_lease(core: Core) -> bool:
    """Whether a leader's message arrived within the least election timeout (thesis, 4.2.3)."""
    return (
        core.options.check_quorum
        and core.lead != NOBODY
        and core.election_elapsed_ticks < core.options.election_ticks
    )


def _on_older(core: Core, message: Message) -> None:
    options, kind = core.options, message.type
    if (options.check_quorum or options.pre_vote) and kind in {MessageType.HEARTBEAT, MessageType.APPEND}:
        # No vote deposes a leader whose followers ignore candidates, or whose candidates ask first. Such a
        # leader must learn of the newer term from this answer; otherwise this node could never follow it.
        core.send(Message(type=MessageType.APPEND_ANSWER, to=message.sender, sender=core.id, term=core.term))
    elif kind is MessageType.PRE_VOTE:
        election.reject(core, message)
    elif kind is MessageType.PRE_VOTE_ANSWER and message.index and core.role is Role.FOLLOWER:
        # A committed entry stays committed in every term.
        election.on_told(core, message)
    elif kind is MessageType.STORAGE_APPEND_ANSWER:
        if message.index:
            # The entries may have been replaced since, and replaced again by entries of equal index and term.
            core.say(
                Level.INFO,
                f"[term: {core.term}] ignored entry appends from a MsgStorageAppendResp message with lower "
                "term "
                f"[term: {message.term}]",
            )
        if message.snapshot is not None:
            # A snapshot includes committed entries only, so its term does not matter.
            applying.snapshot_applied(core, message.snapshot)
    else:
        core.say(
            Level.INFO,
            f"[term: {core.term}] ignored a {describe.type_of(kind)} message with lower term from "
            f"{message.sender:x} [term: {message.term}]",
        )
