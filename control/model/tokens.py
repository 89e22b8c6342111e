"""Tokens: a name, a role, and the hash of a secret that only its holder knows.

Here roles are defined, once: their order is what the admin API goes by, `RIGHTS` what the data socket does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from ringfence.control.model.ids import Index
from ringfence.native.wire import Right

HASH_BYTES: Final = 32
"""SHA-256 of the secret. Secrets are 256 random bits, so a slow hash would protect nothing."""


class Role(StrEnum):
    """What a token allows; each role may do what those before it may."""

    VIEWER = "viewer"
    """Read."""
    WRITER = "writer"
    """Send rows to topics that are there, too; all that a producer needs."""
    OPERATOR = "operator"
    """Topics, and where votes and partitions are: what can be taken back, or was made for change."""
    ADMIN = "admin"
    """Nodes for good, limits of the cluster, tokens, rebalances."""


RANKS: Final = {role: rank for rank, role in enumerate(Role)}
RIGHTS: Final[dict[Role, int]] = {
    Role.VIEWER: Right.READ,
    Role.WRITER: Right.READ | Right.WRITE,
    Role.OPERATOR: Right.READ | Right.WRITE | Right.MANAGE,
    Role.ADMIN: Right.READ | Right.WRITE | Right.MANAGE,
}
"""What a role may do on the data socket, as bits. `Right.NODE` is no role's."""


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
