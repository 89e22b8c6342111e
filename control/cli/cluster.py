"""`ringfence cluster`: show programs and levels of the nodes, and finalize an upgrade."""

from __future__ import annotations

from typing import Final

import click

from ringfence.control.cli.endpoint import Endpoint, cluster_options
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.output import emit, show_table

COLUMNS: Final = ("node", "program", "level", "life")


@click.group(no_args_is_help=True)
def command() -> None:
    """Show programs and levels of the nodes, and finalize an upgrade.

    \b
    Example:
      ringfence cluster versions --http http://127.0.0.1:7412
    """  # noqa: D301 - click's \b keeps the lines


@command.command()
@cluster_options
def versions(*, endpoint: Endpoint, as_json: bool) -> int:
    """Show program and level of each node, the cluster's level, and the nodes that block a finalization.

    \b
    Example:
      ringfence cluster versions
    """  # noqa: D301
    values = endpoint.admin().get("/admin/versions")
    if as_json:
        emit(values)
        return Exit.OK
    rows = [["unknown" if node[name] is None else node[name] for name in COLUMNS] for node in values["nodes"]]
    show_table(f"level {values['level']} of {values['newest']}", COLUMNS, rows, ids=("node",))
    if values["level"] >= values["newest"]:
        click.echo(f"the cluster has level {values['level']}, the newest of this program")
    elif values["holds"]:
        for hold in values["holds"]:
            click.echo(f"node {hold['node']} blocks level {values['newest']}: {hold['why']}")
    else:
        click.echo(
            f"all nodes support level {values['newest']}: run `ringfence cluster finalize` to raise the level"
        )
    return Exit.OK


@command.command()
@cluster_options
def finalize(*, endpoint: Endpoint, as_json: bool) -> int:
    """End an upgrade: raise the cluster's level, so that new formats may be written.

    Refused, with the names of the nodes, while a node does not support the new level. It cannot be undone:
    older programs refuse the data directories afterwards.

    \b
    Example:
      ringfence cluster finalize
    """  # noqa: D301
    admin = endpoint.admin()
    receipt = admin.change("POST", "/admin/finalize")
    level = admin.get("/admin/versions")["level"]
    if as_json:
        emit({"index": receipt["index"], "level": level})
    else:
        click.echo(f"the cluster has level {level}")
    return Exit.OK
