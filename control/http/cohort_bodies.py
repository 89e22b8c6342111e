"""Define the bodies of requests and answers about cohorts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ringfence.control.http.openapi_bodies import NUMBER_MAX, Offset
from ringfence.control.model.cohorts import DELIVERY_LIMIT, HANDOVER_MS, LEASE_MS, CohortSettings

Mode = Literal["stream", "queue", "checkpoint"]
Beginning = Literal["earliest", "latest"]
DEFAULTS = CohortSettings()
# Positions of one seek: an entry of the log takes as many.
POSITIONS_MAX = 16_384


class _Given(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CohortGiven(_Given):
    """A declaration: mode and all settings. Settings that are left out have their defaults."""

    mode: Mode
    start: Beginning = Field(default="earliest", description="where a cohort begins that does not exist yet")
    handover_ms: Annotated[int, Field(ge=HANDOVER_MS[0], le=HANDOVER_MS[1])] = Field(
        default=DEFAULTS.handover_ms,
        description="a member that lost a partition has so long to acknowledge what it has",
    )
    lease_ms: Annotated[int, Field(ge=LEASE_MS[0], le=LEASE_MS[1])] = Field(
        default=DEFAULTS.lease_ms, description="queue: a member has rows for so long before others get them"
    )
    limit: Annotated[int, Field(ge=DELIVERY_LIMIT[0], le=DELIVERY_LIMIT[1])] = Field(
        default=DEFAULTS.limit, description="queue: failed deliveries after which a row is parked; 0: never"
    )

    @property
    def settings(self) -> CohortSettings:
        return CohortSettings(self.handover_ms, self.lease_ms, self.limit)


class PositionGiven(_Given):
    partition: Annotated[int, Field(ge=1, le=NUMBER_MAX)]
    offset: Offset
    epoch: Offset = Field(default=0, description="owner epoch of the row below the offset; 0: not known")


class SeekGiven(_Given):
    """Either `to` or `positions`. Clients resolve a time to positions."""

    to: Beginning | None = None
    positions: Annotated[list[PositionGiven], Field(min_length=1, max_length=POSITIONS_MAX)] | None = None
    rest: Beginning | None = Field(
        default=None, description="where partitions begin that no position says anything of"
    )
    incarnation: Offset = Field(default=0, description="the incarnation that is replaced; 0: any")
    forget_parked: bool = Field(default=False, description="give up what is parked")


class ParkedGiven(_Given):
    """Either `items` or `all`."""

    items: (
        Annotated[
            list[
                Annotated[list[Annotated[int, Field(ge=0, le=NUMBER_MAX)]], Field(min_length=2, max_length=2)]
            ],
            Field(min_length=1, max_length=4_096),
        ]
        | None
    ) = Field(default=None, description="[[partition, number]]")
    all: bool = False
    force: bool = Field(
        default=False, description="also where it is not known whether an export was committed"
    )


class SettingsShown(BaseModel):
    handover_ms: int
    lease_ms: int
    limit: int


class CohortEntryShown(BaseModel):
    """A cohort as the metadata has it."""

    topic: str
    cohort: str
    id: int
    mode: Mode
    start: str
    settings: SettingsShown
    version: int = Field(description="of the settings: the ETag")
    incarnation: int
    generation: int = Field(description="of the plan; it rises when slices of members change")
    not_begun: list[int] = Field(description="partitions that have not begun the incarnation")
    members: int
    idle_since_ms: int = Field(description="since when there is no member (Unix ms); 0 with members")


class CohortSummaryShown(CohortEntryShown):
    """Sums are of partitions whose owners answered; the others are in `unknown`."""

    lag_rows: int
    lag_ms: int | None = Field(description="age of the oldest row that is not settled; null: not known")
    parked: int = Field(description="parked ranges")
    parked_rows: int
    unassigned: int = Field(description="partitions that no member has")
    blocked: int = Field(description="partitions that wait for their parents or for a seek")
    paused: int = Field(description="partitions whose queue gives no new rows")
    leased_rows: int
    unknown: list[int] = Field(description="partitions whose owners did not answer")


class CohortsShown(BaseModel):
    """A page of cohorts. `more`: repeat the request with `after` = the last name."""

    cohorts: list[CohortSummaryShown]
    more: bool


class CohortMemberShown(BaseModel):
    member: str
    session: int
    state: Literal["connected", "grace", "unknown"]
    home: int
    since_ms: int
    partitions: int


class CohortMembersShown(BaseModel):
    members: list[CohortMemberShown]


class CohortPartitionShown(BaseModel):
    """Where a cohort is in one partition. `reason` says why figures are null."""

    partition: int
    name: str
    state: str
    gate: int = Field(description="the node that says who reads the partition")
    member: str
    settled: int | None
    end: int | None
    lag_rows: int | None
    lag_ms: int | None
    holder: int
    fencing_token: int
    waits_for: list[int]
    sought: bool
    drained: bool
    parked: int
    parked_rows: int
    leased_rows: int
    paused: str
    missed: list[list[int]] = Field(description="pruned parents that were not read: partition, end")
    reason: str


class CohortShown(CohortSummaryShown):
    member_list: list[CohortMemberShown]
    partitions: list[CohortPartitionShown]
    more: bool = Field(description="further partitions: repeat with `after` = the last one")


class SoughtShown(BaseModel):
    index: int
    incarnation: int
    waiting: list[int] = Field(description="partitions that have not begun yet")


class ParkedShown(BaseModel):
    """A range of rows that is not delivered. Its name is (partition, number)."""

    partition: int
    number: int
    first: int = Field(description="offset of its first row")
    rows: int
    count: int = Field(description="failed deliveries")
    reason: str = Field(description="of the last failure")
    time_ms: int = Field(description="since when (Unix ms)")
    state: Literal["parked", "exporting"]
    gone: int = Field(description="rows of it that the log does not have any more")
    scope: int = Field(description="id of the scope of an export that has begun; 0: none")


class ParkedListShown(BaseModel):
    """A page. `more`: repeat the request with `after` = the last PARTITION:NUMBER."""

    parked: list[ParkedShown]
    more: bool
    unknown: list[int] = Field(description="partitions whose owners did not answer")


Items = list[tuple[int, int]]


class ParkedOutcomeShown(BaseModel):
    """(partition, number) of ranges with which something else is so."""

    done: int = Field(description="number of ranges with which it was carried out")
    not_parked: Items = Field(description="not parked any more")
    gone: Items = Field(description="carried out, but rows of it are not in the log any more")
    exported: Items = Field(description="an export of it was committed before: it is exported")
    exporting: Items = Field(description="an export is under way; repeat the request")
    unknown: Items = Field(
        description="the owner did not answer, or it is not known whether an export was committed"
    )
