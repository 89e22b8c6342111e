"""`ringfence token`: who may use the admin API and the data socket."""

from __future__ import annotations

import os
import secrets
import time
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from ringfence.control.cli.admin import Admin, http_options
from ringfence.control.cli.connection import timeout_option
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, json_option, show_table
from ringfence.control.cli.schema_text import parse_duration_ms
from ringfence.control.model.tokens import Role

# In front of every token, so that scanners of repositories can find one that was leaked.
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
    help="What it allows: read; send rows; topics, votes, drains; everything.",
)
@click.option(
    "--prefix",
    default="",
    metavar="TENANT/NAMESPACE/",
    help="Only for topics whose full names begin with it. [default: all]",
)
@click.option("--expires", metavar="TIME", help="How long it is good for, as 90d, 12h. [default: for ever]")
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A new file for the token, readable by you alone. [default: stdout]",
)
@http_options
@timeout_option
@json_option
def create(
    name: str,
    *,
    role: str,
    prefix: str,
    expires: str | None,
    to: Path | None,
    http: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Create token NAME and show it, once. The cluster keeps only its SHA-256.

    The first token is an admin's; from then on everybody needs one.

    \b
    Example:
      ringfence token create ci --role operator --expires 90d --to ci.token
    """  # noqa: D301
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    given: dict[str, Any] = {"name": name, "role": role, "sha256": sha256(token.encode()).hexdigest()}
    if prefix:
        given |= {"prefix": prefix}
    if expires is not None:
        given |= {"expires_ms": time.time_ns() // 1_000_000 + parse_duration_ms(expires)}
    admin = Admin(http, token_file, timeout_s)
    if to is not None:
        # Before the change: a token that cannot be kept is not to be.
        _keep(token, to)
    try:
        admin.change("POST", "/admin/tokens", given)
    except BaseException:
        if to is not None:
            to.unlink()
        raise
    told = {"name": name, "role": role, "expires_ms": given.get("expires_ms")}
    if as_json:
        emit({**told, "file": str(to)} if to is not None else {**told, "token": token})
    else:
        click.echo(token if to is None else f"{name} ({role}): {to}")
    return Exit.OK


@command.command("list")
@http_options
@timeout_option
@json_option
def list_tokens(*, http: str | None, token_file: Path | None, timeout_s: float, as_json: bool) -> int:
    """List tokens: names, roles, when they expire. Secrets are nowhere.

    \b
    Example:
      ringfence token list
    """  # noqa: D301
    tokens = Admin(http, token_file, timeout_s).get("/admin/tokens")["tokens"]
    if as_json:
        for token in tokens:
            emit(token)
        return Exit.OK
    rows = [
        [token["name"], token["role"], token["prefix"] or None, token["created"], _when(token["expires_ms"])]
        for token in tokens
    ]
    show_table("", ("token", "role", "prefix", "created at index", "expires"), rows)
    return Exit.OK


@command.command()
@click.argument("name")
@http_options
@timeout_option
@json_option
def revoke(name: str, *, http: str | None, token_file: Path | None, timeout_s: float, as_json: bool) -> int:
    """Revoke token NAME: it opens nothing any more.

    \b
    Example:
      ringfence token revoke ci
    """  # noqa: D301
    admin = Admin(http, token_file, timeout_s)
    left = [token["name"] for token in admin.get("/admin/tokens")["tokens"] if token["name"] != name]
    admin.change("DELETE", f"/admin/tokens/{quote(name, safe='')}")
    if not left:
        click.echo("no token is left: whoever reaches a node may read, write and administer", err=True)
    if as_json:
        emit({"revoked": name})
    else:
        click.echo(f"{name} revoked")
    return Exit.OK


def _keep(token: str, path: Path) -> None:
    """UsageError for a file that is there, or cannot be made."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.UsageError(f"--to: {path} is there already; name a new file. No token was made") from None
    except OSError as error:
        raise click.UsageError(f"--to {path}: {error.strerror}. No token was made") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(token + "\n")


def _when(unix_ms: int | None) -> str | None:
    if unix_ms is None:
        return None
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(unix_ms / 1_000))
