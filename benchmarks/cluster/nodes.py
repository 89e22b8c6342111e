"""Whole nodes as processes, three of them by default: started, killed, asked who leads, given limits."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from ringfence.control.runtime.rpc import messages
from tests.harness.control import list_nodes
from tests.harness.processes import NodeProcess, free_port

WAIT_S = 60.0
ASK_S = 1.0


class ServeProcess(NodeProcess):
    """`ringfence serve` as tests run it, at a control address of its own."""

    def __init__(self, folder: Path, name: str, join: str | None, options: Sequence[str] = ()) -> None:
        self.control = f"tcp://127.0.0.1:{free_port()}"
        joined = ("--join", join) if join else ()
        super().__init__(
            folder / name, options=("--control", self.control, *joined, *options), log_folder=folder
        )

    @property
    def node(self) -> int:
        """Its number in the cluster."""
        return int(self.ready["node"])

    @property
    def http(self) -> str:
        return self.ready["http"] or ""

    def says(self) -> messages.Nodes | None:
        """The cluster as this node sees it; None if it does not answer."""
        return list_nodes(self.control, ASK_S)


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
