"""`ringfence scope`: list and forget the scopes of atomic writers."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import click

from ringfence.control.cli.endpoint import Endpoint, admin_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import confirm, emit, emit_rows, show_table

PAGE: Final = 1_000


@click.group(no_args_is_help=True)
def command() -> None:
    """List the scopes of atomic writers, and forget unused scopes.

    \b
    Example:
      ringfence scope list
    """  # noqa: D301 - click's \b keeps the lines


@command.command("list")
@admin_options
def list_scopes(*, endpoint: Endpoint, as_json: bool) -> int:
    """List scopes with topic, last committed epoch, and whether a new scope may replace them (temporary).

    \b
    Example:
      ringfence scope list
    """  # noqa: D301
    admin, scopes, more = endpoint.admin(), list[dict[str, Any]](), True
    while more:
        after = scopes[-1]["name"] if scopes else ""
        page = admin.get(f"/admin/scopes?linearizable=true&limit={PAGE}&after={quote(after, safe='')}")
        scopes += page["scopes"]
        more = page["more"]
    if as_json:
        emit_rows(scopes)
        return Exit.OK
    columns = ("scope", "topic", "owner", "committed epoch", "unpublished", "used at index", "temporary")
    rows = [
        [
            each["name"],
            each["topic"],
            each["owner"],
            each["committed"],
            each["unpublished"],
            each["used"],
            "yes" if each["temporary"] else "no",
        ]
        for each in scopes
    ]
    show_table("", columns, rows)
    return Exit.OK


@command.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@admin_options
def forget(name: str, *, yes: bool, endpoint: Endpoint, as_json: bool) -> int:
    """Forget scope NAME, as `list` shows it: fence its writer and delete the record of its epochs.

    Committed rows stay; staged rows that are not committed are dropped. If an epoch of the scope runs again,
    its rows are stored again.

    \b
    Example:
      ringfence scope forget nightly-load@7
    """  # noqa: D301
    confirm(f"Forget scope {name} and its committed epochs?", yes=yes)
    endpoint.admin().change("POST", "/admin/scopes/forget", {"name": name})
    if as_json:
        emit({"forgotten": name})
    else:
        click.echo(f"{name} forgotten")
    return Exit.OK
