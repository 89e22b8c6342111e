"""What a fork leaves behind: sockets and threads of the parent are not the child's.

A DEALER used in a forked child takes messages and loses them (its I/O thread is in the parent). So everything
that holds a socket remembers its process, and says ForkedError elsewhere; ZeroMQ contexts are made per
process on first use.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import zmq

from ringfence.native.errors import ForkedError


class _Process:
    """What a process has once. The lock is new in a forked child: the parent's may be held for ever."""

    lock = threading.Lock()
    contexts: ClassVar[dict[int, zmq.Context[Any]]] = {}


def context() -> zmq.Context[Any]:
    """This process's ZeroMQ context, with one I/O thread: two were slower for one connection on two cores."""
    with _Process.lock:
        found = _Process.contexts.get(os.getpid())
        if found is None:
            found = _Process.contexts[os.getpid()] = zmq.Context(io_threads=1)
        return found


def _after_in_child() -> None:
    _Process.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_in_child)


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that something was made in."""

    what: str
    process: int

    @property
    def mine(self) -> bool:
        return os.getpid() == self.process

    def check(self) -> None:
        """Raises ForkedError in any other process."""
        if os.getpid() != self.process:
            raise ForkedError(
                f"this {self.what} was made before a fork, in the parent process; make a new one here",
                made_in=self.process,
                used_in=os.getpid(),
            )


def guard(what: str) -> Owner:
    """An Owner for this process."""
    return Owner(what, os.getpid())
