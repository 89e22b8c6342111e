"""`ringfence scope`: names of atomic writers, listed and given back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from ringfence.control.cli.admin import Admin, http_options
from ringfence.control.cli.connection import timeout_option
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import confirm, emit, emit_rows, json_option, show_table

PAGE: Final = 1_000


@click.group(no_args_is_help=True)
def command() -> None:
    """List the scopes of atomic writers, and give names back that are not used any more.

    \b
    Example:
      ringfence scope list
    """  # noqa: D301 - click's \b keeps the lines


@command.command("list")
@http_options
@timeout_option
@json_option
def list_scopes(*, http: str | None, token_file: Path | None, timeout_s: float, as_json: bool) -> int:
    """List scopes: name, topic, last committed epoch, and whether one goes when a new one needs room.

    \b
    Example:
      ringfence scope list
    """  # noqa: D301
    admin, found, more = Admin(http, token_file, timeout_s), list[dict[str, Any]](), True
    while more:
        after = found[-1]["name"] if found else ""
        page = admin.get(f"/admin/scopes?linearizable=true&limit={PAGE}&after={quote(after, safe='')}")
        found += page["scopes"]
        more = page["more"]
    if as_json:
        emit_rows(found)
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
        for each in found
    ]
    show_table("", columns, rows)
    return Exit.OK


@command.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@http_options
@timeout_option
@json_option
def forget(
    name: str, *, yes: bool, http: str | None, token_file: Path | None, timeout_s: float, as_json: bool
) -> int:
    """Give back scope NAME, as `list` shows it: a job that has it is fenced, its epochs are known no more.

    Rows that were committed stay. An epoch of the scope that is run again is stored again. What is staged and
    not committed is dropped.

    \b
    Example:
      ringfence scope forget nightly-load@7
    """  # noqa: D301
    confirm(f"Forget scope {name} and its committed epochs?", yes=yes)
    Admin(http, token_file, timeout_s).change("POST", "/admin/scopes/forget", {"name": name})
    if as_json:
        emit({"forgotten": name})
    else:
        click.echo(f"{name} forgotten")
    return Exit.OK
