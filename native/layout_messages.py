"""MessagePack bodies of layout changes: split, merge, repartition, and rows that are staged again.

docs/protocol.md lists the ones that a node of this version serves.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from ringfence.native.messages import Message, PartitionEntry, prepare_messages

# ---- layout changes ---------------------------------------------------------------------------------


class LayoutChange(Message):
    """LAYOUT_CHANGE: split, merge or repartition a topic, or end a change before its COMMIT.

    `action`: split | merge | repartition | abort | auto. `partitions`: the one to split, the two to merge.
    `at`: slots at which children begin; or `into`: their number. `change`: of abort. `key` makes a repeat the
    same request. `auto`: settings of automatic splits and merges of the topic; null removes one.
    """

    topic: str
    action: str
    partitions: list[int] = msgspec.field(default_factory=list)
    at: list[int] = msgspec.field(default_factory=list)
    into: int = 0
    change: int = 0
    wait_ms: int = 0
    preview: bool = False
    key: str = ""
    auto: dict[str, int | None] | UnsetType = UNSET


class LayoutChanged(Message):
    """Answer to LAYOUT_CHANGE.

    `change`: 0 where nothing had to be changed. `partitions`: those that the change names, as far as it has
    gone. `gap_us`: for how long no partition took rows of these slots. `would`, of a preview: (lo, hi, nodes)
    of each child.
    """

    change: int
    kind: str
    phase: str
    version: int
    partitions: list[PartitionEntry] = msgspec.field(default_factory=list)
    gap_us: int = 0
    would: list[tuple[int, int, list[int]]] | UnsetType = UNSET


class LayoutDescribe(Message):
    """LAYOUT_DESCRIBE: partitions with ids above `after`, in the order of their ids."""

    topic: str
    after: int = 0


class OpenTransition(Message):
    """A layout change that is not finalized.

    `before`, `after`: numbers of ACTIVE partitions. `overdue`: readers that are not waited for any more.
    `waits`: what it waits for.
    """

    change: int
    kind: str
    phase: str
    version: int
    before: int = msgspec.field(name="from")
    after: int = msgspec.field(name="to")
    adoption_generation: int = 0
    overdue: list[str] = msgspec.field(default_factory=list)
    waits: list[str] = msgspec.field(default_factory=list)


class LayoutDescribed(Message):
    """Answer to LAYOUT_DESCRIBE."""

    version: int
    partitions: list[PartitionEntry]
    transitions: list[OpenTransition] = msgspec.field(default_factory=list)
    more: bool = False


# ---- rows that are staged again ---------------------------------------------------------------------


class StagedList(Message):
    """STAGED_LIST: what is staged under these tokens in one partition, in records above `after`."""

    scope: int
    epoch: int
    tokens: list[bytes]
    after: int = 0


class StagedBatches(Message):
    """Answer to STAGED_LIST.

    `batches`: (record number, rows, index of the token). `sealed_version`: 0 of an ACTIVE partition.
    """

    batches: list[tuple[int, int, int]]
    more: bool = False
    sealed_version: int = 0


prepare_messages(globals())
