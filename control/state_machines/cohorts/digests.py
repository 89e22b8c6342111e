"""Digests of lists that are told again and again: equal lists give equal digests on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import pairwise
from typing import Final

from ringfence.control.model.cohorts import Member, MemberSession

DIGEST_BYTES: Final = 16
_SESSION_BYTES: Final = 8


def pack_sessions(sessions: Iterable[MemberSession]) -> bytes:
    """The sessions as ascending u64, little-endian, each once."""
    return b"".join(session.to_bytes(_SESSION_BYTES, "little") for session in sorted({*sessions}))


def unpack_sessions(data: bytes) -> tuple[MemberSession, ...]:
    """The sessions of a packed list. ValueError if it is not one."""
    if len(data) % _SESSION_BYTES:
        raise ValueError(f"a list of sessions of {len(data)} bytes: a multiple of {_SESSION_BYTES}")
    found = tuple(
        MemberSession(int.from_bytes(data[place : place + _SESSION_BYTES], "little"))
        for place in range(0, len(data), _SESSION_BYTES)
    )
    if any(one >= other for one, other in pairwise(found)):
        raise ValueError("a list of sessions is not ascending")
    return found


def sessions_digest(packed: bytes) -> bytes:
    """The digest of a packed list."""
    return blake2b(packed, digest_size=DIGEST_BYTES).digest()


def slices_digest(members: Mapping[str, Member]) -> bytes:
    """The digest of the slices of a cohort's members: equal if and only if the slices are."""
    total = blake2b(digest_size=DIGEST_BYTES)
    for name in sorted(members):
        share = members[name].slice
        if share:
            total.update(b"%s\0%d\0" % (name.encode(), len(share)))
            total.update(b"".join(part.to_bytes(8, "little") for part in share))
    return total.digest()
