"""Who may do what on the data socket, as the metadata says. Pure.

With the first token everybody needs one there, as for the admin API; `data_tokens` 0 puts that off while
clients are given theirs.

Nodes call each other's data sockets, too. They show a credential that each derives from the metadata it has:
HMAC-SHA-256 with the hash of the oldest lasting admin's token as key. So nothing more is stored or handed
out, who joins has it with the log, and who has neither the log nor that admin's token cannot make it. It
changes when that token is revoked; connections are judged anew then, and each side says HELLO again.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

import msgspec

from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import RIGHTS, Role
from ringfence.control.state_machines.metadata.config import limit
from ringfence.native.wire import Right

NODES = "(nodes)"
"""In errors: whose token it is that nodes show each other."""


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """One token as the engine knows it; `rights` are bits of `wire.Right`."""

    name: str
    hash: bytes
    rights: int
    expires_ms: int | None
    prefix: str


class Access(msgspec.Struct, frozen=True):
    """`credential` is what this node shows to others; the text of this value leaves it out."""

    is_asked: bool = False
    grants: tuple[Grant, ...] = ()
    credential: str = ""

    def __repr__(self) -> str:
        return f"Access(is_asked={self.is_asked}, tokens={len(self.grants)})"


OPEN = Access()
"""Without tokens: whoever reaches the socket may do all."""


def access_of(state: MetadataState) -> Access:
    """What the engine of every node is told."""
    if not state.tokens:
        return OPEN
    grants = [
        Grant(token.name, token.hash, RIGHTS[token.role], token.expires_ms, token.prefix)
        for _, token in sorted(state.tokens.items())
    ]
    credential = _node_credential(state)
    grants.append(Grant(NODES, sha256(credential.encode()).digest(), Right.NODE, None, ""))
    return Access(bool(limit(state, "data_tokens")), tuple(grants), credential)


def _node_credential(state: MetadataState) -> str:
    admins = [token for token in state.tokens.values() if token.role is Role.ADMIN]
    lasting = [token for token in admins if token.expires_ms is None]
    assert lasting, "the first token is an admin's that lasts, and the last such is revoked last"
    key = min(lasting, key=lambda token: token.created).hash
    return hmac.new(key, b"ringfence nodes" + state.cluster + state.history, sha256).hexdigest()
