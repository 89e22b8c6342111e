"""Derive the rights on the data socket from the metadata. Pure.

From the first token on, each client needs one there, as for the admin API. The setting `data_tokens` 0
postpones that while operators distribute tokens to clients.

Nodes call each other's data sockets, too. They present a credential that each node derives from its
metadata: HMAC-SHA-256 with the hash of the oldest permanent admin token as key. So nothing more is stored
or distributed, and a node that joins has the credential with the log. A process with neither the log nor
that admin token cannot compute it. The credential changes when the token is revoked: then connections are
evaluated again, and each side repeats its HELLO.

The key of proofs of member sessions (`member_proofs.py`) is derived in the same way, under another label.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

import msgspec

from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import RIGHTS, Role
from ringfence.control.state_machines.metadata.config import limit
from ringfence.native.wire import Right

# The name in error texts of the token that nodes present to each other.
NODES = "(nodes)"


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """One token in the form that the engine takes; `rights` are bits of `wire.Right`."""

    name: str
    hash: bytes
    rights: int
    expires_ms: int | None
    prefix: str


class Access(msgspec.Struct, frozen=True):
    """The engine's access table. This node presents `credential` to others. Proofs of members are made with
    `member_key`, 32 bytes, or none while nothing is asked for. The text of this value leaves both out.
    """

    is_asked: bool = False
    grants: tuple[Grant, ...] = ()
    credential: str = ""
    member_key: bytes = b""

    def __repr__(self) -> str:
        return f"Access(is_asked={self.is_asked}, tokens={len(self.grants)})"


# Without tokens: any client that reaches the socket may do everything.
OPEN = Access()


def access_of(state: MetadataState) -> Access:
    """The access table for the engine of every node."""
    if not state.tokens:
        return OPEN
    grants = [
        Grant(token.name, token.hash, RIGHTS[token.role], token.expires_ms, token.prefix)
        for _, token in sorted(state.tokens.items())
    ]
    credential = _derived(state, b"ringfence nodes").hex()
    grants.append(Grant(NODES, sha256(credential.encode()).digest(), Right.NODE, None, ""))
    is_asked = bool(limit(state, "data_tokens"))
    # Who need not show a token has no credential that a proof could be bound to.
    member_key = _derived(state, b"ringfence members") if is_asked else b""
    return Access(is_asked, tuple(grants), credential, member_key)


def _derived(state: MetadataState, label: bytes) -> bytes:
    """A secret of this cluster's nodes, 32 bytes: one for each label."""
    admins = [token for token in state.tokens.values() if token.role is Role.ADMIN]
    lasting = [token for token in admins if token.expires_ms is None]
    assert lasting, "the first token is a permanent admin token, and the last such token is revoked last"
    key = min(lasting, key=lambda token: token.created).hash
    return hmac.digest(key, label + state.cluster + state.history, "sha256")
