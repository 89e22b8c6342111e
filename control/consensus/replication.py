"""A leader's messages to its followers: appends, snapshots, heartbeats; and what a majority has."""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus import describe
from ringfence.control.consensus.core import Core
from ringfence.control.consensus.messages import Entry, Message, MessageType, size_bytes
from ringfence.control.consensus.progress import Progress, ProgressState
from ringfence.control.consensus.trace import Level


def send_append(core: Core, to: int, *, also_if_empty: bool = True) -> bool:
    """Send what `to` lacks, one message at the most: entries, or a snapshot if they are compacted.

    Without entries only if `also_if_empty`: to probe, or to tell a commit index. False if nothing was sent.
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
    """To all, with the newest token of a read that waits."""
    token = core.reads.token()
    for member in core.tracker.members:
        if member == core.id:
            continue
        progress = core.tracker.progress[member]
        # Never above what it is known to have: its log beyond may be another one.
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
    """Commit what a majority has, if it ends in an entry of this term; True if that is news."""
    return core.log.maybe_commit(core.tracker.committed(), core.term)


def committed_in_term(core: Core) -> bool:
    """The leader knows all that is committed: it has committed an entry of its own term."""
    return core.log.term(core.log.commit) == core.term


def _send_snapshot(core: Core, to: int, progress: Progress) -> bool:
    if not progress.recent_active:
        core.trace(Level.DEBUG, f"ignore sending snapshot to {to:x} since it is not recently active")
        return False
    snapshot = core.log.snapshot()
    # A node refuses a snapshot that it is no part of: it may be older than the change that added the node.
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
