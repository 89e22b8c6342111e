"""Requests of administrators in the log: keys that make repeats harmless, and conditions of changes.

A proposer's session ends with its process; a key lasts longer. A caller that lost the answer repeats the
request at any node, under any leader, and gets the first answer.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ringfence.control.model.ids import Index
from ringfence.control.model.results import Result

# Bytes of a key, with the caller's name in front.
KEY_BYTES_MAX: Final = 320


def caller_of(key: str) -> str:
    """The name of the caller's token in front of a key; "" without one."""
    caller, end, _ = key.partition("\n")
    return caller if end else ""


class RequestKey(msgspec.Struct, frozen=True, array_like=True):
    """`digest` identifies the request's content: other content with the same key is refused."""

    key: str
    digest: bytes


class Condition(msgspec.Struct, frozen=True, array_like=True):
    """The change is for the version `tag` of `resource`; see `state_machines.metadata.etags` for both."""

    resource: str
    tag: str


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """The result of a keyed request, applied at `index`."""

    digest: bytes
    index: Index
    result: Result
