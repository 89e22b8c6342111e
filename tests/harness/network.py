"""Hosts of their own for processes: network namespaces on one bridge, whose links are cut by nftables.

Needs root, iproute2 and nftables; where they are missing a test fails: a partition untried is not known.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

_RULES = """
table inet cut {{
    chain received {{ type filter hook input priority 0; ip saddr {{ {peers} }} drop; }}
    chain sent {{ type filter hook output priority 0; {sent} }}
}}
"""
_LOSSES = """
table inet losses {{
    chain received {{
        type filter hook input priority 0;
        ip saddr != 127.0.0.1 tcp dport {port} ct state established \\
            numgen random mod 100 < {percent} counter reject with tcp reset
    }}
}}
"""


def _run(*command: str, stdin: str | None = None) -> None:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"


class Network:
    """`hosts` namespaces with one address each; this process reaches all of them, also while they are cut."""

    def __init__(self, hosts: int) -> None:
        # Others may run the same tests on this machine: names and addresses are this process's own.
        number = os.getpid()
        self._bridge = f"rfb{number}"
        self._spaces = [f"rf{number}-{place}" for place in range(hosts)]
        self._net = f"10.{213 + (number >> 8) % 32}.{number & 0xFF}"
        self.hosts = tuple(f"{self._net}.{11 + place}" for place in range(hosts))
        self.prefixes = tuple(("ip", "netns", "exec", space) for space in self._spaces)

    def __enter__(self) -> Self:
        try:
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "address", "add", f"{self._net}.1/24", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
            for place, space in enumerate(self._spaces):
                self._join(space, f"{self._bridge}p{place}", self.hosts[place])
        except BaseException:
            self.__exit__()
            raise
        return self

    def _join(self, space: str, port: str, host: str) -> None:
        _run("ip", "netns", "add", space)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        _run("ip", "link", "set", port, "master", self._bridge, "up")
        inside = ("ip", "-n", space)
        _run(*inside, "address", "add", f"{host}/24", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        _run(*inside, "link", "set", "lo", "up")

    def cut(self, place: int, others: Iterable[int], *, one_way: bool = False) -> None:
        """No packet between a host and `others`; with `one_way` it still sends, and hears nothing."""
        peers = ", ".join(self.hosts[other] for other in others if other != place)
        sent = "" if one_way else f"ip daddr {{ {peers} }} drop;"
        rules = _RULES.format(peers=peers, sent=sent)
        _run(*self.prefixes[place], "nft", "-f", "-", stdin=rules)

    def lose(self, place: int, port: int, percent: int) -> None:
        """So many percent of the packets from other hosts to this port end their connection, and are lost."""
        _run(*self.prefixes[place], "nft", "-f", "-", stdin=_LOSSES.format(port=port, percent=percent))

    def lost(self, place: int) -> int:
        """Packets that were lost so."""
        listed = subprocess.run(
            [*self.prefixes[place], "nft", "-j", "list", "table", "inet", "losses"],
            capture_output=True,
            text=True,
            check=True,
        )
        rules = [entry["rule"]["expr"] for entry in json.loads(listed.stdout)["nftables"] if "rule" in entry]
        return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)

    def heal(self) -> None:
        for prefix in self.prefixes:
            _run(*prefix, "nft", "flush", "ruleset")

    def __exit__(self, *_: object) -> None:
        # First: a link goes behind its namespace some time later, and the next network has the same names.
        for place in range(len(self._spaces)):
            port = f"{self._bridge}p{place}"
            subprocess.run(["ip", "link", "delete", port], capture_output=True, check=False)
        for space in self._spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", self._bridge], capture_output=True, check=False)
