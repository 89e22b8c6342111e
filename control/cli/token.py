"""`ringfence token`: create, list and revoke tokens for the admin API and the data socket."""

from __future__ import annotations

import os
import secrets
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from ringfence.control.cli.endpoint import Endpoint, admin_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, show_table
from ringfence.control.cli.schema_text import parse_duration_ms
from ringfence.control.model.tokens import Role

# Start of every token, so that secret scanners can find a leaked token.
PREFIX: Final = "rf_"
RANDOM_BYTES: Final = 32


@click.group(no_args_is_help=True)
def command() -> None:
    """Create, list and revoke tokens of the admin API and the data socket.

    \b
    Example:
      ringfence token create alice --role admin --to alice.token
    """  # noqa: D301 - click's \b keeps the lines


@command.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice([str(role) for role in Role]),
    required=True,
    help="Rights: read rows; consume in cohorts; send rows; manage topics, votes and drains; everything.",
)
@click.option(
    "--prefix",
    default="",
    metavar="TENANT/NAMESPACE/",
    help="Restrict the token to topics whose full names begin with this prefix. [default: all]",
)
@click.option(
    "--cohorts",
    default="",
    metavar="PREFIX",
    help="Restrict the token to cohorts whose names begin with this prefix. [default: all]",
)
@click.option("--expires", metavar="TIME", help="Lifetime, for example 90d or 12h. [default: unlimited]")
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    help="New file for the token, readable only by you. [default: stdout]",
)
@admin_options
def create(
    name: str,
    *,
    role: str,
    prefix: str,
    cohorts: str,
    expires: str | None,
    to: Path | None,
    endpoint: Endpoint,
    as_json: bool,
) -> int:
    """Create token NAME and show it, once. The cluster keeps only its SHA-256.

    The first token must have role admin; afterwards every request needs a token.

    \b
    Example:
      ringfence token create ci --role operator --expires 90d --to ci.token
    """  # noqa: D301
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    body: dict[str, Any] = {"name": name, "role": role, "sha256": sha256(token.encode()).hexdigest()}
    if prefix:
        body |= {"prefix": prefix}
    if cohorts:
        body |= {"cohorts": cohorts}
    if expires is not None:
        body |= {"expires_ms": time.time_ns() // 1_000_000 + parse_duration_ms(expires)}
    admin = endpoint.admin()
    if to is not None:
        # Before the change: without the file the token would be lost.
        _write_file(token, to)
    try:
        admin.change("POST", "/admin/tokens", body)
    except BaseException:
        if to is not None:
            to.unlink()
        raise
    values = {"name": name, "role": role, "expires_ms": body.get("expires_ms")}
    if as_json:
        emit({**values, "file": str(to)} if to is not None else {**values, "token": token})
    else:
        click.echo(token if to is None else f"{name} ({role}): {to}")
    return Exit.OK


@command.command("list")
@admin_options
def list_tokens(*, endpoint: Endpoint, as_json: bool) -> int:
    """List tokens with roles and expiry times. The cluster does not store the secrets.

    \b
    Example:
      ringfence token list
    """  # noqa: D301
    tokens = endpoint.admin().get("/admin/tokens")["tokens"]
    if as_json:
        for token in tokens:
            emit(token)
        return Exit.OK
    rows = [
        [
            token["name"],
            token["role"],
            token["prefix"] or None,
            token["created"],
            _utc_text(token["expires_ms"]),
        ]
        for token in tokens
    ]
    show_table("", ("token", "role", "prefix", "created at index", "expires"), rows)
    return Exit.OK


@command.command()
@click.argument("name")
@admin_options
def revoke(name: str, *, endpoint: Endpoint, as_json: bool) -> int:
    """Revoke token NAME; requests with it are refused.

    \b
    Example:
      ringfence token revoke ci
    """  # noqa: D301
    admin = endpoint.admin()
    left = [token["name"] for token in admin.get("/admin/tokens")["tokens"] if token["name"] != name]
    admin.change("DELETE", f"/admin/tokens/{quote(name, safe='')}")
    if not left:
        click.echo(
            "no token is left: every client that reaches a node may read, write and administer", err=True
        )
    if as_json:
        emit({"revoked": name})
    else:
        click.echo(f"{name} revoked")
    return Exit.OK


def _write_file(token: str, path: Path) -> None:
    """Write the token to a new file. UsageError if the file exists or cannot be created."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.UsageError(f"--to: {path} exists; name a new file. No token was created") from None
    except OSError as error:
        raise click.UsageError(f"--to {path}: {error.strerror}. No token was created") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(token + "\n")


def _utc_text(unix_ms: int | None) -> str | None:
    if unix_ms is None:
        return None
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(unix_ms / 1_000))
