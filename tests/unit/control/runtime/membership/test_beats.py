"""Heartbeats of all levels are decoded, and fields of later programs are ignored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import astuple

from ringfence.control.model.ids import Index, TopicId
from ringfence.control.runtime.membership import beats
from ringfence.control.runtime.membership.beats import ADOPTED_MAX, LACKING_MAX, Beat, LayoutBeat, TimedBeat
from ringfence.control.state_machines.layout.adoption import NodeAdoption
from ringfence.control.state_machines.rebalance.loads import RowReport

FIELDS = (b"s" * 16, 30, 20, 10, b"d" * 16)


def test_heartbeats_of_each_level_are_decoded_as_what_they_tell() -> None:
    old = beats.decode(msgspec.msgpack.encode(Beat(*FIELDS)))
    assert (old.index, old.clock_ms, old.adopted) == (30, 0, ())
    timed = beats.decode(msgspec.msgpack.encode(TimedBeat(*FIELDS, clock_ms=5, time_ms=6)))
    assert (timed.clock_ms, timed.time_ms, timed.adopted) == (5, 6, ())
    newest = LayoutBeat(*FIELDS, clock_ms=5, adopted=((7, 29),), rows=RowReport((3, 4), 5, 60))
    decoded = beats.decode(msgspec.msgpack.encode(newest))
    assert decoded == newest
    assert decoded.adoption == NodeAdoption(Index(30), {TopicId(7): Index(29)})
    assert decoded.lacking == ()
    lacks = beats.decode(msgspec.msgpack.encode(LayoutBeat(*FIELDS, lacking=(812,))))
    assert (lacks.adopted, lacks.lacking) == ((), (812,))


def test_fields_of_a_later_program_are_ignored() -> None:
    later = msgspec.msgpack.encode([*astuple(LayoutBeat(*FIELDS, adopted=((7, 29),))), "more", [1]])
    assert beats.decode(later).adopted == ((7, 29),)


@pytest.mark.parametrize(
    "wrong",
    [
        [b"s" * 16, 30],
        [*FIELDS, None, 0, 0, [[1, 2]] * (ADOPTED_MAX + 1)],
        [*FIELDS, None, 0, 0, [[1]]],
        [*FIELDS, None, 0, 0, [], [1] * (LACKING_MAX + 1)],
        [*FIELDS, None, 0, 0, [], [-1]],
        [*FIELDS, None, 0, 0, [[1, -2]]],
        [b"short", *FIELDS[1:]],
    ],
)
def test_what_is_no_heartbeat_is_refused(wrong: list[Any]) -> None:
    with pytest.raises(msgspec.MsgspecError):
        beats.decode(msgspec.msgpack.encode(wrong))
