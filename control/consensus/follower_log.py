"""Handle a leader's messages about the follower's log: append, commit, restore."""

from __future__ import annotations

from ringfence.control.consensus import configuration_switch, roles
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import NOBODY, Message, MessageType, Snapshot
from ringfence.control.consensus.trace import Level
from ringfence.control.consensus.tracker import Tracker


def on_append(core: Core, message: Message) -> None:
    """Append entries, or answer with the index from which the logs may differ.

    Raises:
        LogLostError: see `errors`.
    """
    log = core.log
    if message.index < log.commit:
        # An outdated append. The committed entries match the leader's log in any case.
        _answer(core, message, index=log.commit)
        return
    last = log.maybe_append(message.index, message.log_term, message.entries, message.commit)
    if last is not None:
        _answer(core, message, index=last)
        return
    core.say(
        Level.DEBUG,
        f"[logterm: {log.term(message.index) or 0}, index: {message.index}] rejected MsgApp [logterm: "
        f"{message.log_term}, index: {message.index}] from {message.sender:x}",
    )
    # Entries here with a greater term than the leader's cannot match: skip all of them in one step.
    hint, hint_term = log.last_at_or_below_term(min(message.index, log.last_index()), message.log_term)
    core.send(
        Message(
            type=MessageType.APPEND_ANSWER,
            to=message.sender,
            sender=core.id,
            term=core.term,
            index=message.index,
            reject=True,
            reject_hint=hint,
            log_term=hint_term,
        )
    )


def on_heartbeat(core: Core, message: Message) -> None:
    """Commit up to the index at which the leader knows this log to match.

    Raises:
        LogLostError: see `errors`.
    """
    core.log.commit_to(message.commit)
    core.send(
        Message(
            type=MessageType.HEARTBEAT_ANSWER,
            to=message.sender,
            sender=core.id,
            term=core.term,
            context=message.context,
        )
    )


def on_snapshot(core: Core, message: Message) -> None:
    """Replace the log by a snapshot, unless the log has the same entries."""
    snapshot = message.snapshot
    assert snapshot is not None, f"a snapshot message from {message.sender} without a snapshot"
    restored = _restore(core, snapshot)
    what = "restored" if restored else "ignored"
    core.say(
        Level.INFO,
        f"[commit: {core.log.commit}] {what} snapshot [index: {snapshot.index}, term: {snapshot.term}]",
    )
    _answer(core, message, index=core.log.last_index() if restored else core.log.commit)


def _restore(core: Core, snapshot: Snapshot) -> bool:
    log = core.log
    if snapshot.index <= log.commit:
        return False
    if core.role is not Role.FOLLOWER:
        core.say(Level.WARN, "attempted to restore snapshot as leader; should never happen")
        roles.become_follower(core, core.term + 1, NOBODY)
        return False
    state = snapshot.configuration
    if not state.includes(core.id):
        core.say(
            Level.WARN,
            f"attempted to restore snapshot but it is not in the ConfState {state}; should never happen",
        )
        return False
    if _holds(core, snapshot):
        core.say(
            Level.INFO,
            f"{_position(core)} fast-forwarded commit to snapshot [index: {snapshot.index}, term: "
            f"{snapshot.term}]",
        )
        log.commit_to(snapshot.index)
        return False
    log.restore(snapshot)
    core.tracker = Tracker(core.options.inflight_messages_max, core.options.inflight_bytes_max)
    configuration_switch.restore(core, state)
    core.say(
        Level.INFO, f"{_position(core)} restored snapshot [index: {snapshot.index}, term: {snapshot.term}]"
    )
    return True


def _holds(core: Core, snapshot: Snapshot) -> bool:
    """Keep a log that matches and reaches the snapshot: dropping it could lose acknowledged entries."""
    return core.log.matches(snapshot.index, snapshot.term)


def _position(core: Core) -> str:
    log = core.log
    return f"[commit: {log.commit}, lastindex: {log.last_index()}, lastterm: {log.last_term()}]"


def _answer(core: Core, message: Message, *, index: int) -> None:
    core.send(
        Message(
            type=MessageType.APPEND_ANSWER, to=message.sender, sender=core.id, term=core.term, index=index
        )
    )
