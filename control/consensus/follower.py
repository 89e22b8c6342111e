"""Handle ticks and messages as a follower or a candidate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from ringfence.control.consensus import describe, election, follower_log, linearizable_reads, roles
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.election import Campaign
from ringfence.control.consensus.errors import ProposalDroppedError
from ringfence.control.consensus.messages import NOBODY, Message, MessageType
from ringfence.control.consensus.options import ReadMode
from ringfence.control.consensus.trace import Level

_OF_A_LEADER: Final[dict[MessageType, Callable[[Core, Message], None]]] = {
    MessageType.APPEND: follower_log.on_append,
    MessageType.HEARTBEAT: follower_log.on_heartbeat,
    MessageType.SNAPSHOT: follower_log.on_snapshot,
}
_ANSWER_OF: Final = {Role.CANDIDATE: MessageType.VOTE_ANSWER, Role.PRE_CANDIDATE: MessageType.PRE_VOTE_ANSWER}


def on_tick(core: Core) -> None:
    """Campaign after the drawn time without a leader's message; a node that is no voter asks for commits."""
    core.election_elapsed_ticks += 1
    if core.election_elapsed_ticks < core.election_timeout_ticks:
        return
    if core.is_promotable():
        core.election_elapsed_ticks = 0
        election.start(core, Campaign.PRE_ELECTION if core.options.pre_vote else Campaign.ELECTION)
    elif core.election_elapsed_ticks % core.election_timeout_ticks == 0:
        election.ask_how_far(core)


def step(core: Core, message: Message) -> None:
    """Handle a message to a follower, of its term or without a term. Messages without a rule have no effect.

    Raises:
        ProposalDroppedError, ReadDroppedError: no leader is known.
        LogLostError: see `errors`.
    """
    match message.type:
        case MessageType.APPEND | MessageType.HEARTBEAT | MessageType.SNAPSHOT:
            core.election_elapsed_ticks = 0
            core.lead = message.sender
            _OF_A_LEADER[message.type](core, message)
        case MessageType.PROPOSE:
            _forward_proposal(core, message)
        case MessageType.TRANSFER:
            if core.lead == NOBODY:
                core.say(Level.INFO, f"no leader at term {core.term}; dropping leader transfer msg")
            else:
                core.send(replace(message, to=core.lead, term=core.term))
        case MessageType.FORGET_LEADER:
            _forget_leader(core)
        case MessageType.TIMEOUT_NOW:
            core.say(
                Level.INFO,
                f"[term {core.term}] received MsgTimeoutNow from {message.sender:x} and starts an election "
                "to "
                "get leadership.",
            )
            # No pre-vote, even if it is on: the leader is alive and has requested the election.
            election.start(core, Campaign.TRANSFER)
        case MessageType.READ_INDEX:
            linearizable_reads.ask_leader(core, message)
        case MessageType.READ_INDEX_ANSWER:
            linearizable_reads.on_answer(core, message)
        case MessageType.PRE_VOTE_ANSWER:
            election.on_told(core, message)


def step_candidate(core: Core, message: Message) -> None:
    """Handle a message to a candidate or pre-candidate, of its term or without a term.

    Raises:
        ProposalDroppedError, ReadDroppedError: there is no leader.
    """
    match message.type:
        case MessageType.PROPOSE:
            _drop_proposal(core)
        case MessageType.READ_INDEX:
            linearizable_reads.ask_leader(core, message)
        case MessageType.APPEND | MessageType.HEARTBEAT | MessageType.SNAPSHOT:
            # A leader's message of this term: another candidate was elected.
            roles.become_follower(core, message.term, message.sender)
            _OF_A_LEADER[message.type](core, message)
        case MessageType.TIMEOUT_NOW:
            core.say(
                Level.DEBUG,
                f"[term {core.term} state {describe.role(core.role)}] ignored MsgTimeoutNow from "
                f"{message.sender:x}",
            )
        case kind if kind is _ANSWER_OF[core.role]:
            election.on_answer(core, message)


def _drop_proposal(core: Core) -> None:
    core.say(Level.INFO, f"no leader at term {core.term}; dropping proposal")
    raise ProposalDroppedError(f"node {core.id} knows no leader at term {core.term}; propose again later")


def _forward_proposal(core: Core, message: Message) -> None:
    if core.lead == NOBODY:
        _drop_proposal(core)
    if not core.options.forward_proposals:
        core.say(Level.INFO, f"not forwarding to leader {core.lead:x} at term {core.term}; dropping proposal")
        raise ProposalDroppedError(f"node {core.id} does not forward; propose at the leader, {core.lead}")
    core.send(replace(message, to=core.lead, sender=message.sender or core.id))


def _forget_leader(core: Core) -> None:
    if core.options.read_mode is ReadMode.LEASE:
        core.trace(Level.ERROR, "ignoring MsgForgetLeader due to ReadOnlyLeaseBased")
    elif core.lead != NOBODY:
        core.say(Level.INFO, f"forgetting leader {core.lead:x} at term {core.term}")
        core.lead = NOBODY
