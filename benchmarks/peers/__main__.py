"""`python -m benchmarks.peers`: install the peers, say which are there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from benchmarks.peers import installed
from benchmarks.peers.install import InstallError, install
from benchmarks.peers.process import unwind_on_term

NAMES = click.Choice(installed.PEERS)
FILE = click.Path(dir_okay=False, path_type=Path)
PARTS = ("moves", "failovers")


@click.group(help=__doc__)
def main() -> None:
    """Each command has its own help."""


@main.command("install")
@click.argument("names", nargs=-1, type=NAMES)
def install_command(names: tuple[str, ...]) -> None:
    """Install servers and clients, pinned; all of them without NAMES. The only step that uses a network."""
    failed = False
    for name in names or installed.PEERS:
        try:
            install(name)
            click.echo(f"{name}: {installed.versions([name])[name]}")
        except (InstallError, installed.MissingError) as error:
            failed = True
            click.echo(f"{name}: not installed: {error}", err=True)
    sys.exit(1 if failed else 0)


@main.command("status")
def status_command() -> None:
    """A line for each peer: its versions, or what is missing. Exit code 1 when one is."""
    here, missing = installed.present()
    for name, version in installed.versions(here).items():
        click.echo(f"{name}: {version}")
    for line in missing:
        click.echo(line)
    sys.exit(1 if missing else 0)


@main.command("cluster")
@click.option("--parts", metavar="A,B", default=",".join(PARTS), show_default=True, help="What to measure.")
@click.option("--moves", type=click.IntRange(1, 1000), default=20, show_default=True, help="Of each kind.")
@click.option("--kills", type=click.IntRange(1, 1000), default=20, show_default=True, help="Of a leader.")
@click.option("--quick", is_flag=True, help="Four moves and two kills: whether all of it works.")
@click.option("--json", "json_path", type=FILE, help="Write the record here.")
@click.option("--markdown", "markdown_path", type=FILE, help="Write the table here.")
def cluster_command(
    *, parts: str, moves: int, kills: int, quick: bool, json_path: Path | None, markdown_path: Path | None
) -> None:
    """Three of our nodes and three Kafka brokers in turn: gaps of moves, of new leaders, of killed ones."""
    from benchmarks.peers import compare  # noqa: PLC0415 - needs the installed package

    unwind_on_term()
    wanted = parts.split(",")
    if unknown := sorted(set(wanted) - set(PARTS)):
        raise click.BadParameter(f"unknown parts {unknown}; known are {list(PARTS)}")
    counts = {"moves": 4 if quick else moves, "failovers": 2 if quick else kills}
    result = compare.run(wanted, counts, lambda line: click.echo(line, err=True))
    table = compare.markdown(result)
    click.echo(table)
    if json_path is not None:
        json_path.write_text(json.dumps(result, indent=1) + "\n")
    if markdown_path is not None:
        markdown_path.write_text(table + "\n")
    sys.exit(1 if compare.failed(result) else 0)


if __name__ == "__main__":
    main()
