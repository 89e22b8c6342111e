"""A turn whose sender is a Python program of benchmarks/senders, in a process of its own."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.engines.base import Pace, Turn, send, sizes_of

if TYPE_CHECKING:
    from benchmarks.workload import Workload


@dataclass(frozen=True)
class PythonSent:
    """A running server; `target` is what the sender's arguments begin with: where the server is."""

    workload: Workload
    sender: str
    target: tuple[str, ...]
    pid: int

    def turn(self, pace: Pace) -> Turn:
        command = [sys.executable, "-m", f"benchmarks.senders.{self.sender}", *self.target]
        return Turn.of(send([*command, self.workload.name, str(self.pid), *sizes_of(self.workload, pace)]))
