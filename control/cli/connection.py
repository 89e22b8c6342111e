"""Options and helpers to connect a command to a node: address, timeout, token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

import ringfence
from ringfence.common.token import VARIABLE
from ringfence.control.cli.retry_until import wait_notice_for_client

if TYPE_CHECKING:
    from ringfence import Client

TIMEOUT_DEFAULT_S = 30.0

# Options that each name an endpoint of a cluster; a command uses one of them.
ENDPOINT_OPTIONS: Final = ("address", "http", "control")


def single_endpoint(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Option callback. UsageError if two endpoints are passed as flags: a command uses only one."""
    names = [
        name for name in ENDPOINT_OPTIONS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if option.name in names and len(names) > 1:
        flags = " and ".join(f"--{name}" for name in names)
        raise click.UsageError(f"{flags} each name an endpoint: pass one of them", context)
    return value


def effective_http(http: str | None) -> str | None:
    """Return the admin API's address, or None if the flag `--address` overrides the environment."""
    context = click.get_current_context()
    if context.get_parameter_source("address") is ParameterSource.COMMANDLINE:
        return None
    return http


class IdType(click.IntRange):
    """An id of 1 or more, of a node or a partition. The error names the command that lists the ids."""

    def __init__(self, name: str, description: str, command: str) -> None:
        super().__init__(min=1)
        self.name, self._description, self._command = name, description, command

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            text = f"{value!r} is not {self._description}, a number from 1; run `ringfence {self._command}`"
            self.fail(text, param, ctx)


NODE_ID: Final = IdType("node id", "a node id", "node list")
PARTITION: Final = IdType("partition", "a partition id", "topic show TOPIC")

address_option = click.option(
    "--address",
    callback=single_endpoint,
    envvar="RINGFENCE_ADDRESS",
    show_envvar=True,
    default="tcp://127.0.0.1:7411",
    show_default=True,
    help="Address of a node.",
)
timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=TIMEOUT_DEFAULT_S,
    show_default=True,
    help="Seconds to wait for an answer, including retries.",
)
# Of commands for operators: while a cluster is in trouble, half a minute without an answer is too long.
short_timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Seconds to wait for an answer.",
)


# A token is never an argument: all users of a machine can read the arguments of its processes.
token_option = click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"File with the token. [default: the variable {VARIABLE}]",
)


def open_client(address: str, timeout_s: float = TIMEOUT_DEFAULT_S, token_file: Path | None = None) -> Client:
    """Return a client. It connects with the first call; a long wait prints a notice."""
    client = ringfence.connect(address, timeout_s=timeout_s, token_file=token_file)
    wait_notice_for_client(client, timeout_s)
    return client
