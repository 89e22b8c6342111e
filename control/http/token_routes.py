"""Serve tokens: list, create and revoke them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Body, Request, Response
from msgspec import UNSET

from ringfence.control.http import openapi_bodies
from ringfence.control.http.authorize import About
from ringfence.control.http.mutation_pipeline import Mutations
from ringfence.control.http.openapi_parts import change_router, content_of
from ringfence.control.http.problems import Problem
from ringfence.control.model.commands import CreateToken, RevokeToken
from ringfence.control.model.tokens import Role
from ringfence.control.runtime.handlers.commands import Plan, plan_of


def router(mutations: Mutations) -> APIRouter:
    """Tokens, for admins."""
    routes = change_router("tokens", mutations.access, Role.ADMIN, About.CLUSTER)
    node = mutations.node

    @routes.get("/admin/tokens", operation_id="tokens")
    async def tokens() -> openapi_bodies.Tokens:
        """All tokens, without their hashes."""
        by_name = sorted(node.proposer.state.tokens.items())
        return openapi_bodies.Tokens(
            tokens=[
                openapi_bodies.TokenShown(
                    name=name,
                    role=token.role,
                    created=token.created,
                    expires_ms=token.expires_ms,
                    prefix=token.prefix,
                    cohorts="" if token.cohorts is UNSET else token.cohorts,
                )
                for name, token in by_name
            ]
        )

    @routes.post(
        "/admin/tokens", operation_id="create_token", status_code=201, response_model=openapi_bodies.Receipt
    )
    async def create_token(request: Request, given: Annotated[openapi_bodies.TokenGiven, Body()]) -> Response:
        """Create a token for the secret with this SHA-256. From the first token on every client needs one.

        Draw 32 random bytes for the secret, as `ringfence token create` does.
        """
        command = CreateToken(
            name=given.name,
            hash=bytes.fromhex(given.sha256),
            role=given.role,
            expires_ms=given.expires_ms,
            prefix=given.prefix,
            cohorts=given.cohorts or UNSET,
        )
        return await mutations.change(
            request,
            f"token create {given.name} {given.role}",
            lambda: plan_of(command),
            wait=node.handlers.completion.carried_out_everywhere,
            content=content_of(given),
            status=201,
            path=f"/admin/tokens/{quote(given.name, safe='')}",
        )

    @routes.delete(
        "/admin/tokens/{name:path}", operation_id="revoke_token", response_model=openapi_bodies.Receipt
    )
    async def revoke_token(request: Request, name: openapi_bodies.Name) -> Response:
        """Revoke a token. Every node that has applied the change refuses its secret."""

        async def build() -> Plan:
            if name not in node.proposer.state.tokens:
                detail = f"no token is named {name[:100]!r}; `ringfence token list` lists them"
                raise Problem(404, "unknown-token", detail)
            return Plan((RevokeToken(name=name),))

        return await mutations.change(
            request,
            f"token revoke {name}",
            build,
            wait=node.handlers.completion.carried_out_everywhere,
            resource=f"token/{name}",
        )

    return routes
