"""Check addresses to bind and to advertise. Off loopback they need `insecure`: rows are not encrypted."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.native.errors import ConfigError

if TYPE_CHECKING:
    from ringfence.control.runtime.process.settings import Settings

PORT_MAX: Final = 65_535


def check_listen(addresses: Sequence[str], *, insecure: bool) -> None:
    """ConfigError for an address that cannot be bound, or that is off loopback without `insecure`."""
    for address in addresses:
        scheme, rest = _parts_of(address, "listen")
        if scheme == "tcp":
            host = _host_of(address, rest)
            if not insecure and not is_loopback(host):
                raise ConfigError(
                    f"listen address {address!r} is off loopback, and this version does not encrypt: "
                    "bind 127.0.0.1 and tunnel, or pass --insecure if the network is trusted",
                    key="listen",
                )


def check_connect(addresses: Sequence[str], key: str) -> None:
    """ConfigError for an address to which no request can be sent. `key`: the setting with the address."""
    for address in addresses:
        scheme, rest = _parts_of(address, key)
        if scheme == "ipc":
            continue
        host, _, port = rest.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
            raise ConfigError(
                f"{key} address {address!r}: tcp://HOST:PORT or HOST:PORT, port 1 to {PORT_MAX}", key=key
            )


def check_joins_other(join: Sequence[str], control: str | None) -> None:
    """ConfigError for a node that would ask only itself to join: it would wait forever."""
    if set(join) == {control}:
        raise ConfigError(
            f"join address {control!r} is this node's own control address; name another node's", key="join"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`; False for all names but localhost."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def advertised(bound: Sequence[str]) -> tuple[str, ...]:
    """The advertised addresses for the bound ones: a wildcard becomes this host's name."""
    return tuple(_named(address) for address in bound)


def has_free_port(addresses: Sequence[str]) -> bool:
    """Whether the system chooses a port, so that addresses are known only after binding."""
    return any(
        address.startswith("tcp://") and address.rpartition(":")[2] in {"0", "*"} for address in addresses
    )


def check_free(addresses: Iterable[tuple[str, str]]) -> None:
    """ConfigError for a (key, address) that this process cannot bind now, together with the others.

    Addresses that only the real bind can check are not checked: free ports, names (which may have several
    addresses), and existing paths, which may be sockets of a killed process.
    """
    with ExitStack() as sockets:
        for key, address in addresses:
            scheme, _, rest = address.partition("://")
            try:
                if scheme == "ipc":
                    _try_path(rest)
                elif scheme == "tcp":
                    _try_port(sockets, rest)
            except OSError as error:
                shown = address.removeprefix("tcp://") if key == "http" else address
                why = os.strerror(error.errno) if error.errno else str(error)
                raise ConfigError(
                    f"{key}={shown!r}: {why}; {_way_out(scheme)}. No store was created", key=key
                ) from error


def _way_out(scheme: str) -> str:
    if scheme == "ipc":
        return "name a short path in a folder that exists and is writable"
    return "stop the process that listens there, or name another address"


def _try_port(sockets: ExitStack, host_port: str) -> None:
    """Bind the port until `sockets` is closed. OSError if the system refuses."""
    host, _, port = host_port.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
        return
    plain = "" if host == "*" else "127.0.0.1" if host == "localhost" else host.strip("[]")
    if plain and not _is_number(plain):
        return
    family = socket.AF_INET6 if ":" in plain else socket.AF_INET
    sockets.enter_context(socket.create_server((plain, int(port)), family=family))


def _try_path(path: str) -> None:
    """Create a socket at `path`, and remove it. OSError if the system refuses."""
    if path.startswith("@") or os.path.lexists(path):
        return
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind(path)
        Path(path).unlink()


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def split_host_port(text: str, key: str) -> tuple[str, int]:
    """HOST and PORT of `HOST:PORT`. ConfigError names the setting `key`."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > PORT_MAX or not host or "/" in host:
        raise ConfigError(f"{key}={text!r}: HOST:PORT or http://HOST:PORT", key=key)
    return host.strip("[]"), int(port)


def _parts_of(address: str, key: str) -> tuple[str, str]:
    scheme, _, rest = address.partition("://")
    if scheme not in {"tcp", "ipc"} or not rest:
        raise ConfigError(f"{key} address {address!r}: tcp://HOST:PORT, HOST:PORT or ipc://PATH", key=key)
    return scheme, rest


def _host_of(address: str, rest: str) -> str:
    host, separator, port = rest.rpartition(":")
    if not separator or not (port == "*" or (port.isdecimal() and int(port) <= PORT_MAX)) or not host:
        raise ConfigError(f"listen address {address!r}: tcp://HOST:PORT, port 0 for a free one", key="listen")
    return host.strip("[]")


def _named(address: str) -> str:
    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    if scheme == "tcp" and host in {"0.0.0.0", "*", "[::]"}:  # noqa: S104 - compared, not bound
        return f"tcp://{socket.gethostname()}:{port}"
    return address


def http_host_port(address: str, *, insecure: bool) -> tuple[str, int]:
    """Host and port of the admin API. ConfigError if malformed, or off loopback without `insecure`."""
    host, port = split_host_port(address, "http")
    if not insecure and not is_loopback(host):
        raise ConfigError(f"http={address!r} is off loopback: bind 127.0.0.1, or pass --insecure", key="http")
    return host, port


def http_advertised(host: str, port: int) -> str:
    """The advertised address of the admin API: a wildcard becomes this host's name."""
    name = socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def check_addresses(settings: Settings) -> None:
    """Check the addresses before a new store is created. An existing store is locked first: its lock reports
    a node that is already running.

    Raises:
        ConfigError: the node could not listen on an address, or would ask itself to join.
    """
    if os.path.exists(settings.data_dir / "store.toml"):  # noqa: PTH110 - a path may be too long for pathlib's
        return
    check_joins_other(settings.join, settings.control)
    bound = [("listen", address) for address in settings.listen]
    bound += [("control", settings.control)] if settings.control is not None else []
    bound += [("http", f"tcp://{settings.http}")] if settings.http is not None else []
    check_free(bound)
