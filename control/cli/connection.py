"""Which node a command talks to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import ringfence

if TYPE_CHECKING:
    from ringfence import Client

TIMEOUT_DEFAULT_S = 30.0

address_option = click.option(
    "--address",
    envvar="RINGFENCE_ADDRESS",
    show_envvar=True,
    default="tcp://127.0.0.1:7411",
    show_default=True,
    help="The node.",
)
timeout_option = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=TIMEOUT_DEFAULT_S, show_default=True,
    help="Seconds to wait for an answer, retries included.",
)  # fmt: skip


def connected(address: str, timeout_s: float = TIMEOUT_DEFAULT_S) -> Client:
    """A client; it connects with the first call."""
    return ringfence.connect(address, timeout_s=timeout_s)
