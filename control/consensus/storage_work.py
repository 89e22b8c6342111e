"""Build messages with work for storage, and the responses that confirm it.

With asynchronous writes a driver runs two threads, or two queues: one appends, one applies. Each processes
its messages in order and then delivers their `responses`. The promises of responses are thereby durable.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.control.consensus.core import Core
from ringfence.control.consensus.messages import (
    APPEND_THREAD,
    APPLY_THREAD,
    NO_HARD_STATE,
    Entry,
    Message,
    MessageType,
    Snapshot,
    StorageMessage,
)
from ringfence.control.consensus.ready import Ready


def append_work(core: Core, ready: Ready) -> StorageMessage | None:
    """The order to store hard state (if term, vote or commit is not 0), snapshot and entries, or None.

    Responses alone need the order too: they wait for earlier work in the queue.
    """
    if not (ready.entries or ready.hard_state or ready.snapshot or core.after_append):
        return None
    answer = append_answer(core, ready.snapshot)
    hard = ready.hard_state or NO_HARD_STATE
    return StorageMessage(
        type=MessageType.STORAGE_APPEND,
        to=APPEND_THREAD,
        sender=core.id,
        entries=tuple(ready.entries),
        snapshot=ready.snapshot,
        term=hard.term,
        vote=hard.vote,
        commit=hard.commit,
        responses=(*core.after_append, *([] if answer is None else [answer])),
    )


def append_answer(core: Core, snapshot: Snapshot | None) -> Message | None:
    """The response that confirms the present unstable tail. None if there is none.

    It has the *last* entry of the log, with its term, and the current term: a response of an older term is
    ignored. If entries are replaced repeatedly, only the write of the last ones confirms them.
    """
    unstable = core.log.unstable
    if not unstable.entries and snapshot is None:
        return None
    last, last_term = (core.log.last_index(), core.log.last_term()) if unstable.entries else (0, 0)
    return Message(
        type=MessageType.STORAGE_APPEND_ANSWER,
        to=core.id,
        sender=APPEND_THREAD,
        term=core.term,
        index=last,
        log_term=last_term,
        snapshot=snapshot,
    )


def apply_work(core: Core, committed: Sequence[Entry]) -> StorageMessage:
    """The order to apply entries."""
    return StorageMessage(
        type=MessageType.STORAGE_APPLY,
        to=APPLY_THREAD,
        sender=core.id,
        entries=tuple(committed),
        responses=(apply_answer(core, committed),),
    )


def apply_answer(core: Core, committed: Sequence[Entry]) -> Message:
    """The response that entries have taken effect."""
    return Message(
        type=MessageType.STORAGE_APPLY_ANSWER, to=core.id, sender=APPLY_THREAD, entries=tuple(committed)
    )
