"""Record the steps of a running node, and replay them through the same code.

    [begin, steps ...][begin, steps ...]      two segments at most; a full one replaces the oldest

A segment begins with the node as a value (`frozen`), so a replay needs neither disk nor earlier steps. A step
is an event, or another action of the driver: it took a Ready, noted durable work, or compacted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from ringfence.control.consensus import events, invariants
from ringfence.control.consensus.configuration_changes import Change
from ringfence.control.consensus.core import Draw
from ringfence.control.consensus.errors import ConsensusError, LogLostError
from ringfence.control.consensus.events import Event
from ringfence.control.consensus.frozen import FrozenNode, freeze, thaw
from ringfence.control.consensus.messages import (
    APPEND_THREAD,
    ConfigurationState,
    Snapshot,
    StorageMessage,
    size_bytes,
)
from ringfence.control.consensus.raft_node import Node
from ringfence.control.consensus.storage import MemoryStorage

FORMAT: Final = 1
# Steps of a segment: ten seconds of an idle leader of three nodes, one second under load.
STEPS_MAX: Final = 1_024
# Bytes of the entries in a segment's events. Memory is limited to two segments and one further message.
BYTES_MAX: Final = 8 << 20
# Bytes of a file in a replay: two segments, their storage (4,096 entries each), and a reserve.
FILE_BYTES_MAX: Final = 256 << 20
# Bytes that a step counts in addition to its entries.
STEP_BYTES: Final = 64


class Stepped(Struct, frozen=True, tag="event"):
    event: Event


class Took(Struct, frozen=True, tag="ready"):
    """The driver took a Ready, at this term, leader and commit index."""

    term: int
    lead: int
    commit: int


class Noted(Struct, frozen=True, tag="durable"):
    """The first `count` pieces of work for the append thread are durable and visible in storage."""

    count: int


class Changed(Struct, frozen=True, tag="change"):
    """A committed change of the configuration took effect."""

    change: Change


class Compacted(Struct, frozen=True, tag="compacted"):
    """A snapshot was made at (index, term), and the log begins after `base`."""

    index: int
    term: int
    configuration: ConfigurationState
    base: int


Step = Stepped | Took | Noted | Changed | Compacted


class Segment(Struct, frozen=True):
    """`work` was handed out before and is not durable yet; `drawn` are the random numbers, in order."""

    begin: FrozenNode
    work: tuple[StorageMessage, ...]
    steps: tuple[Step, ...]
    drawn: tuple[int, ...]


class Recording(Struct, frozen=True, kw_only=True):
    """A file's content. `why` is the reason for the file."""

    format: int = FORMAT
    program: str
    node: int
    why: str
    segments: tuple[Segment, ...]


class _Head(Struct):
    format: int


_HEADS: Final = msgspec.msgpack.Decoder(_Head)
_RECORDINGS: Final = msgspec.msgpack.Decoder(Recording)


class Recorder:
    """Records every step *before* it is done, so that a failing step is the last one recorded."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._node: Node | None = None
        self._work: Callable[[], Sequence[StorageMessage]] = tuple
        self._steps: list[Step] = []
        self._drawn: list[int] = []
        self._size_bytes = 0
        self._begin: tuple[FrozenNode, tuple[StorageMessage, ...]] | None = None
        self._before: Segment | None = None

    def draw(self, below: int) -> int:
        """Draw a random number for the node, and record it."""
        drawn = self._draw(below)
        self._drawn.append(drawn)
        return drawn

    def attach(self, node: Node, work: Callable[[], Sequence[StorageMessage]]) -> None:
        """Start recording; `work` returns the append thread's work that is not durable yet."""
        self._node, self._work = node, work
        self._start()

    def event(self, event: Event) -> None:
        self._size_bytes += _event_bytes(event)
        self._add(Stepped(event))

    def took(self) -> None:
        assert self._node is not None, "nothing is recorded yet"
        core = self._node.core
        self._add(Took(core.term, core.lead, core.log.commit))

    def add(self, step: Noted | Changed | Compacted) -> None:
        self._add(step)

    def newest(self, count: int) -> list[Step]:
        """The last steps, oldest first."""
        return self._steps[-count:]

    def recording(self, program: str, why: str) -> Recording:
        """All recorded segments."""
        assert self._node is not None, "nothing is recorded yet"
        segments = (*([self._before] if self._before else []), self._segment())
        return Recording(program=program, node=self._node.core.id, why=why, segments=segments)

    def _add(self, step: Step) -> None:
        if len(self._steps) >= STEPS_MAX or self._size_bytes >= BYTES_MAX:
            self._before = self._segment()
            self._start()
        self._steps.append(step)
        self._size_bytes += STEP_BYTES

    def _start(self) -> None:
        assert self._node is not None, "nothing is recorded yet"
        self._begin = (freeze(self._node), tuple(self._work()))
        self._steps, self._drawn, self._size_bytes = [], [], 0

    def _segment(self) -> Segment:
        assert self._begin is not None, "nothing is recorded yet"
        return Segment(*self._begin, tuple(self._steps), tuple(self._drawn))


