"""Requests of administrators in the log: a key that makes a repeat harmless, and what a change relies on.

A proposer's session ends with its process; a key outlives it. Whoever lost the answer repeats the request at
any node, under any leader, and gets the first answer.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ringfence.control.model.ids import Index
from ringfence.control.model.results import Result

KEY_BYTES_MAX: Final = 320
"""Of a key with the name of who asks in front."""


def caller_of(key: str) -> str:
    """The name of the token that a key was given with, which stands in front of it; "" where none does."""
    caller, end, _ = key.partition("\n")
    return caller if end else ""


class RequestKey(msgspec.Struct, frozen=True, array_like=True):
    """`digest` tells the content of the request: other content under the same key is refused."""

    key: str
    digest: bytes


class Condition(msgspec.Struct, frozen=True, array_like=True):
    """The change is for the version `tag` of `resource`; see `machines.versions` for both."""

    resource: str
    tag: str


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """What a keyed request gave, at `index`."""

    digest: bytes
    index: Index
    result: Result
