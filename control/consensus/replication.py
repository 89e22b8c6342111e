"""Send a leader's appends, snapshots and heartbeats, and commit the entries that a majority has."""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus import describe
from ringfence.control.consensus.core import Core
from ringfence.control.consensus.messages import Entry, Message, MessageType, size_bytes
from ringfence.control.consensus.progress import Progress, ProgressState
from ringfence.control.consensus.trace import Level


def send_append(core: Core, to: int, *, also_if_empty: bool = True) -> bool:
    """Send `to` at most one message with missing entries, or with a snapshot if they are compacted.

    `also_if_empty`: send one without entries too, as a probe or with a commit index. False if none was sent.
    """
    progress = core.tracker.progress[to]
    if progress.is_paused():
        return False
    log = core.log
    before = progress.next - 1
    before_term = log.term(before)
    if before_term is None:
        return _send_snapshot(core, to, progress)
    entries: Sequence[Entry] = ()
    if progress.state is not ProgressState.REPLICATE or not progress.window.full():
        entries = log.entries(progress.next, log.last_index() + 1, core.options.message_bytes_max)
    if not entries and not also_if_empty:
        return False
    core.send(
        Message(
            type=MessageType.APPEND,
            to=to,
            sender=core.id,
            term=core.term,
            index=before,
            log_term=before_term,
            entries=tuple(entries),
            commit=log.commit,
        )
    )
    progress.sent(len(entries), sum(size_bytes(entry) for entry in entries))
    progress.sent_commit = log.commit
    return True


def broadcast_append(core: Core) -> None:
    for member in core.tracker.members:
        if member != core.id:
            send_append(core, member)


def broadcast_heartbeat(core: Core) -> None:
    """Send heartbeats to all members, with the newest token of waiting reads."""
    token = core.reads.token()
    for member in core.tracker.members:
        if member == core.id:
            continue
        progress = core.tracker.progress[member]
        # Never above the matching index: the follower's log after it may differ.
        commit = min(progress.match, core.log.commit)
        core.send(
            Message(
                type=MessageType.HEARTBEAT,
                to=member,
                sender=core.id,
                term=core.term,
                commit=commit,
                context=token,
            )
        )
        progress.sent_commit = commit


def advance_commit(core: Core) -> bool:
    """Commit the entries that a majority has, if the last is of this term; True if the commit index rose."""
    return core.log.maybe_commit(core.tracker.committed(), core.term)


def committed_in_term(core: Core) -> bool:
    """Whether the leader has committed an entry of its own term, and thereby knows the commit index."""
    return core.log.term(core.log.commit) == core.term


def _send_snapshot(core: Core, to: int, progress: Progress) -> bool:
    if not progress.recent_active:
        core.trace(Level.DEBUG, f"ignore sending snapshot to {to:x} since it is not recently active")
        return False
    snapshot = core.log.snapshot()
    # A node refuses a snapshot without itself as a member: the snapshot may be older than its addition.
    core.snapshot_wanted = snapshot is None or not snapshot.configuration.includes(to)
    if snapshot is None or core.snapshot_wanted:
        core.say(
            Level.DEBUG, f"failed to send snapshot to {to:x} because snapshot is temporarily unavailable"
        )
        return False
    assert snapshot.index > 0, f"the log begins at {core.log.first_index()}, but storage has no snapshot"
    core.say(
        Level.DEBUG,
        f"[firstindex: {core.log.first_index()}, commit: {core.log.commit}] sent snapshot[index: "
        f"{snapshot.index}, term: {snapshot.term}] to {to:x} [{describe.progress(progress)}]",
    )
    progress.become_snapshot(snapshot.index)
    core.say(Level.DEBUG, f"paused sending replication messages to {to:x} [{describe.progress(progress)}]")
    core.send(Message(type=MessageType.SNAPSHOT, to=to, sender=core.id, term=core.term, snapshot=snapshot))
    return True
