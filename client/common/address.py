"""Parse addresses of nodes: `tcp://HOST[:PORT]`, `HOST:PORT` or `ipc://PATH`, several separated by commas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ringfence.native.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

PORT_DEFAULT = 7411
ADDRESS_DEFAULT = f"tcp://127.0.0.1:{PORT_DEFAULT}"
ADDRESS_VARIABLE = "RINGFENCE_ADDRESS"
_HOST = re.compile(r"[\w.:%\[\]-]*")  # names (IDNA by the resolver), IPv4, [IPv6%zone], port
_BARE_HOST = re.compile(r"[\w.%-]+|\[[\w:.%]+\]")
_BARE = re.compile(rf"({_BARE_HOST.pattern}|\*):(\d{{1,5}}|\*)")  # *: wildcards of addresses to bind
ADDRESSES_MAX = 64  # addresses for the first connection; routing tables name all nodes


def with_scheme(address: str, scheme: str) -> str:
    """Return `scheme://HOST:PORT` for a bare `HOST:PORT`; return any other text unchanged."""
    return f"{scheme}://{address}" if _BARE.fullmatch(address) else address


def addresses(address: str | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The addresses to try, in order.

    Args:
        address: one or several, separated by commas; None = `RINGFENCE_ADDRESS`, else `tcp://127.0.0.1:7411`.
        environment: variables of the process.

    Raises:
        ConfigError: an address is invalid; the message contains it.
    """
    text = address if address is not None else environment.get(ADDRESS_VARIABLE) or ADDRESS_DEFAULT
    if not isinstance(text, str):
        raise ConfigError(
            f"an address is a string such as {ADDRESS_DEFAULT!r} (several: joined by commas), not {address!r}"
        )
    found = tuple(_normal(part.strip()) for part in text.split(",") if part.strip())
    if not 0 < len(found) <= ADDRESSES_MAX:
        raise ConfigError(f"address {text!r} names {len(found)} nodes; 1 to {ADDRESSES_MAX} are allowed")
    return found


def _normal(address: str) -> str:
    full = with_scheme(address, "tcp")
    scheme, separator, rest = full.partition("://")
    if not address.isprintable() or (scheme == "tcp" and not _HOST.fullmatch(rest)):
        raise ConfigError(f"address {address!r}: the name of the host or file has invalid characters")
    if scheme == "ipc" and separator and rest:
        return address
    if scheme == "tcp" and separator and rest:
        host, colon, port = rest.rpartition(":")
        if not colon or rest.endswith("]"):  # a host or [v6] without port
            return f"tcp://{rest}:{PORT_DEFAULT}"
        if host and port.isdigit() and 0 < int(port) < 65536:
            return full
    forms = "tcp://HOST[:PORT], HOST:PORT or ipc://PATH"
    if not separator and _BARE_HOST.fullmatch(address):
        raise ConfigError(
            f"address {address!r} has no scheme: write 'tcp://{address}' (the forms are {forms})"
        )
    raise ConfigError(f"address {address!r} is not of the form {forms}")
