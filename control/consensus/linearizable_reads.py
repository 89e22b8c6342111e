"""Handle linearizable reads: any node takes them, and the leader answers once a quorum confirms it."""

from __future__ import annotations

from ringfence.control.consensus import replication
from ringfence.control.consensus.core import Core
from ringfence.control.consensus.errors import ReadDroppedError
from ringfence.control.consensus.messages import NOBODY, Entry, Message, MessageType
from ringfence.control.consensus.options import ReadMode
from ringfence.control.consensus.read_queue import ReadState
from ringfence.control.consensus.trace import Level


def ask_leader(core: Core, message: Message) -> None:
    """Handle a read at a node that does not lead.

    Raises:
        ReadDroppedError: no leader is known.
    """
    if core.lead == NOBODY:
        core.say(Level.INFO, f"no leader at term {core.term}; dropping index reading msg")
        raise ReadDroppedError(f"node {core.id} knows no leader at term {core.term}; ask again later")
    core.send(
        Message(
            type=MessageType.READ_INDEX,
            to=core.lead,
            sender=message.sender or core.id,
            term=0,
            entries=message.entries,
        )
    )


def ask(core: Core, message: Message) -> None:
    """Handle a read at the leader, of the leader itself or of a follower.

    Raises:
        ReadDroppedError: too many reads wait.
    """
    requester, context = message.sender or core.id, _context(message)
    if core.reads.is_full():
        raise ReadDroppedError(
            f"{len(core.reads)} reads wait at node {core.id}, {core.options.pending_reads_max} is the limit; "
            "ask again later"
        )
    if replication.committed_in_term(core):
        _confirm(core, requester, context)
    else:
        # The leader may not know the commit index of earlier terms yet. Nor does a lone voter that has just
        # started, because its stored commit index need not have been synced.
        core.reads.wait(requester, context)


def on_commit(core: Core) -> None:
    """Continue with reads that waited for the leader's first committed entry."""
    if core.reads and replication.committed_in_term(core):
        for requester, context in core.reads.take_waiting():
            _confirm(core, requester, context)


def on_heartbeat_answer(core: Core, message: Message) -> None:
    """Handle a follower's confirmation; answer the reads that a quorum has confirmed."""
    if not message.context or not core.reads:
        return
    core.reads.acknowledge(message.sender, message.context)
    answer_confirmed(core)


def answer_confirmed(core: Core) -> None:
    """Answer confirmed reads, after a follower's answer or a change of the configuration."""
    for read in core.reads.confirmed(core.id, core.tracker.committed_of):
        _answer(core, read.requester, read.index, read.context)


def on_answer(core: Core, message: Message) -> None:
    """Handle the leader's answer at the node that took the read."""
    core.read_states.append(ReadState(message.index, _context(message)))


def _confirm(core: Core, requester: int, context: bytes) -> None:
    if core.options.read_mode is ReadMode.LEASE or core.tracker.is_lone_voter(core.id):
        _answer(core, requester, core.log.commit, context)
        return
    core.reads.add(core.log.commit, requester, context)
    replication.broadcast_heartbeat(core)


def _answer(core: Core, requester: int, index: int, context: bytes) -> None:
    if requester == core.id:
        core.read_states.append(ReadState(index, context))
        return
    core.send(
        Message(
            type=MessageType.READ_INDEX_ANSWER,
            to=requester,
            sender=core.id,
            term=core.term,
            index=index,
            entries=(Entry(data=context),),
        )
    )


def _context(message: Message) -> bytes:
    return message.entries[0].data if message.entries else b""
