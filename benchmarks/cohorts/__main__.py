"""`python -m benchmarks.cohorts`: measure, print a table, write a record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from benchmarks.peers.process import unwind_on_term

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(help=__doc__)
def main() -> None:
    """Each command has its own help."""


@main.command("own")
@click.option("--quick", is_flag=True, help="Small: whether all of it works.")
@click.option("--json", "json_path", type=FILE, help="Write the record here.")
def own_command(*, quick: bool, json_path: Path | None) -> None:
    """A member beside a plain read, and acknowledgements a second."""
    from benchmarks.cohorts import own  # noqa: PLC0415 - needs the installed package

    result = own.told(quick=quick)
    for name, value in result.items():
        click.echo(f"{name}: {json.dumps(value)}")
    if json_path is not None:
        json_path.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(0 if quick or own.held(result) else 1)


@main.command("peers")
@click.option("--quick", is_flag=True, help="Small: whether all of it works.")
@click.option("--only", default="", help="Systems with this in their name.")
@click.option("--json", "json_path", type=FILE, help="Write the record here.")
def peers_command(*, quick: bool, only: str, json_path: Path | None) -> None:
    """The story of a group with each system in turn."""
    from benchmarks.cohorts import compare, story  # noqa: PLC0415 - needs the installed package

    unwind_on_term()
    size = story.QUICK if quick else story.Size()
    result = compare.run(size, lambda line: click.echo(line, err=True), only)
    click.echo(compare.markdown(result))
    if json_path is not None:
        json_path.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(1 if compare.failed(result) else 0)


if __name__ == "__main__":
    main()
