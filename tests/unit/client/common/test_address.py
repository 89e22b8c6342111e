"""Addresses: where they come from, and which forms are taken."""

from __future__ import annotations

import pytest

from ringfence.common.address import addresses
from ringfence.native.errors import ConfigError


def test_addresses_come_from_the_argument_then_the_environment_then_the_default() -> None:
    assert addresses("tcp://a:1, ipc:///run/x", {"RINGFENCE_ADDRESS": "tcp://b:2"}) == (
        "tcp://a:1",
        "ipc:///run/x",
    )
    assert addresses(None, {"RINGFENCE_ADDRESS": "tcp://b"}) == ("tcp://b:7411",)
    assert addresses(None, {}) == ("tcp://127.0.0.1:7411",)
    assert addresses("tcp://[::1]", {}) == ("tcp://[::1]:7411",)


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "http://a:1", "tcp://", "tcp://a:x", "tcp://a:0", "ipc://", "tcp://:1"),
        *(":1", "a:", "a:x", "a:0", "a:65536", "*:7411", "a:*", "::1:7411", "a b:1", "a/b:1", "a:1/"),
        *("tcp://exa mple:1", "tcp://*:7411", "tcp://\udcff:1", "ipc:///run/\udcff", "tcp://a\n:1"),
    ],
)
def test_another_form_of_address_is_refused_and_shown(wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        addresses(wrong, {})
    assert repr(wrong) in str(caught.value)
    with pytest.raises(ConfigError, match="a string"):
        addresses(7411, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("bare", ["localhost:7411", "10.0.0.1:7411", "[::1]:7411", "[fe80::1%eth0]:1"])
def test_host_and_port_without_a_scheme_are_a_tcp_address(bare: str) -> None:
    assert addresses(bare, {}) == addresses(f"tcp://{bare}", {}) == (f"tcp://{bare}",)
    assert addresses(f"ipc:///run/x, {bare}", {}) == ("ipc:///run/x", f"tcp://{bare}")
    assert addresses(None, {"RINGFENCE_ADDRESS": bare}) == (f"tcp://{bare}",)


@pytest.mark.parametrize("bare", ["localhost", "10.0.0.1", "[::1]"])
def test_a_host_without_scheme_and_port_names_the_address_with_them(bare: str) -> None:
    with pytest.raises(ConfigError, match="has no scheme") as caught:
        addresses(bare, {})
    assert f"write 'tcp://{bare}'" in str(caught.value)
    assert addresses(f"tcp://{bare}", {})
    for neither in (f"{bare}:x", f"/{bare}", f"tcp:{bare}/"):
        with pytest.raises(ConfigError, match="is not of the form"):
            addresses(neither, {})
