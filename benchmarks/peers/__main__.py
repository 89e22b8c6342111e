"""`python -m benchmarks.peers`: install the peers, say which are there."""

from __future__ import annotations

import sys

import click

from benchmarks.peers import installed
from benchmarks.peers.install import InstallError, install

NAMES = click.Choice(installed.PEERS)


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


if __name__ == "__main__":
    main()
