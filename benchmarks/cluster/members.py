"""Three member processes, and orders to them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from benchmarks.cluster.nodes import until


class MemberProcess:
    """`benchmarks.cluster.member` as a child."""

    def __init__(self, data: Path, join: str | None = None) -> None:
        command = [sys.executable, "-m", "benchmarks.cluster.member", str(data)]
        if join is not None:
            command += ["--join", join]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.started = self._answer()

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a member ended with {self.process.wait(10)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Members:
    """Three voters; `leader` and `follower` are two of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._all = folder, list[MemberProcess]()

    def __enter__(self) -> Self:
        try:
            self._all.append(MemberProcess(self._folder / "1"))
            (control,) = self._all[0].started["control"]
            self._all += [MemberProcess(self._folder / name, control) for name in "23"]
            until(lambda: all(len(member.ask("status")["voters"]) == 3 for member in self._all))
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def leader(self) -> MemberProcess:
        return next(member for member in self._all if member.ask("status")["leads"])

    @property
    def follower(self) -> MemberProcess:
        return next(member for member in self._all if not member.ask("status")["leads"])

    def cpu_s(self) -> list[float]:
        """Of each process, since its start."""
        used = []
        for member in self._all:
            stat = Path(f"/proc/{member.process.pid}/stat").read_text().rpartition(")")[2].split()
            used.append((int(stat[11]) + int(stat[12])) / 100)
        return used

    def __exit__(self, *_: object) -> None:
        for member in self._all:
            member.close()
