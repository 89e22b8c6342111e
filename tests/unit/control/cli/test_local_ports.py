"""Ports of `ringfence dev`: below those that the system gives to connections, none twice."""

from __future__ import annotations

import secrets
import socket
import threading
from pathlib import Path

import pytest

from ringfence.control.cli import local_cluster, local_ports
from ringfence.control.cli.local_cluster import LocalCluster, PortsTakenError, temporary

free = local_ports.free_ports

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_no_connection_that_goes_out_is_given_such_a_port() -> None:
    first = int(RANGE.read_text().split()[0])
    ports = local_ports.free_ports(50)
    assert len(set(ports)) == 50
    assert all(10240 <= port < max(first, 32768) for port in ports)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert server.getsockname()[1] >= first


def test_a_port_that_somebody_has_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = local_ports.free_ports(1)
    drawn = iter([port, port, port + 1, port + 2])
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(drawn) - 10240)
    with socket.create_server(("127.0.0.1", port)):
        assert local_ports.free_ports(1)[0] in {port + 1, port + 2}


def test_a_machine_without_a_free_port_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = local_ports.free_ports(1)
    monkeypatch.setattr(secrets, "randbelow", lambda _: port - 10240)
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(OSError, match=r"no free port among 10240 to .*Address already in use"),
    ):
        local_ports.free_ports(1)


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ("32768\t60999\n", 32768),
        ("20000 60999", 20000),
        ("1024 65535", 32768),
        ("nonsense", 32768),
        (None, 32768),
    ],
)
def test_the_range_is_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None, end: int
) -> None:
    file = tmp_path / "range"
    if told is not None:
        file.write_text(told)
    monkeypatch.setattr(local_ports, "_RANGE_FILE", file)
    monkeypatch.setattr(secrets, "randbelow", lambda count: count - 1)
    assert local_ports.free_ports(1) == [end - 1]


def test_ports_that_somebody_took_meanwhile_are_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        draws = iter([[taken.getsockname()[1], *free(2)], free(3)])
        monkeypatch.setattr(local_cluster, "free_ports", lambda _: next(draws))
        with LocalCluster(tmp_path, threading.Event()) as cluster:
            (node,) = cluster.start(1)
            assert node.node == 1
            assert node.address != f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            assert list(cluster.nodes) == ["node-1"]
        (node,) = cluster.nodes.values()
    assert (tmp_path / "node-1.json").read_text().startswith(f'{{"port":{node.address.rpartition(":")[2]},')


def test_draws_end_and_the_folder_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(local_cluster, "free_ports", lambda _: [*free(2), taken.getsockname()[1]])
        with (
            pytest.raises(PortsTakenError, match="other processes took its port 5 times"),
            temporary() as folder,
            LocalCluster(folder.path, threading.Event()) as cluster,
        ):
            cluster.start(1)
    assert not folder.path.exists()
