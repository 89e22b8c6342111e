"""Members of the cluster, and the ring of those that partitions are placed on."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ringfence.control.model.ids import Index, NodeId

WEIGHT_DEFAULT: Final = 100
"""A node of weight 200 gets twice as many partitions as one of 100."""


class Life(StrEnum):
    """What the log says of a node's life. Heartbeats are soft state and only lead to entries."""

    JOINING = "JOINING"
    """Registered; it becomes LIVE by its first start."""
    LIVE = "LIVE"
    FAILED = "FAILED"
    """Silent for the failure time-out. It keeps what is assigned to it and gets nothing new."""


class Vote(StrEnum):
    """Whether a node shall be a voter of the metadata log; what it is, consensus knows."""

    AUTO = "AUTO"
    ALWAYS = "ALWAYS"
    NEVER = "NEVER"


class NodeRecord(msgspec.Struct, frozen=True):
    """A node with its store.

    `started` is the index of its last start, 0 before the first. `changed` is the index of the entry that
    last set `life`: decisions about a node name it, so that one taken before a restart comes too late.
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
    """The members that partitions are placed on, in ascending order.

    `version` is 0 until the cluster has had its minimum size, then +1 for each change of the members;
    `changed` is the index of the last one. Assignments are the authority on owners, the ring feeds placement.
    """

    version: int = 0
    members: tuple[NodeId, ...] = ()
    changed: Index = Index(0)

    @property
    def is_formed(self) -> bool:
        return self.version > 0


class RemovedNode(msgspec.Struct, frozen=True, array_like=True):
    """A node that was told to go: its store is not let in again."""

    store: bytes
    removed: Index
