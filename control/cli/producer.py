"""`ringfence producer`: list and forget the named producers of a topic."""

from __future__ import annotations

import click

from ringfence.control.cli.admin import topic_path
from ringfence.control.cli.endpoint import Endpoint, admin_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import confirm, emit, show_table


@click.group(no_args_is_help=True)
def command() -> None:
    """List the named producers of a topic, and forget unused names.

    \b
    Example:
      ringfence producer list orders
    """  # noqa: D301 - click's \b keeps the lines


@command.command("list")
@click.argument("topic")
@admin_options
def list_producers(topic: str, *, endpoint: Endpoint, as_json: bool) -> int:
    """List the named producers of TOPIC with id and metadata index of the last open.

    \b
    Example:
      ringfence producer list orders
    """  # noqa: D301
    values = endpoint.admin().get(f"{topic_path(topic)}/producers?linearizable=true")
    if as_json:
        for producer in values["producers"]:
            emit(producer)
        return Exit.OK
    rows = [[each["name"], each["producer"], each["epoch"]] for each in values["producers"]]
    show_table("", ("producer", "id", "opened at index"), rows)
    return Exit.OK


@command.command()
@click.argument("topic")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@admin_options
def forget(topic: str, name: str, *, yes: bool, endpoint: Endpoint, as_json: bool) -> int:
    """Forget producer NAME of TOPIC: fence its process and delete its resume point.

    The next open of the name creates a new producer. Rows that were sent under the name before are stored
    again if they are sent again.

    \b
    Example:
      ringfence producer forget orders loader-1
    """  # noqa: D301
    confirm(f"Forget producer {name} of topic {topic} and its resume point?", yes=yes)
    endpoint.admin().change("POST", f"{topic_path(topic)}/producers/forget", {"name": name})
    if as_json:
        emit({"topic": topic, "forgotten": name})
    else:
        click.echo(f"{name} forgotten")
    return Exit.OK
