"""Tokens of administrators: a name, a role, and the hash of a secret that only its holder knows."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ringfence.control.model.ids import Index

HASH_BYTES: Final = 32
"""SHA-256 of the secret. Secrets are 256 random bits, so a slow hash would protect nothing."""


class Role(StrEnum):
    """What a token allows; each role may do what those before it may."""

    VIEWER = "viewer"
    """Read."""
    OPERATOR = "operator"
    """Topics, and where votes and partitions are: what can be taken back, or was made for change."""
    ADMIN = "admin"
    """Nodes for good, limits of the cluster, tokens, rebalances."""


class Token(msgspec.Struct, frozen=True):
    """One token. `expires_ms` is Unix ms by the reader's clock, None for never.

    With a `prefix` it is good for topics whose full names begin with it, and for nothing else that changes.
    """

    name: str
    hash: bytes
    role: Role
    created: Index
    expires_ms: int | None = None
    prefix: str = ""
