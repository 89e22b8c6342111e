"""Whole nodes as processes, three of them by default: started, killed, asked who leads, given limits."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import ConnectError

WAIT_S = 60.0
ASK_S = 1.0
PROGRAM = Path(sys.executable).parent / "ringfence"


class ServeProcess:
    """`ringfence serve`; after the first start on the addresses that it had then."""

    def __init__(self, folder: Path, name: str, join: str | None, options: Sequence[str] = ()) -> None:
        self._folder, self._name = folder, name
        self._options = [*(["--join", join] if join else []), *options]
        self._listen, self.control = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"
        self.node, self.address, self.http = 0, "", ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `serving` waits for it."""
        with (self._folder / f"{self._name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    PROGRAM,
                    "serve",
                    "--json",
                    "--data",
                    self._folder / self._name,
                    "--listen",
                    self._listen,
                    "--control",
                    self.control,
                    *self._options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def serving(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} did not start; see {self._folder / self._name}.log")
        ready = json.loads(line)
        self.node, self.address, self.http = ready["node"], ready["address"], ready["http"] or ""
        self._listen, self.control = ready["address"], ready["control"]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def says(self) -> messages.Nodes | None:
        """The cluster as this node sees it; None if it does not answer."""
        try:
            reply = messages.decode_reply(
                ask_address(self.control, messages.encode(messages.ListNodes()), ASK_S)
            )
        except ConnectError:
            return None
        return reply if isinstance(reply, messages.Nodes) else None


class Nodes:
    """`count` nodes, of which three vote. `options` are of the first one."""

    def __init__(self, folder: Path, count: int = 3, options: Sequence[str] = ()) -> None:
        self._folder, self._count, self._options = folder, count, options
        self.all: list[ServeProcess] = []

    def add(self) -> ServeProcess:
        """One more node, which serves when this returns."""
        join, options = (self.all[0].control, ()) if self.all else (None, self._options)
        node = ServeProcess(self._folder, str(len(self.all) + 1), join, options)
        self.all.append(node)
        node.start()
        node.serving()
        return node

    def configure(self, **values: int) -> None:
        """Limits of the cluster, through the admin API of the first node (option `--http 127.0.0.1:0`)."""
        body = json.dumps({"values": values}).encode()
        request = urllib.request.Request(
            f"{self.all[0].http}/admin/config", body, {"Content-Type": "application/json"}, method="PATCH"
        )
        with urllib.request.urlopen(request, timeout=WAIT_S):
            pass

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                self.add()
            self.until_whole()
        except BaseException:
            self.__exit__()
            raise
        return self

    def until_whole(self) -> None:
        """All know the same leader, and three of them vote, or all."""
        until(lambda: len(self.leaders(self.all)) == 1 and all(self._votes(node) for node in self.all))

    def _votes(self, node: ServeProcess) -> bool:
        said = node.says()
        voters = 0 if said is None else sum(known.role in {"leader", "voter"} for known in said.nodes)
        return voters >= min(3, len(self.all) - (len(self.all) + 1) % 2)

    @staticmethod
    def leaders(nodes: Iterable[ServeProcess]) -> set[int]:
        """Whom these nodes take for the leader; 0 is nobody."""
        return {0 if said is None else said.leader for said in (node.says() for node in nodes)}

    def leader(self) -> ServeProcess:
        (leader,) = self.leaders(self.all)
        return next(node for node in self.all if node.node == leader)

    def terms(self) -> list[int]:
        return [said.term for said in (node.says() for node in self.all) if said is not None]

    def pids(self) -> list[int]:
        return [node.process.pid for node in self.all if node.process is not None]

    def __exit__(self, *_: object) -> None:
        for node in self.all:
            if node.process is not None and node.process.poll() is None:
                node.kill()


def until(condition: Any, timeout_s: float = WAIT_S) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {timeout_s:g} s")
        time.sleep(0.01)
