"""What the engine tells of cohorts. Rules go to it with the orders of `data_plane.cohort_orders`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, cast

from ringfence.control.model.cohorts import CohortId, Incarnation, MemberSession
from ringfence.control.model.ids import Epoch, PartitionId, TopicId
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.rpc.cohort_messages import GateFigures
from ringfence.control.state_machines.cohorts.gates import GateProgress

GateKey = tuple[CohortId, PartitionId]


class GateStatus(NamedTuple):
    """What the log of a gate has, below the mark. `epoch`: the owner epoch under which it is open here."""

    topic: TopicId
    progress: GateProgress
    epoch: Epoch


class CohortEngine(Protocol):
    """The engine's part."""

    def sessions(self) -> tuple[MemberSession, ...]:
        """Sessions that are attached here and were heard within the last 10 s, ascending."""
        ...

    def progress(self) -> Mapping[GateKey, GateStatus]:
        """What the logs of this node's gates have. Gates that are not open are left out."""
        ...

    def figures(self, topic: TopicId, cohorts: Collection[CohortId]) -> tuple[GateFigures, ...]:
        """Figures of the gates of these cohorts that this node owns and has opened."""
        ...

    def send(self, connection: int, header: bytes, body: bytes) -> None:
        """Send a push; nothing if the connection is closed."""
        ...


class _Calls(Protocol):
    """The calls of `Node` for cohorts."""

    def members(self) -> Iterable[int]: ...
    def gates(self) -> Iterable[tuple[int, int, int, int, int, bool, bool, int]]: ...
    def cohort_figures(self) -> Iterable[dict[str, Any]]: ...


class NativeCohortEngine:
    """The engine of a node."""

    def __init__(self, native_node: NativeNode) -> None:
        self._native_node = native_node

    @property
    def _calls(self) -> _Calls:
        return cast("_Calls", self._native_node.node)

    def sessions(self) -> tuple[MemberSession, ...]:
        return tuple(MemberSession(session) for session in self._calls.members())

    def progress(self) -> Mapping[GateKey, GateStatus]:
        return {
            (CohortId(cohort), PartitionId(partition)): GateStatus(
                TopicId(topic), GateProgress(Incarnation(incarnation), offset, *flags), Epoch(epoch)
            )
            for topic, partition, cohort, incarnation, offset, *flags, epoch in self._calls.gates()
        }

    def figures(self, topic: TopicId, cohorts: Collection[CohortId]) -> tuple[GateFigures, ...]:
        names = GateFigures.__struct_fields__
        return tuple(
            GateFigures(**{name: gate[name] for name in names if name in gate})
            for gate in self._calls.cohort_figures()
            if gate["topic"] == topic and gate["cohort"] in cohorts
        )

    def send(self, connection: int, header: bytes, body: bytes) -> None:
        self._native_node.node.answer(connection, header, body)
