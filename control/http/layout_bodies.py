"""Define the bodies of answers about layouts."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class LayoutPartition(BaseModel):
    """A partition of a layout. `end_offset` and `sealed_ms` are null of an ACTIVE one."""

    partition: int
    name: str
    lo: int
    hi: int
    state: str
    parents: list[int]
    children: list[int]
    created_version: int
    sealed_version: int
    owner: int
    epoch: int
    replicas: list[int]
    end_offset: int | None
    sealed_ms: int | None
    lowered: bool = Field(description="an operator accepted a smaller end after a loss")
    gone: list[list[int]] = Field(description="pruned parents: partition, and the offset where it ended")
    change: int | None = Field(description="the open change of the partition")


class LayoutPartitionShown(LayoutPartition):
    ancestors: list[int]
    descendants: list[int]


class ChildShown(BaseModel):
    partition: int
    lo: int
    hi: int
    nodes: list[int] = Field(description="the owner first; empty after the COMMIT")


class TransitionShown(BaseModel):
    """An open layout change as the metadata has it.

    `version`, `from`, `to` and `adoption_generation` are 0 before the COMMIT.
    """

    model_config = ConfigDict(populate_by_name=True)
    change: int
    topic: int
    name: str
    kind: str
    phase: str
    sources: list[int]
    children: list[ChildShown]
    version: int
    before: int = Field(alias="from", description="number of ACTIVE partitions before")
    to: int
    adoption_generation: int
    why: str


class TransitionProgress(TransitionShown):
    phase_ms: int | None = Field(description="ms in this phase; null without an answer of the leader")
    phases_ms: dict[str, int] = Field(description="ms of the phases that are over")
    gap_us: int | None = Field(description="for how long no partition took rows; null: not measured")
    overdue: list[str] = Field(description="readers that do not hold the sources any longer")
    waits: list[str] = Field(description="what the change waits for")


class EndedChange(BaseModel):
    """A layout change that is over. `result` is finalized, aborted or deleted."""

    change: int
    topic: str
    kind: str
    why: str = Field(description="why it was aborted, or why it began; empty of a change by an operator")
    sources: int
    children: int
    phases_ms: dict[str, int]
    gap_us: int | None
    result: str
    waited_ms: int | None = Field(description="ms from drained sources to the end")
    timed_out: bool = Field(description="at the end clients held older tables, or there was no client")


class TransitionsShown(BaseModel):
    transitions: list[TransitionProgress]
    count: int
    ended: list[EndedChange] = Field(default=[], description="the newest ones that are over")


class Layout(BaseModel):
    topic: int
    name: str
    version: int
    partitions: list[LayoutPartition]
    transitions: list[TransitionShown]


class LayoutChangeShown(BaseModel):
    """A layout change. `change` is null if nothing was to be done, and in a preview."""

    change: int | None
    kind: str | None = None
    phase: str | None = None
    version: int | None = None
    partitions: list[LayoutPartition] | None = Field(default=None, description="the children")
    gap_us: int | None = Field(default=None, description="for how long no partition took rows, if measured")
    phases_ms: dict[str, int] | None = Field(default=None, description="ms of the phases that are over")
    sources: list[int] | None = Field(default=None, description="of a preview")
    would: list[tuple[int, int, list[int]]] | None = Field(
        default=None, description="of a preview: ranges and nodes of the children, the owner first"
    )


class Candidate(BaseModel):
    """A hot partition, or a cold pair, and what suppresses its split or merge; null: nothing does."""

    kind: str
    partitions: list[int]
    bytes_s: float
    rows_s: float
    for_s: float = Field(description="seconds since the load is that high or low")
    suppressed: str | None
    text: str


class HotKeyShown(BaseModel):
    partition: int
    slot: int
    percent: int


class LayoutExplained(BaseModel):
    """The last decision about automatic splits and merges of a topic. `at_ms` is null without one."""

    topic: int
    name: str
    split: bool
    merge: bool
    at_ms: int | None
    why: str
    action: str | None
    settings: dict[str, int]
    candidates: list[Candidate]
    hot_keys: list[HotKeyShown]
