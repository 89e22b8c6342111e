"""Which node a command talks to, and with which token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

import ringfence
from ringfence.common.token import VARIABLE
from ringfence.control.cli.retry_until import while_used

if TYPE_CHECKING:
    from ringfence import Client

TIMEOUT_DEFAULT_S = 30.0

# Options that each say where a cluster is asked.
DOORS: Final = ("address", "http", "control")


def one_door(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A door's callback. UsageError when two are given as flags: only one of them could be used."""
    given = [name for name in DOORS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if option.name in given and len(given) > 1:
        flags = " and ".join(f"--{name}" for name in given)
        raise click.UsageError(f"{flags} both say where to ask: give one of them", context)
    return value


def http_meant(http: str | None) -> str | None:
    """The admin API's address where that is to be asked: a variable gives way to `--address` as a flag."""
    context = click.get_current_context()
    if context.get_parameter_source("address") is ParameterSource.COMMANDLINE:
        return None
    return http


class Number(click.IntRange):
    """What is known by a number from 1 on, a node, say; who gives a name is told where numbers are."""

    def __init__(self, name: str, what: str, where: str) -> None:
        """`where`: the command that shows them."""
        super().__init__(min=1)
        self.name, self._what, self._where = name, what, where

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            text = f"{value!r} is {self._what}, a number from 1 on: `ringfence {self._where}` shows them"
            self.fail(text, param, ctx)


NODE_ID: Final = Number("node id", "no id of a node", "node list")
PARTITION: Final = Number("partition", "no partition", "topic show TOPIC")

address_option = click.option(
    "--address",
    callback=one_door,
    envvar="RINGFENCE_ADDRESS",
    show_envvar=True,
    default="tcp://127.0.0.1:7411",
    show_default=True,
    help="The node.",
)
timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=TIMEOUT_DEFAULT_S,
    show_default=True,
    help="Seconds to wait for an answer, retries included.",
)


# A token is never an argument: everybody on the machine sees those.
token_option = click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"A file with the token. [default: the variable {VARIABLE}]",
)


def connected(address: str, timeout_s: float = TIMEOUT_DEFAULT_S, token_file: Path | None = None) -> Client:
    """A client; it connects with the first call, and who waits long is told for whom."""
    client = ringfence.connect(address, timeout_s=timeout_s, token_file=token_file)
    while_used(client, timeout_s)
    return client
