"""Authenticate callers by their tokens, and authorize their requests by role and topic prefix.

While the cluster has no token, every local caller of a loopback address is an administrator, and all other
requests are refused. From the first token on every caller needs a token.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from enum import Enum
from hashlib import sha256
from hmac import compare_digest
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request

from ringfence.common.token import VARIABLE
from ringfence.control.http.problems import Problem
from ringfence.control.http.refusal_audit import RefusalAudit
from ringfence.control.model.state import MetadataState
from ringfence.control.model.tokens import RANKS, Role, Token
from ringfence.control.runtime.handlers.commands import Principal
from ringfence.control.runtime.process.addresses import is_loopback
from ringfence.native.wire import CREDENTIAL_BYTES_MAX


class About(Enum):
    """The subject of an operation. It decides whether a token with a topic prefix may call the operation."""

    # All of the cluster, with other tenants' topics, loads and moves. Refused to a token with a prefix.
    CLUSTER = "cluster"
    # Nodes, limits and positions, but no topic. A token with a prefix may read them, not change them.
    MEMBERS = "members"
    # The topic of the path, which is checked here; or topics that the operation checks itself.
    TOPICS = "topics"


# The caller while there are no tokens.
LOCAL_ADMIN: Final = Principal("local", Role.ADMIN)


class Access:
    """Checks callers against the tokens of the metadata, so a revoked token ends on all nodes."""

    def __init__(
        self,
        state: Callable[[], MetadataState],
        refusal_audit: RefusalAudit,
        *,
        loopback: bool,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._state, self._refusal_audit, self._loopback, self._now_ms = (
            state,
            refusal_audit,
            loopback,
            now_ms,
        )

    def needs(self, role: Role, about: About) -> Callable[[Request], Awaitable[Principal]]:
        """A dependency that admits a caller with at least `role`, within the prefix of its token."""

        async def authorize(request: Request) -> Principal:
            token: Token | None = None
            try:
                token = self._token(request)
                caller = LOCAL_ADMIN if token is None else self._holder(token)
                _check(caller, request, role, about)
            except Problem as problem:
                await self._refusal_audit.add(request, problem, token)
                raise
            request.state.principal = caller
            return caller

        return authorize

    def _token(self, request: Request) -> Token | None:
        """The token of a request, expired or not; None if none is needed.

        Raises:
            Problem: 401 without a token of the cluster, 403 for a request of a foreign web page.
        """
        tokens = self._state().tokens
        if not tokens:
            self._check_without_tokens(request)
            return None
        hashed = sha256(_bearer(request).encode()).digest()
        token = next((token for token in tokens.values() if compare_digest(token.hash, hashed)), None)
        if token is None:
            raise _unauthorized("no token has this secret; the token was revoked, or the secret is wrong")
        return token

    def _holder(self, token: Token) -> Principal:
        if token.expires_ms is not None and token.expires_ms <= self._now_ms():
            raise _unauthorized(f"token {token.name!r} has expired; ask an admin for a new token")
        return Principal(token.name, token.role, token.prefix)

    def _check_without_tokens(self, request: Request) -> None:
        if not self._loopback:
            raise _unauthorized(
                "the cluster has no tokens yet, and this address is not on loopback; create the first token "
                "at a loopback address: ringfence token create NAME --role admin"
            )
        # A page in a local browser must not act with the rights of the browser's user: neither through a
        # foreign name that resolves to this address (DNS rebinding) nor through a form that the page sends.
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not is_loopback(_host_of(host)):
            detail = f"host {host[:300]!r}: without tokens only names of loopback are served"
            raise Problem(403, "foreign-host", detail)
        if origin is not None and origin.partition("://")[2] != host:
            detail = f"origin {origin[:300]!r}: without tokens no requests of other pages are served"
            raise Problem(403, "foreign-origin", detail)


def check_topic(caller: Principal, topic: str) -> None:
    """Raise problem 403 if a topic's full name is outside of the caller's prefix."""
    if not topic.startswith(caller.prefix):
        detail = (
            f"topic {topic[:300]!r}: token {caller.name!r} is for topics that begin with {caller.prefix!r}"
        )
        raise Problem(403, "forbidden", detail, prefix=caller.prefix)


def _check(caller: Principal, request: Request, role: Role, about: About) -> None:
    """Raise problem 403 if the caller's role or prefix does not allow the request."""
    assert caller.role is not None, "a caller over HTTP has a role"
    if RANKS[caller.role] < RANKS[role]:
        detail = f"{caller.name!r} is {caller.role}, this needs {role}"
        raise Problem(403, "forbidden", detail, needs=str(role), has=str(caller.role))
    is_open = about is About.TOPICS or (about is About.MEMBERS and role is Role.VIEWER)
    if caller.prefix and not is_open:
        detail = (
            f"token {caller.name!r} is for topics that begin with {caller.prefix!r}, this request is about "
            "the whole cluster; use a token without a prefix"
        )
        raise Problem(403, "forbidden", detail, prefix=caller.prefix)
    if about is About.TOPICS and "tenant" in request.path_params:
        check_topic(caller, "/".join(request.path_params[part] for part in ("tenant", "namespace", "name")))


def _host_of(header: str) -> str:
    """The host in a Host header; empty if the header is malformed."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _bearer(request: Request) -> str:
    headers = request.headers.getlist("authorization")
    if not headers:
        raise _unauthorized(
            "no token; send `Authorization: Bearer TOKEN` (the command line takes it from the variable "
            f"{VARIABLE}, or from --token-file FILE)"
        )
    scheme, _, secret = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not 0 < len(secret) <= CREDENTIAL_BYTES_MAX:
        raise _unauthorized("the Authorization header is not `Bearer TOKEN`")
    return secret.strip()


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def principal(request: Request) -> Principal:
    """The caller, after a router's dependency has authorized the request."""
    caller = request.state.principal
    assert isinstance(caller, Principal), caller
    return caller
