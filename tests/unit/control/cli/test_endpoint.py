"""Options of an endpoint: every command spells them in the same way, and uses one endpoint."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ringfence.control.cli import endpoint as endpoints
from ringfence.control.cli.admin import ADDRESS_VARIABLE
from ringfence.control.cli.endpoint import Endpoint
from ringfence.control.cli.program import root

SETS = {
    "address": (endpoints.address_options, 30.0),
    "admin": (endpoints.admin_options, 30.0),
    "control": (endpoints.control_options, 10.0),
    "cluster": (endpoints.cluster_options, 10.0),
}


BESIDE = {"token_file", "timeout_s", "as_json"}
"""The names of options that every command with an admin API has."""


def values(name: str, *arguments: str, **environment: str) -> tuple[Endpoint, bool]:
    """What a command with these options gets. UsageError as an AssertionError with its text."""
    got: list[tuple[Endpoint, bool]] = []

    @click.command()
    @SETS[name][0]
    def command(*, endpoint: Endpoint, as_json: bool) -> None:
        got.append((endpoint, as_json))

    result = CliRunner().invoke(command, list(arguments), env={ADDRESS_VARIABLE: None, **environment})
    assert result.exit_code == 0, result.output
    return got[0]


@pytest.mark.parametrize("name", SETS)
def test_a_command_gets_the_flags_and_otherwise_the_defaults(name: str) -> None:
    address = "tcp://127.0.0.1:7411" if name == "address" else None
    assert values(name) == (Endpoint(SETS[name][1], None, None, address, None), False)
    assert values(name, "--http", "h:1", "--timeout", "3", "--json") == (
        Endpoint(3.0, "h:1", None, address, None),
        True,
    )


def test_the_environment_names_an_admin_api_and_the_flag_of_a_data_socket_overrides_it() -> None:
    environment = {ADDRESS_VARIABLE: "http://h:1"}
    assert values("address", **environment)[0].http == "http://h:1"
    assert values("address", "--address", "tcp://h:2", **environment)[0].http is None
    assert values("control", "--control", "tcp://h:2")[0].control == "tcp://h:2"


@pytest.mark.parametrize(("name", "other"), [("address", "--address"), ("control", "--control")])
def test_two_endpoints_are_refused(name: str, other: str) -> None:
    with pytest.raises(AssertionError, match="each name an endpoint: pass one of them"):
        values(name, "--http", "h:1", other, "tcp://h:2")


def commands(group: click.Command, path: str) -> list[tuple[str, click.Command]]:
    """Each command by its whole name: the group itself, and all below it."""
    found = [(path, group)]
    if not isinstance(group, click.Group):
        return found
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        found += commands(command, f"{path} {name}")
    return found


def test_every_command_with_an_admin_api_has_the_same_options_beside_it() -> None:
    """But `top`, which asks again and again and has timeouts of its own."""
    seen: dict[str, set[str]] = {}
    for path, command in commands(root, "ringfence"):
        options: set[Any] = {parameter.name for parameter in command.params}
        if "http" in options and not path.endswith((" serve", " top")):
            seen[path] = options
    assert len(seen) > 20
    lacking = {
        path: options
        for path, options in seen.items()
        if not {"token_file", "timeout_s", "as_json"} <= options
    }
    assert lacking == {}


def test_no_command_has_an_option_twice() -> None:
    """Click warns of it, in the output of the command."""
    found = dict(commands(root, "ringfence"))
    assert len(found) > 50
    for path, command in found.items():
        names = Counter(name for option in command.params for name in (*option.opts, *option.secondary_opts))
        assert not [name for name, count in names.items() if count > 1], path
