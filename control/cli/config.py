"""`ringfence config`: show and change the limits of a cluster; changes apply to all nodes immediately."""

from __future__ import annotations

import re
from typing import Any, Final

import click

from ringfence.control.cli.admin import Admin
from ringfence.control.cli.endpoint import Endpoint, cluster_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, show_table
from ringfence.control.runtime.process.sizes import parse_size
from ringfence.native.errors import InvalidArgumentError

COLUMNS: Final = ("value", "default", "low", "high", "reason")


@click.group(no_args_is_help=True)
def command() -> None:
    """Show and change the limits of a cluster.

    Settings of a single node are flags of `serve`.

    \b
    Example:
      ringfence config set sync_bytes_per_s=50MB --http http://127.0.0.1:7412
    """  # noqa: D301 - click's \b keeps the lines


@command.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@cluster_options
def show(names: tuple[str, ...], *, endpoint: Endpoint, as_json: bool) -> int:
    """Show the limits NAME, or all limits: value, default, range, and reason of the default.

    \b
    Example:
      ringfence config show
      ringfence config show moves_concurrent sync_bytes_per_s
    """  # noqa: D301
    limits = _limits(endpoint.admin())
    _check(names, limits)
    chosen = {name: limits[name] for name in names or limits}
    if as_json:
        for name, limit in chosen.items():
            emit({"name": name, **limit})
    else:
        rows = [[name, *(limit[column] for column in COLUMNS)] for name, limit in chosen.items()]
        show_table("", ("name", *COLUMNS), rows, ids=COLUMNS)
    return Exit.OK


@command.command("set")
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=VALUE...")
@cluster_options
def set_(pairs: tuple[str, ...], *, endpoint: Endpoint, as_json: bool) -> int:
    """Change limits on all nodes, all limits or none. VALUE may be a size such as 50MB, or `default`.

    \b
    Example:
      ringfence config set moves_concurrent=4 sync_bytes_per_s=50MB
      ringfence config set moves_concurrent=default
    """  # noqa: D301
    texts = _pairs(pairs)
    admin = endpoint.admin()
    limits = _limits(admin)
    _check(tuple(texts), limits)
    values = {name: _value(name, text, limits[name]) for name, text in texts.items()}
    receipt = admin.change("PATCH", "/admin/config", {"values": values})
    if as_json:
        emit({"index": receipt["index"], "values": values})
    else:
        for name, value in values.items():
            click.echo(f"{name}: {value}, was {limits[name]['value']}")
    return Exit.OK


def _limits(admin: Admin) -> dict[str, Any]:
    limits: dict[str, Any] = admin.get("/admin/config?linearizable=true")["values"]
    return limits


def _check(names: tuple[str, ...], limits: dict[str, Any]) -> None:
    """InvalidArgumentError for a name that is not a limit of this cluster."""
    for name in names:
        if name not in limits:
            raise InvalidArgumentError(
                f"no limit is named {name!r}; the limits are {', '.join(limits)}", name=name
            )


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the texts of values by name. UsageError if a text is not NAME=VALUE or a name is repeated."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value:
            raise click.UsageError(f"{text!r}: expected NAME=VALUE, for example sync_bytes_per_s=50MB")
        if name in pairs:
            raise click.UsageError(f"{name} is given twice; pass it once")
        pairs[name] = value
    return pairs


def _value(name: str, text: str, limit: dict[str, Any]) -> int:
    """Parse a value. UsageError if it is not a number; InvalidArgumentError outside the limit's range."""
    if text == "default":
        return int(limit["default"])
    size, allowed = parse_size(text), f"from {limit['low']} to {limit['high']}"
    # A size may have a fraction, 1.5GB; a count may not.
    if not isinstance(size, int) or re.fullmatch(r"[0-9]*[.][0-9]*", text):
        raise click.UsageError(
            f"{name}={text}: expected a whole number {allowed}, a size such as 50MB, or `default`"
        )
    if not limit["low"] <= size <= limit["high"]:
        raise InvalidArgumentError(f"{name}={text}: {allowed}; {limit['reason']}", name=name)
    return size
