"""`ringfence config`: the limits of a cluster, which every node keeps and goes by at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

from ringfence.control.cli.admin import Admin, http_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, json_option, show_table
from ringfence.control.cli.rebalance_api import timeout_option
from ringfence.control.runtime.process.settings import parse_size
from ringfence.native.errors import InvalidArgumentError

COLUMNS: Final = ("value", "default", "low", "high", "reason")


@click.group(no_args_is_help=True)
def command() -> None:
    """Show and change the limits of a cluster.

    What one node alone is run with are flags of `serve`.

    \b
    Example:
      ringfence config set sync_bytes_per_s=50MB --http http://127.0.0.1:7412
    """  # noqa: D301 - click's \b keeps the lines


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@http_options
@timeout_option
@json_option
def show(
    names: tuple[str, ...], *, http: str | None, token_file: Path | None, timeout_s: float, as_json: bool
) -> int:
    """Show limits NAME, or all: value, default, range, and the reason of the default.

    \b
    Example:
      ringfence config show
      ringfence config show moves_concurrent sync_bytes_per_s
    """  # noqa: D301
    known = _limits(Admin(http, token_file, timeout_s))
    _check(names, known)
    chosen = {name: known[name] for name in names or known}
    if as_json:
        for name, limit in chosen.items():
            emit({"name": name, **limit})
    else:
        rows = [[name, *(limit[column] for column in COLUMNS)] for name, limit in chosen.items()]
        show_table("", ("name", *COLUMNS), rows, ids=COLUMNS)
    return Exit.OK


@command.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=VALUE...")
@http_options
@timeout_option
@json_option
def set_(
    pairs: tuple[str, ...], *, http: str | None, token_file: Path | None, timeout_s: float, as_json: bool
) -> int:
    """Change limits on all nodes, all of them or none; VALUE may be a size, as 50MB, or `default`.

    \b
    Example:
      ringfence config set moves_concurrent=4 sync_bytes_per_s=50MB
      ringfence config set moves_concurrent=default
    """  # noqa: D301
    given = _pairs(pairs)
    admin = Admin(http, token_file, timeout_s)
    known = _limits(admin)
    _check(tuple(given), known)
    values = {name: _value(name, text, known[name]) for name, text in given.items()}
    receipt = admin.change("PATCH", "/admin/config", {"values": values})
    if as_json:
        emit({"index": receipt["index"], "values": values})
    else:
        for name, value in values.items():
            click.echo(f"{name}: {value}, was {known[name]['value']}")
    return Exit.OK


def _limits(admin: Admin) -> dict[str, Any]:
    told: dict[str, Any] = admin.get("/admin/config?linearizable=true")["values"]
    return told


def _check(names: tuple[str, ...], known: dict[str, Any]) -> None:
    """InvalidArgumentError for a name that this cluster does not know."""
    for name in names:
        if name not in known:
            raise InvalidArgumentError(f"no limit is named {name!r}; there are {', '.join(known)}", name=name)


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """Values by name, as they were given. UsageError for what is no NAME=VALUE, or named twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise click.UsageError(f"{text!r}: NAME=VALUE, as sync_bytes_per_s=50MB")
        if name in found:
            raise click.UsageError(f"{name} is given twice")
        found[name] = value
    return found


def _value(name: str, text: str, limit: dict[str, Any]) -> int:
    """UsageError for what is no number; InvalidArgumentError for one outside the limit's range."""
    if text == "default":
        return int(limit["default"])
    size, allowed = parse_size(text), f"from {limit['low']} to {limit['high']}"
    # A size may have a fraction, 1.5GB; a count may not.
    if not isinstance(size, int) or re.fullmatch(r"[0-9]*[.][0-9]*", text):
        raise click.UsageError(f"{name}={text}: a whole number {allowed}, or a size as 50MB, or `default`")
    if not limit["low"] <= size <= limit["high"]:
        raise InvalidArgumentError(f"{name}={text}: {allowed}; {limit['reason']}", name=name)
    return size
