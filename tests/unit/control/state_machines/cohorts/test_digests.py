"""Lists of sessions and slices, packed and hashed alike on every machine."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.control.model.cohorts import MemberSession
from ringfence.control.state_machines.cohorts.digests import (
    pack_sessions,
    sessions_digest,
    slices_digest,
    unpack_sessions,
)
from tests.fakes.cohort_log import CohortLog


def test_a_list_of_sessions_is_ascending_whatever_its_order_was() -> None:
    sessions = [MemberSession(number) for number in (9 << 16, 3, 1 << 47, 3)]
    packed = pack_sessions(sessions)
    assert packed == pack_sessions(sessions[::-1])
    assert unpack_sessions(packed) == (3, 9 << 16, 1 << 47)
    assert sessions_digest(packed) != sessions_digest(packed[:-8])
    assert unpack_sessions(b"") == ()
    for unsound in (packed[:-1], packed[8:16] + packed[:8], packed[:8] * 2):
        with pytest.raises(ValueError, match="a list of sessions"):
            unpack_sessions(unsound)


def test_slices_have_another_digest_if_and_only_if_they_differ() -> None:
    log = CohortLog()
    number = log.create()
    log.join(number, "a", "b", "idle")
    ids = [part.partition for part in log.active]
    log.must(log.publish(number, a=(ids[:2], []), b=(ids[2:3], [])))
    first = slices_digest(log.members(number))
    log.must(log.leave(number, "idle"))
    assert slices_digest(log.members(number)) == first, "an empty slice is none"
    seen = {first}
    later: list[dict[str, Any]] = [
        {"a": ([], ids[1:2]), "b": (ids[1:2], [])},
        {"b": (ids[3:], [])},
        {"a": ([], ids[:1])},
    ]
    for changes in later:
        log.must(log.publish(number, **changes))
        seen.add(slices_digest(log.members(number)))
    assert len(seen) == 4
