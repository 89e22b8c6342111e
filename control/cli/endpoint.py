"""Options of commands that reach a cluster: an endpoint, a token, a timeout and `--json`, spelled once.

A command gets them as `endpoint` and `as_json`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ringfence.control.cli.admin import Admin, http_options
from ringfence.control.cli.connection import (
    address_option,
    effective_http,
    short_timeout_option,
    single_endpoint,
    timeout_option,
)
from ringfence.control.cli.output import json_option

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_control_option = click.option(
    "--control",
    metavar="ADDRESS",
    callback=single_endpoint,
    help="Control address of any node, tcp://HOST:PORT or HOST:PORT, instead of --http: for a cluster "
    "without admin API and tokens.",
)


# Beside the admin API, so that both may be passed.
_data_option = click.option(
    "--data-address",
    "data_address",
    envvar="RINGFENCE_ADDRESS",
    show_envvar=True,
    default="tcp://127.0.0.1:7411",
    show_default=True,
    help="Address of a node for --time.",
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Values of the options. `address` and `control` are None in commands without these options.

    `http` is None unless it is passed or in the environment, and also if the flag `--address` overrides it.
    """

    timeout_s: float
    http: str | None
    token_file: Path | None
    address: str | None
    control: str | None

    def admin(self) -> Admin:
        """Return a client for the admin API."""
        return Admin(self.http, self.token_file, self.timeout_s)


def _options(*options: Decorator) -> Decorator:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_endpoint(
            *arguments: Any,
            timeout_s: float,
            http: str | None,
            token_file: Path | None,
            address: str | None = None,
            control: str | None = None,
            data_address: str | None = None,
            **values: Any,
        ) -> Any:
            if address is not None:
                http = effective_http(http)
            endpoint = Endpoint(timeout_s, http, token_file, address or data_address, control)
            return function(*arguments, endpoint=endpoint, **values)

        decorated: Callable[..., Any] = json_option(with_endpoint)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


# For commands about topics, which the data socket and the admin API serve.
address_options = _options(address_option, http_options, timeout_option)
# For commands that only the admin API serves.
admin_options = _options(http_options, timeout_option)
# For commands that the admin API serves, and that ask a data socket as well.
data_options = _options(_data_option, http_options, timeout_option)
# For commands about nodes and partitions, which the admin API and control addresses serve.
control_options = _options(_control_option, http_options, short_timeout_option)
# For commands about the cluster as a whole, which only the admin API serves.
cluster_options = _options(http_options, short_timeout_option)
