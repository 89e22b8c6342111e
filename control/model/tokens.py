"""Tokens: a name, a role, and the hash of a secret that only its holder knows.

The roles are defined here only. The admin API compares their order, the data socket uses `RIGHTS`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from ringfence.control.model.ids import Index
from ringfence.native.wire import Right

# SHA-256 of the secret. Secrets are 256 random bits, so a slow hash would add no protection.
HASH_BYTES: Final = 32


class Role(StrEnum):
    """The permissions of a token; each role includes those before it."""

    # Read.
    VIEWER = "viewer"
    # Be a member of cohorts as well: read and acknowledge. From level 3 of the cluster on.
    CONSUMER = "consumer"
    # Send rows to existing topics as well; a producer needs no more.
    WRITER = "writer"
    # Topics, votes, and places of partitions: changes that can be reversed, or that are routine.
    OPERATOR = "operator"
    # Removal of nodes, limits of the cluster, tokens, rebalances.
    ADMIN = "admin"


RANKS: Final = {role: rank for rank, role in enumerate(Role)}
# Rights of a role on the data socket, as bits. No role has `Right.NODE`.
RIGHTS: Final[dict[Role, int]] = {
    Role.VIEWER: Right.READ,
    Role.CONSUMER: Right.READ | Right.CONSUME,
    Role.WRITER: Right.READ | Right.CONSUME | Right.WRITE,
    Role.OPERATOR: Right.READ | Right.CONSUME | Right.WRITE | Right.MANAGE,
    Role.ADMIN: Right.READ | Right.CONSUME | Right.WRITE | Right.MANAGE,
}


class Token(msgspec.Struct, frozen=True):
    """One token. `expires_ms` is Unix ms by the reader's clock, None for never.

    With a `prefix` it is valid for topics whose full names begin with it, and for no other change. With
    `cohorts` it is valid for cohorts whose names begin so; UNSET: for all.
    """

    name: str
    hash: bytes
    role: Role
    created: Index
    expires_ms: int | None = None
    prefix: str = ""
    cohorts: str | UnsetType = UNSET
