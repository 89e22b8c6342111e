"""Detect the use of sockets and threads in a forked child.

A DEALER socket in a forked child accepts messages and loses them, because its I/O thread is in the parent. So
every object with a socket remembers its process and raises ForkedError in others. Each process creates its
ZeroMQ context on first use.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import zmq

from ringfence.native.errors import ForkedError


class _Process:
    """State of a process. A forked child gets a new lock: the parent's may be locked forever."""

    lock = threading.Lock()
    contexts: ClassVar[dict[int, zmq.Context[Any]]] = {}


def context() -> zmq.Context[Any]:
    """The ZeroMQ context of this process. One I/O thread: two were slower for one connection on two cores."""
    with _Process.lock:
        found = _Process.contexts.get(os.getpid())
        if found is None:
            found = _Process.contexts[os.getpid()] = zmq.Context(io_threads=1)
        return found


def _after_in_child() -> None:
    _Process.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_in_child)


@dataclass(frozen=True, slots=True)
class OwningProcess:
    """The process that created an object."""

    what: str
    process: int

    @property
    def mine(self) -> bool:
        return os.getpid() == self.process

    def check(self) -> None:
        """Raises ForkedError in any other process."""
        if os.getpid() != self.process:
            raise ForkedError(
                f"this {self.what} was created in the parent process, before a fork; create a new one here",
                made_in=self.process,
                used_in=os.getpid(),
            )


def guard(what: str) -> OwningProcess:
    """The current process as the owner of an object."""
    return OwningProcess(what, os.getpid())
