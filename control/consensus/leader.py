"""Handle ticks and messages as a leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringfence.control.consensus import describe, linearizable_reads, proposals, replication, roles, transfer
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import NOBODY, Message, MessageType
from ringfence.control.consensus.progress import Progress, ProgressState
from ringfence.control.consensus.trace import Level


def on_tick(core: Core) -> None:
    """Check the quorum once an election timeout, and send heartbeats once a heartbeat interval."""
    options = core.options
    core.heartbeat_elapsed_ticks += 1
    core.election_elapsed_ticks += 1
    if core.election_elapsed_ticks >= options.election_ticks:
        core.election_elapsed_ticks = 0
        if options.check_quorum:
            check_quorum(core)
        if core.storage_full and core.transferee != NOBODY and core.role is Role.LEADER:
            core.say(Level.WARN, "stepped down to follower since its storage is full and no voter took over")
            roles.become_follower(core, core.term, NOBODY)
        # The transfer target has not taken over; accept proposals again.
        core.transferee = NOBODY
    if core.role is Role.LEADER and core.heartbeat_elapsed_ticks >= options.heartbeat_ticks:
        core.heartbeat_elapsed_ticks = 0
        replication.broadcast_heartbeat(core)
    if options.snapshot_timeout_ticks:
        _give_up_snapshots(core)


def _give_up_snapshots(core: Core) -> None:
    for member, progress in core.tracker.progress.items():
        if progress.state is ProgressState.SNAPSHOT:
            progress.snapshot_ticks += 1
            if progress.snapshot_ticks >= core.options.snapshot_timeout_ticks:
                _end_snapshot(core, member, progress, failed=True)


def check_quorum(core: Core) -> None:
    """Step down unless a majority has sent messages since the last check: it may have another leader."""
    own = core.tracker.progress.get(core.id)
    if own is not None:
        own.recent_active = True
    if not core.tracker.quorum_is_active():
        core.say(Level.WARN, "stepped down to follower since quorum is not active")
        roles.become_follower(core, core.term, NOBODY)
    for member, progress in core.tracker.progress.items():
        if member != core.id:
            progress.recent_active = False


def step(core: Core, message: Message) -> None:
    """Handle a message of this term, or without a term. Messages without a rule have no effect.

    Raises:
        ProposalDroppedError, ReadDroppedError: see `proposals` and `linearizable_reads`.
    """
    match message.type:
        case MessageType.PROPOSE:
            proposals.propose(core, message.entries)
        case MessageType.BEAT:
            replication.broadcast_heartbeat(core)
        case MessageType.CHECK_QUORUM:
            check_quorum(core)
        case MessageType.READ_INDEX:
            linearizable_reads.ask(core, message)
        case _:
            rule = _OF_A_MEMBER.get(message.type)
            if rule is None:
                return
            progress = core.tracker.progress.get(message.sender)
            if progress is None:
                core.say(Level.DEBUG, f"no progress available for {message.sender:x}")
                return
            rule(core, message, progress)


def _on_append_answer(core: Core, message: Message, progress: Progress) -> None:
    progress.recent_active = True
    if message.reject:
        _on_rejection(core, message, progress)
        return
    if not _learns(progress, message.index):
        return
    _change_state(core, message, progress)
    other = message.sender != core.id
    if replication.advance_commit(core):
        linearizable_reads.on_commit(core)
        replication.broadcast_append(core)
    elif other and progress.may_tell_commit(core.log.commit):
        replication.send_append(core, message.sender)
    if not other:
        return
    # The follower's window has room again, or a probe has found its log's end: send the missing entries. Each
    # round sends a message that takes room in the window, so the loop ends.
    while replication.send_append(core, message.sender, also_if_empty=False):
        pass
    transfer.on_match(core, message.sender, progress)


def _learns(progress: Progress, index: int) -> bool:
    """Handle an answer with news: more of the follower's log matches, or a probe has found its end."""
    return progress.maybe_update(index) or (index == progress.match and progress.state is ProgressState.PROBE)


def _change_state(core: Core, message: Message, progress: Progress) -> None:
    if progress.state is ProgressState.PROBE:
        progress.become_replicate()
    elif progress.state is ProgressState.REPLICATE:
        progress.window.free_up_to(message.index)
    elif progress.match + 1 >= core.log.first_index():
        core.say(
            Level.DEBUG,
            f"recovered from needing snapshot, resumed sending replication messages to {message.sender:x} "
            f"[{describe.progress(progress)}]",
        )
        progress.become_probe()
        progress.become_replicate()


def _on_rejection(core: Core, message: Message, progress: Progress) -> None:
    sender = message.sender
    core.say(
        Level.DEBUG,
        f"received MsgAppResp(rejected, hint: (index {message.reject_hint}, term {message.log_term})) from "
        f"{sender:x} for index {message.index}",
    )
    guess = message.reject_hint
    if message.log_term > 0:
        # Entries here with a greater term than the hint's cannot match: skip all of them in one step.
        guess, _ = core.log.last_at_or_below_term(guess, message.log_term)
    if not progress.maybe_decrease(message.index, guess):
        return
    core.say(Level.DEBUG, f"decreased progress of {sender:x} to [{describe.progress(progress)}]")
    if progress.state is ProgressState.REPLICATE:
        progress.become_probe()
    replication.send_append(core, sender)


def _on_heartbeat_answer(core: Core, message: Message, progress: Progress) -> None:
    progress.recent_active = True
    progress.pause = False
    # Sent messages may be lost. With a full window this is an empty append, whose rejection shows the loss.
    if progress.match < core.log.last_index() or progress.state is ProgressState.PROBE:
        replication.send_append(core, message.sender)
    linearizable_reads.on_heartbeat_answer(core, message)


def _on_snapshot_status(core: Core, message: Message, progress: Progress) -> None:
    if progress.state is ProgressState.SNAPSHOT:
        _end_snapshot(core, message.sender, progress, failed=message.reject)


def _end_snapshot(core: Core, member: int, progress: Progress, *, failed: bool) -> None:
    outcome = "failed" if failed else "succeeded"
    if failed:
        progress.pending_snapshot = 0
    progress.become_probe()
    core.say(
        Level.DEBUG,
        f"snapshot {outcome}, resumed sending replication messages to {member:x} "
        f"[{describe.progress(progress)}]",
    )
    # The snapshot has arrived and is not installed yet: wait for its answer, or for that to a heartbeat.
    progress.pause = True


def _on_unreachable(core: Core, message: Message, progress: Progress) -> None:
    if progress.state is ProgressState.REPLICATE:
        progress.become_probe()
    core.say(
        Level.DEBUG,
        f"failed to send message to {message.sender:x} because it is unreachable "
        f"[{describe.progress(progress)}]",
    )


def _on_transfer(core: Core, message: Message, progress: Progress) -> None:
    transfer.start(core, message.sender, progress)


_OF_A_MEMBER: Final[dict[MessageType, Callable[[Core, Message, Progress], None]]] = {
    MessageType.APPEND_ANSWER: _on_append_answer,
    MessageType.HEARTBEAT_ANSWER: _on_heartbeat_answer,
    MessageType.SNAPSHOT_STATUS: _on_snapshot_status,
    MessageType.UNREACHABLE: _on_unreachable,
    MessageType.TRANSFER: _on_transfer,
}
