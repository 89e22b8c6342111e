"""Campaign, and answer requests for votes.

A node votes once a term, for a candidate whose log is at least as complete as its own. A leader therefore has
every committed entry (Raft paper, 5.4.1). A pre-vote asks the same without a new term. A transfer campaigns
immediately, and nodes with a leader answer its requests too.
"""

from __future__ import annotations

import enum
from typing import Final

from ringfence.control.consensus import describe, replication, roles
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import NOBODY, Message, MessageType
from ringfence.control.consensus.quorum import VoteResult
from ringfence.control.consensus.trace import Level

# Context of a vote request in a transfer: the leader itself asked for the election, so leases do not count.
TRANSFER_MARK: Final = b"CampaignTransfer"
_ANSWER_TO: Final = {
    MessageType.VOTE: MessageType.VOTE_ANSWER,
    MessageType.PRE_VOTE: MessageType.PRE_VOTE_ANSWER,
}


class Campaign(enum.IntEnum):
    """The reason for a campaign."""

    PRE_ELECTION = 0
    ELECTION = 1
    TRANSFER = 2


def start(core: Core, kind: Campaign) -> None:
    """Campaign, if the node may."""
    if core.role is Role.LEADER:
        core.say(Level.DEBUG, "ignoring MsgHup because already leader")
    elif not core.is_promotable():
        core.say(Level.WARN, "is unpromotable and can not campaign")
    elif core.log.has_unapplied_change():
        # The node would count votes by a configuration that is already replaced.
        core.say(
            Level.WARN,
            f"cannot campaign at term {core.term} since there are still pending configuration changes to "
            "apply",
        )
    else:
        core.say(Level.INFO, f"is starting a new election at term {core.term}")
        campaign(core, kind)


def campaign(core: Core, kind: Campaign) -> None:
    """Become candidate or pre-candidate, and ask every voter; the own vote counts once it is durable."""
    if kind is Campaign.PRE_ELECTION:
        roles.become_pre_candidate(core)
        request, term = MessageType.PRE_VOTE, core.term + 1
    else:
        roles.become_candidate(core)
        request, term = MessageType.VOTE, core.term
    index, log_term = core.log.last_index(), core.log.last_term()
    context = TRANSFER_MARK if kind is Campaign.TRANSFER else b""
    for voter in sorted(core.tracker.configuration.voters):
        if voter == core.id:
            core.send(Message(type=_ANSWER_TO[request], to=voter, sender=core.id, term=term))
            continue
        core.say(
            Level.INFO,
            f"[logterm: {log_term}, index: {index}] sent {describe.type_of(request)} request to {voter:x} "
            f"at term {core.term}",
        )
        message = Message(
            type=request, to=voter, sender=core.id, term=term, index=index, log_term=log_term, context=context
        )
        send_request(core, message)


def send_request(core: Core, message: Message) -> None:
    """Send a vote request: immediately, or once the log that it claims is durable."""
    if core.options.async_storage_writes and core.options.campaign_after_append:
        core.after_append.append(message)
    else:
        core.send(message)


def on_request(core: Core, message: Message) -> None:
    """Answer a request for a vote or a pre-vote.

    Learners vote too: they may be voters by an entry that they have not applied yet.
    """
    can_vote = (
        core.vote == message.sender
        or (core.vote == NOBODY and core.lead == NOBODY)
        or (message.type is MessageType.PRE_VOTE and message.term > core.term)
    )
    if not can_vote or not core.log.is_up_to_date(message.index, message.log_term):
        reject(core, message)
        return
    _say_answer(core, message, f"cast {describe.type_of(message.type)} for")
    # The answer has the term of the request: a pre-candidate asks at a term that it does not have yet.
    _answer(
        core,
        message,
        message.term,
        how_far=_how_far(core) if message.type is MessageType.PRE_VOTE else (0, 0),
    )
    if message.type is MessageType.VOTE:
        core.vote = message.sender
        core.election_elapsed_ticks = 0


