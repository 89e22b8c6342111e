"""Members of the cluster, and the ring: the members that take partitions."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ringfence.control.model.ids import Index, NodeId

# A node of weight 200 gets twice as many partitions as one of 100.
WEIGHT_DEFAULT: Final = 100


class Life(StrEnum):
    """A node's life by the log. Heartbeats are soft state and only lead to entries."""

    # Registered; its first start makes it LIVE.
    JOINING = "JOINING"
    LIVE = "LIVE"
    # Silent for the failure time-out. It keeps its assignments and gets no new ones.
    FAILED = "FAILED"


class Vote(StrEnum):
    """Whether a node shall be a voter of the metadata log; consensus has the present voters."""

    AUTO = "AUTO"
    ALWAYS = "ALWAYS"
    NEVER = "NEVER"


class NodeRecord(msgspec.Struct, frozen=True):
    """A node with its store.

    `started` is the index of its last start, 0 before the first. `changed` is the index of the entry that
    last set `life`; decisions about a node name it, so a decision from before a restart is refused.
    `addresses` are for clients, `control` for other nodes, `http` for administrators.
    """

    node: NodeId
    store: bytes
    addresses: tuple[str, ...]
    program: str
    started: Index
    control: tuple[str, ...] = ()
    http: tuple[str, ...] = ()
    zone: str = ""
    weight: int = WEIGHT_DEFAULT
    labels: dict[str, str] = {}
    life: Life = Life.LIVE
    draining: bool = False
    vote: Vote = Vote.AUTO
    changed: Index = Index(0)

    @property
    def takes_partitions(self) -> bool:
        """Whether a new partition or replica may be placed here."""
        return self.life is Life.LIVE and not self.draining


class Ring(msgspec.Struct, frozen=True):
    """The members that take partitions, in ascending order.

    `version` is 0 until the cluster has had its minimum size, then +1 for each change of the members;
    `changed` is the index of the last one. Assignments decide on owners; the ring only feeds placement.
    """

    version: int = 0
    members: tuple[NodeId, ...] = ()
    changed: Index = Index(0)

    @property
    def is_formed(self) -> bool:
        return self.version > 0


class RemovedNode(msgspec.Struct, frozen=True, array_like=True):
    """A removed node: its store cannot join again."""

    store: bytes
    removed: Index
