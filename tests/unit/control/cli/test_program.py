"""No command has an option twice: click warns of it, in the output of the command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from ringfence.control.cli.program import root


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, f"{path} {name} is listed and does not exist"
            yield from commands(inner, f"{path} {name}")


def test_no_command_has_an_option_twice() -> None:
    found = dict(commands(root, "ringfence"))
    assert len(found) > 50
    for path, command in found.items():
        names = Counter(name for option in command.params for name in (*option.opts, *option.secondary_opts))
        assert not [name for name, count in names.items() if count > 1], path
