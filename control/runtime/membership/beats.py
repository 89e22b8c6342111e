"""Heartbeats: their fields by the level of the cluster, and how they are decoded."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from ringfence.control.model.ids import Index, TopicId
from ringfence.control.state_machines.layout.adoption import NodeAdoption
from ringfence.control.state_machines.rebalance.loads import LoadReport, RowReport

# Topics of one heartbeat with an open layout change: 24 KB. Those of further changes end by their time limit.
ADOPTED_MAX: Final = 1_024

# Sealed partitions of one heartbeat that their owner lacks: 9 KB. The others follow as these are handed over.
LACKING_MAX: Final = 1_024

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Bytes16 = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Beat(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A heartbeat. `at` and `digest` are the newest hashed metadata index and the state's hash there.

    `loads` is set every few seconds, for the leader and for nodes that advertise loads to producers. It also
    carries the program's level: programs without levels refuse a heartbeat with an additional field.
    """

    store: Bytes16
    index: Number
    started: Number
    at: Number
    digest: Bytes16
    loads: LoadReport | None = None


class TimedBeat(Beat, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A heartbeat from level 1 on; programs without levels refuse the additional field.

    `clock_ms` is the sender's wall clock, `time_ms` a leader's estimate of the cluster's time; 0 without an
    estimate, and from other nodes. Both are Unix ms. One field would not do: a receiver may know the sender
    as the leader when a heartbeat arrives that the sender wrote as a follower.
    """

    clock_ms: Number = 0
    time_ms: Number = 0


class LayoutBeat(TimedBeat, frozen=True, array_like=True, forbid_unknown_fields=False):
    """A heartbeat from level 2 on. Further fields at the end are ignored: later programs may add some.

    `adopted`: for each topic with a committed layout change, the lowest generation of its table that the
    sender's connections hold; a topic without connections that count is left out. `rows` belongs to `loads`.
    `lacking`: sealed partitions that the sender was given and cannot serve, because its log has not all of
    them.
    """

    adopted: Annotated[tuple[tuple[Number, Number], ...], Meta(max_length=ADOPTED_MAX)] = ()
    rows: RowReport | None = None
    lacking: Annotated[tuple[Number, ...], Meta(max_length=LACKING_MAX)] = ()

    @property
    def adoption(self) -> NodeAdoption:
        floors = {TopicId(topic): Index(floor) for topic, floor in self.adopted}
        return NodeAdoption(Index(self.index), floors)


_BEATS: Final = msgspec.msgpack.Decoder(LayoutBeat)


def decode(body: bytes) -> LayoutBeat:
    """A heartbeat of any level. Raises msgspec.MsgspecError."""
    return _BEATS.decode(body)
