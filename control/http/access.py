"""Who asks, and what that one may do.

Without a token in the cluster: on loopback whoever is on this machine is an administrator, off loopback
nobody gets in. With the first token everybody needs one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request

from ringfence.common.token import VARIABLE
from ringfence.control.http.problems import Problem
from ringfence.control.http.refusal_audit import RefusalAudit
from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import RANKS, Role, Token
from ringfence.control.runtime.process.addresses import is_loopback
from ringfence.native.wire import CREDENTIAL_BYTES_MAX


class About(Enum):
    """What an operation tells or changes: it decides what a token with a prefix of topics may ask for."""

    CLUSTER = "cluster"
    """Everything: also other tenants' topics, loads or moves. Refused to a token with a prefix."""
    MEMBERS = "members"
    """Nodes, limits, positions; no topic. A token with a prefix may read it, and change nothing of it."""
    TOPICS = "topics"
    """The topic of the path, which is checked here; or topics that the operation itself checks."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. With a `prefix` only for topics whose full names begin with it."""

    name: str
    role: Role
    prefix: str = ""

    def check(self, topic: str) -> None:
        """Problem 403 when a topic's full name is outside of the prefix."""
        if not topic.startswith(self.prefix):
            detail = f"{self.name!r} is for topics that begin with {self.prefix!r}, {topic[:300]!r} does not"
            raise Problem(403, "forbidden", detail, prefix=self.prefix)


LOCAL_ADMIN: Final = Principal("local", Role.ADMIN)
"""Who asks while there are no tokens."""


class Access:
    """Reads tokens out of the metadata, so a revoked one ends everywhere at once."""

    def __init__(
        self,
        state: Callable[[], MetadataState],
        refused: RefusalAudit,
        *,
        loopback: bool,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._state, self._refused, self._loopback, self._now_ms = state, refused, loopback, now_ms

    def needs(self, role: Role, about: About) -> Callable[[Request], Awaitable[Principal]]:
        """A dependency that lets in a caller with at least `role`, within the prefix of its token."""

        async def let_in(request: Request) -> Principal:
            token: Token | None = None
            try:
                token = self._token(request)
                who = LOCAL_ADMIN if token is None else self._holder(token)
                _check(who, request, role, about)
            except Problem as problem:
                await self._refused.add(request, problem, token)
                raise
            request.state.principal = who
            return who

        return let_in

    def _token(self, request: Request) -> Token | None:
        """The token that a request shows, expired or not; None where none is needed.

        Problem 401 when it shows none that the cluster has, 403 for a foreign page's.
        """
        tokens = self._state().tokens
        if not tokens:
            self._check_without_tokens(request)
            return None
        hashed = sha256(_bearer(request).encode()).digest()
        token = next((token for token in tokens.values() if compare_digest(token.hash, hashed)), None)
        if token is None:
            raise _unauthorized("no token has this secret; it was revoked, or never was")
        return token

    def _holder(self, token: Token) -> Principal:
        if token.expires_ms is not None and token.expires_ms <= self._now_ms():
            raise _unauthorized(f"token {token.name!r} has expired; ask an admin for another one")
        return Principal(token.name, token.role, token.prefix)

    def _check_without_tokens(self, request: Request) -> None:
        if not self._loopback:
            raise _unauthorized(
                "the cluster has no tokens yet, and this address is off loopback; make the first one at a "
                "loopback address: ringfence token create NAME --role admin"
            )
        # A page in a browser on this machine must not pass for its user: neither by a name that leads here
        # (DNS rebinding) nor by a form that it sends.
        named, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not is_loopback(_host_of(named)):
            raise Problem(403, "foreign-host", "without tokens only names of loopback are served")
        if origin is not None and origin.partition("://")[2] != named:
            raise Problem(403, "foreign-origin", "without tokens no other page's requests are served")


def _check(who: Principal, request: Request, role: Role, about: About) -> None:
    """Problem 403 when who asks may not."""
    if RANKS[who.role] < RANKS[role]:
        detail = f"{who.name!r} is {who.role}, this needs {role}"
        raise Problem(403, "forbidden", detail, needs=str(role), has=str(who.role))
    is_open = about is About.TOPICS or (about is About.MEMBERS and role is Role.VIEWER)
    if who.prefix and not is_open:
        detail = (
            f"{who.name!r} is for topics that begin with {who.prefix!r} only, and this is about all of them; "
            "ask with a token without a prefix"
        )
        raise Problem(403, "forbidden", detail, prefix=who.prefix)
    if about is About.TOPICS and "tenant" in request.path_params:
        who.check("/".join(request.path_params[part] for part in ("tenant", "namespace", "name")))


def _host_of(named: str) -> str:
    """The host of a Host header; empty for one that is none."""
    try:
        return urlsplit(f"//{named}").hostname or ""
    except ValueError:
        return ""


def _bearer(request: Request) -> str:
    given = request.headers.getlist("authorization")
    if not given:
        raise _unauthorized(
            "no token; send `Authorization: Bearer TOKEN` (the command line takes it from the variable "
            f"{VARIABLE}, or from --token-file FILE)"
        )
    scheme, _, secret = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not 0 < len(secret) <= CREDENTIAL_BYTES_MAX:
        raise _unauthorized("the Authorization header is not `Bearer TOKEN`")
    return secret.strip()


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def principal(request: Request) -> Principal:
    """Who asks, once a router's dependency has let them in."""
    known = request.state.principal
    assert isinstance(known, Principal), known
    return known


Asking = Annotated[Principal, Depends(principal)]