def encode(recording: Recording) -> bytes:
    return msgspec.msgpack.encode(recording)


def decode(data: bytes) -> Recording:
    """Decode a recording. Raises ValueError: it is too long, no recording, or of another format."""
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes; a recording has at most {FILE_BYTES_MAX}")
    try:
        head = _HEADS.decode(data)
        if head.format != FORMAT:
            raise ValueError(f"a recording of format {head.format}, this program reads {FORMAT}")
        return _RECORDINGS.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"no recording of consensus: {error}") from error


class Shown(Struct, frozen=True):
    """One replayed step, the node after it, and the fault if there is one."""

    segment: int
    number: int
    step: Step
    role: str
    term: int
    lead: int
    commit: int
    applied: int
    refused: str | None = None
    broken: str | None = None
    differs: str | None = None


def replay(recording: Recording) -> Iterator[Shown]:
    """Run every segment again through the production code, one step after the other.

    `broken` names the invariant that a step violates. `differs` names the difference to the recording
    (another program, or missing entries). Either ends the segment.
    """
    for number, segment in enumerate(recording.segments):
        yield from _Replay(segment, number).run()


class _Replay:
    """Replay one segment in the driver's place, with its queue of work for storage."""

    def __init__(self, segment: Segment, number: int) -> None:
        self._segment, self._number = segment, number
        self._drawn = deque(segment.drawn)
        self._ran_dry = False
        self._node, self._storage = thaw(segment.begin, self._draw)
        self._work = deque(segment.work)

    def run(self) -> Iterator[Shown]:
        before = invariants.seen(self._node.core)
        for number, step in enumerate(self._segment.steps):
            told: dict[str, Any] = {}
            try:
                differs = self._do(step)
                invariants.check_node(self._node.core)
                invariants.check_step(before, self._node.core)
            except LogLostError as error:
                told["broken"], differs = str(error), None
            except ConsensusError as error:
                told["refused"], differs = str(error), None
            except AssertionError as error:
                told["broken"], differs = str(error) or "an assertion without a text", None
            if self._ran_dry:
                differs = "it drew more random numbers than were recorded"
            core = self._node.core
            shown = Shown(
                self._number,
                number,
                step,
                core.role.name.lower(),
                core.term,
                core.lead,
                core.log.commit,
                core.log.applied,
                **told,
                differs=differs,
            )
            yield shown
            if shown.broken or shown.differs:
                return
            before = invariants.seen(core)

    def _do(self, step: Step) -> str | None:
        """Do one step; return the difference to the recorded one, or None."""
        match step:
            case Stepped(event):
                self._node.step(event)
            case Took():
                return self._take(step)
            case Noted(count):
                return self._note(count)
            case Changed(change):
                self._node.apply_change(change)
            case Compacted():
                _compact(self._storage, step)
        return None

    def _take(self, step: Took) -> str | None:
        core = self._node.core
        now = Took(core.term, core.lead, core.log.commit)
        if now != step or not self._node.has_ready():
            return f"here it is {now}, with{'' if self._node.has_ready() else 'out'} a Ready"
        for message in self._node.ready().messages:
            if message.to == APPEND_THREAD and isinstance(message, StorageMessage):
                self._work.append(message)
        return None

    def _note(self, count: int) -> str | None:
        if count > len(self._work):
            return f"{count} pieces of work became durable, {len(self._work)} were handed out"
        for _ in range(count):
            work = self._work.popleft()
            if work.snapshot is not None:
                self._storage.install(msgspec.structs.replace(work.snapshot, data=b""))
            self._storage.append(work.entries)
        return None

    def _draw(self, _: int) -> int:
        if not self._drawn:
            self._ran_dry = True
            return 0
        return self._drawn.popleft()


def _compact(storage: MemoryStorage, step: Compacted) -> None:
    if step.index > storage.snapshot_index:
        storage.set_snapshot(Snapshot(step.index, step.term, step.configuration))
    if step.base >= storage.first_index():
        storage.compact(step.base)


def _event_bytes(event: Event) -> int:
    if isinstance(event, events.Received):
        message = event.message
        size = sum(map(size_bytes, message.entries)) if message.entries else 0
        return size if message.snapshot is None else size + len(message.snapshot.data)
    return sum(map(len, event.data)) if isinstance(event, events.Propose) else 0
