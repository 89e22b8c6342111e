"""Convert a node to a value and back. A recording begins with such a value.

Entries and messages are immutable and shared with the node, so freezing costs a few microseconds a member.
The value has the newest entries of storage; a replay that needs older ones reports that.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from ringfence.control.consensus.configuration import Configuration
from ringfence.control.consensus.core import Draw, Role
from ringfence.control.consensus.messages import ConfigurationState, Entry, HardState, Message, Snapshot
from ringfence.control.consensus.options import UNLIMITED, Options
from ringfence.control.consensus.progress import Progress, ProgressState
from ringfence.control.consensus.raft_node import Node
from ringfence.control.consensus.read_queue import PendingRead, ReadQueue, ReadState
from ringfence.control.consensus.ready import SoftState
from ringfence.control.consensus.storage import MemoryStorage, Storage
from ringfence.control.consensus.tracker import Tracker
from ringfence.control.consensus.window import Window

# Entries of storage in the value. A follower that lacks more entries would get a snapshot anyway.
STORED_MAX: Final = 4_096


class FrozenStorage(Struct, frozen=True):
    """The end of the durable log; `base` is index and term of the position before `entries`."""

    base: tuple[int, int]
    entries: tuple[Entry, ...]
    snapshot: Snapshot | None


class FrozenProgress(Struct, frozen=True):
    """The progress of one member, with the unacknowledged messages to it."""

    numbers: dict[str, int]
    window: tuple[tuple[int, int], ...]


class FrozenNode(Struct, frozen=True, kw_only=True):
    """The complete state for the rules. `numbers`, `log` and `unstable` are plain fields by name."""

    options: Options
    storage: FrozenStorage
    numbers: dict[str, int]
    log: dict[str, int]
    unstable: dict[str, int]
    unstable_entries: tuple[Entry, ...]
    unstable_snapshot: Snapshot | None
    configuration: Configuration
    progress: dict[int, FrozenProgress]
    votes: dict[int, bool]
    read_token: int
    reads_acknowledged: dict[int, int]
    reads_confirming: tuple[PendingRead, ...]
    reads_waiting: tuple[tuple[int, bytes], ...]
    read_states: tuple[ReadState, ...]
    messages: tuple[Message, ...]
    after_append: tuple[Message, ...]
    shown_soft: SoftState
    shown_hard: HardState


_CORE: Final = (
    "election_elapsed_ticks",
    "election_timeout_ticks",
    "heartbeat_elapsed_ticks",
    "lead",
    "pending_change_index",
    "role",
    "snapshot_wanted",
    "storage_full",
    "term",
    "transferee",
    "uncommitted_bytes",
    "vote",
)
_LOG: Final = ("applied", "applying", "applying_bytes", "applying_paused", "commit")
_UNSTABLE: Final = ("handed", "offset", "snapshot_handed")
_PROGRESS: Final = (
    "is_learner",
    "match",
    "next",
    "pause",
    "pending_snapshot",
    "recent_active",
    "sent_commit",
    "snapshot_ticks",
    "state",
)
# Frozen as numbers, thawed to their own types.
_FLAGS: Final = frozenset(
    {
        "snapshot_wanted",
        "storage_full",
        "applying_paused",
        "snapshot_handed",
        "is_learner",
        "pause",
        "recent_active",
    }
)


def freeze(node: Node) -> FrozenNode:
    """The state of the node between two events. The node itself does not change."""
    core = node.core
    unstable, reads = core.log.unstable, core.reads
    return FrozenNode(
        options=core.options,
        storage=_frozen_storage(core.log.storage),
        numbers=_numbers(core, _CORE),
        log=_numbers(core.log, _LOG),
        unstable=_numbers(unstable, _UNSTABLE),
        unstable_entries=tuple(unstable.entries),
        unstable_snapshot=unstable.snapshot,
        configuration=core.tracker.configuration,
        progress={
            member: FrozenProgress(_numbers(known, _PROGRESS), known.window.messages())
            for member, known in core.tracker.progress.items()
        },
        votes=dict(core.tracker.votes),
        **reads.frozen(),
        read_states=tuple(core.read_states),
        messages=tuple(core.messages),
        after_append=tuple(core.after_append),
        shown_soft=node.shown[0],
        shown_hard=node.shown[1],
    )


def thaw(frozen: FrozenNode, draw: Draw) -> tuple[Node, MemoryStorage]:
    """A node with this state, over a separate storage in memory."""
    storage = _storage(frozen.storage)
    node = Node(frozen.options, storage, draw=lambda _: 0)
    core = node.core
    core.draw = draw
    _set(core, frozen.numbers)
    core.role = Role(frozen.numbers["role"])
    _set(core.log, frozen.log)
    unstable = core.log.unstable
    _set(unstable, frozen.unstable)
    unstable.entries, unstable.snapshot = list(frozen.unstable_entries), frozen.unstable_snapshot
    core.tracker = Tracker(frozen.options.inflight_messages_max, frozen.options.inflight_bytes_max)
    progress = {member: _progress(known, core.tracker.window()) for member, known in frozen.progress.items()}
    core.tracker.switch(frozen.configuration, progress)
    core.tracker.votes = dict(frozen.votes)
    core.reads = ReadQueue.thawed(
        frozen.options.pending_reads_max,
        frozen.read_token,
        frozen.reads_acknowledged,
        deque(frozen.reads_confirming),
        deque(frozen.reads_waiting),
    )
    core.read_states = list(frozen.read_states)
    core.messages, core.after_append = list(frozen.messages), list(frozen.after_append)
    node.shown = (frozen.shown_soft, frozen.shown_hard)
    return node, storage


def _frozen_storage(storage: Storage) -> FrozenStorage:
    last = storage.last_index()
    base = max(storage.first_index() - 1, last - STORED_MAX)
    entries = tuple(storage.entries(base + 1, last + 1, UNLIMITED)) if last > base else ()
    return FrozenStorage((base, storage.term(base) or 0), entries, storage.snapshot())


def _storage(frozen: FrozenStorage) -> MemoryStorage:
    storage = MemoryStorage()
    base, term = frozen.base
    if base:
        storage.install(Snapshot(base, term, ConfigurationState()))
    storage.append(frozen.entries)
    known = frozen.snapshot
    if known is not None and known.index >= base:
        storage.set_snapshot(known)
    return storage


def _progress(frozen: FrozenProgress, window: Window) -> Progress:
    progress = Progress(next_index=0, window=window)
    _set(progress, frozen.numbers)
    progress.state = ProgressState(frozen.numbers["state"])
    window.restore(frozen.window)
    return progress


def _numbers(source: object, names: tuple[str, ...]) -> dict[str, int]:
    return {name: int(getattr(source, name)) for name in names}


def _set(target: object, numbers: dict[str, int]) -> None:
    for name, value in numbers.items():
        setattr(target, name, bool(value) if name in _FLAGS else value)