def reject(core: Core, message: Message) -> None:
    """Refuse a request, at this node's term, and report the commit index."""
    _say_answer(core, message, f"rejected {describe.type_of(message.type)} from")
    _answer(core, message, core.term, how_far=_how_far(core), reject=True)


def _answer(
    core: Core, request: Message, term: int, *, how_far: tuple[int, int], reject: bool = False
) -> None:
    index, log_term = how_far
    core.send(
        Message(
            type=_ANSWER_TO[request.type],
            to=request.sender,
            sender=core.id,
            term=term,
            index=index,
            log_term=log_term,
            reject=reject,
        )
    )


def on_answer(core: Core, message: Message) -> None:
    """Count an answer to this candidate's or pre-candidate's request."""
    what = "" if not message.reject else " rejection"
    kind = describe.type_of(message.type)
    core.say(Level.INFO, f"received {kind}{what} from {message.sender:x} at term {core.term}")
    core.tracker.record_vote(message.sender, granted=not message.reject)
    granted, rejected, result = core.tracker.tally()
    core.say(Level.INFO, f"has received {granted} {kind} votes and {rejected} vote rejections")
    if (message.reject and message.index and _learns_of_change(core, message)) or result is VoteResult.LOST:
        roles.become_follower(core, core.term, NOBODY)
    elif result is VoteResult.WON and core.role is Role.PRE_CANDIDATE:
        campaign(core, Campaign.ELECTION)
    elif result is VoteResult.WON:
        roles.become_leader(core)
        replication.broadcast_append(core)


def ask_how_far(core: Core) -> None:
    """Ask all members for the commit index: this node may be a voter by an entry that it has not committed.

    Changes take effect when they are applied. Suppose that no voter of the new configuration was one in the
    old, and that none of them knows yet that the change is committed: none of them campaigns. The old voters
    know it, so they do not campaign either. The question is a pre-vote, which changes nothing at its
    receivers.
    """
    if not core.options.commit_by_vote or not core.log.has_uncommitted_change():
        return
    core.say(
        Level.INFO,
        f"is no voter as far as it knows, and asks how far the log is committed: {own_position(core)}",
    )
    index, log_term = core.log.last_index(), core.log.last_term()
    for member in core.tracker.members:
        if member != core.id:
            core.send(
                Message(
                    type=MessageType.PRE_VOTE,
                    to=member,
                    sender=core.id,
                    term=core.term + 1,
                    index=index,
                    log_term=log_term,
                )
            )


def on_told(core: Core, message: Message) -> None:
    """Handle an answer to `ask_how_far`, or to a campaign that is over."""
    if message.index and _learns_of_change(core, message):
        core.say(Level.INFO, f"heard from {message.sender:x} that the log is committed to {core.log.commit}")


def _how_far(core: Core) -> tuple[int, int]:
    """Index and term of the last committed entry; 0, 0 if they are not reported."""
    index = core.log.commit if core.options.commit_by_vote else 0
    return index, (core.log.term(index) or 0) if index else 0


def _learns_of_change(core: Core, message: Message) -> bool:
    """Commit up to the voter's commit index. True if that changes the voters, so that the campaign is void.

    A committed entry stays committed, and logs with an entry of equal term and index are equal up to it.
    """
    log = core.log
    if message.index <= log.commit or not log.matches(message.index, message.log_term):
        return False
    log.commit_to(message.index)
    return log.has_unapplied_change()


def own_position(core: Core) -> str:
    return f"[logterm: {core.log.last_term()}, index: {core.log.last_index()}, vote: {core.vote:x}]"


def _say_answer(core: Core, message: Message, what: str) -> None:
    core.say(
        Level.INFO,
        f"{own_position(core)} {what} {message.sender:x} [logterm: {message.log_term}, index: "
        f"{message.index}] at term {core.term}",
    )
