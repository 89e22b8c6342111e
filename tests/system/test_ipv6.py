"""A node that listens on IPv6 alone, for clients and for other nodes, is reached there."""

from __future__ import annotations

import socket
from pathlib import Path

import pyarrow as pa
import pytest

import ringfence
from ringfence.network.peer import Peer
from tests.harness.processes import NodeProcess, free_port


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_node_on_ipv6_is_served_and_joined_there(tmp_path: Path) -> None:
    host = "[::1]" if has_ipv6() else "127.0.0.1"
    control, other = (f"tcp://{host}:{free_port()}" for _ in range(2))
    schema = pa.schema([("v", pa.int64())])
    with (
        NodeProcess(tmp_path / "one" / "data", host=host, options=("--control", control)) as node,
        NodeProcess(
            tmp_path / "two" / "data", host=host, options=("--control", other, "--join", control)
        ) as joined,
        ringfence.connect(node.address, timeout_s=30) as client,
    ):
        client.create_topic("six", schema=schema, partitions=2)
        with client.producer("six") as producer:
            producer.send(pa.table({"v": [1, 2, 3]}, schema)).result(30)
        assert client.count("six") == 3
        with ringfence.connect(joined.address, timeout_s=30) as second:
            assert sum(batch.num_rows for batch in second.read("six")) == 3


@pytest.mark.parametrize(
    ("address", "tries"),
    [
        ("tcp://[::1]:1", [True, True, True]),
        ("tcp://127.0.0.1:1", [False, False, False]),
        ("ipc:///tmp/x", [False, False, False]),
        ("tcp://localhost:1", [False, True, False]),
    ],
)
def test_a_name_is_tried_by_both_kinds_of_addresses_in_turn(address: str, tries: list[bool]) -> None:
    peer, found = Peer(None, (address,)), []
    for _ in tries:
        found.append(peer.tries_ipv6)
        peer.failed(0.0, 0.0, None)
    assert found == tries


def test_each_of_several_names_is_tried_by_both() -> None:
    peer, found = Peer(None, ("tcp://a:1", "tcp://b:1")), []
    for _ in range(4):
        found.append((peer.address, peer.tries_ipv6))
        peer.failed(0.0, 0.0, None)
    assert len(set(found)) == 4
