"""What the product asks its surroundings for, answered by the simulated machine whose code runs.

Nothing of the product is replaced: it calls `time`, `secrets`, `os`, `zmq` and the native node as always, and
finds those of its machine. A real file or socket that some new code opens has no such path, and fails aloud.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from ringfence.control.runtime import node_process as runtime_node
from ringfence.control.store import directory, files, journal
from ringfence.control.transport import hub
from tests.sim.world import current
from tests.sim.world.files import SimLock, SimOs
from tests.sim.world.native import SimNative
from tests.sim.world.network import SimZmq


class SimDice(random.Random):
    """`random.SystemRandom`: the machine's own. Everything else comes of these two."""

    def random(self) -> float:
        return current.machine().dice.random()

    def getrandbits(self, k: int, /) -> int:
        return current.machine().dice.getrandbits(k)

    def seed(self, *_: Any, **__: Any) -> None:
        """It has none."""


def _bytes(count: int = 32) -> bytes:
    return current.machine().dice.randbytes(count)


def _bits(count: int) -> int:
    return current.machine().dice.getrandbits(count)


def _monotonic() -> float:
    return current.machine().clock.mono_s()


@contextmanager
def installed() -> Iterator[None]:
    """In this block, the product lives in the simulated world."""
    own: list[tuple[Any, str, Any]] = [
        (time, "monotonic", _monotonic),
        (time, "monotonic_ns", lambda: int(current.machine().clock.mono_s() * 1e9)),
        (time, "time", lambda: current.machine().clock.unix_ms() / 1000),
        (time, "time_ns", lambda: current.machine().clock.unix_ms() * 1_000_000),
        (secrets, "token_bytes", _bytes),
        (secrets, "token_hex", lambda count=32: _bytes(count).hex()),
        (secrets, "randbits", _bits),
        (random, "SystemRandom", SimDice),
        (files, "os", SimOs()),
        (journal, "os", SimOs()),
        (directory, "DirectoryLock", SimLock),
        (hub, "zmq", SimZmq()),
        (runtime_node, "_node", SimpleNamespace(Node=SimNative)),
    ]
    with ExitStack() as stack:
        for place, name, value in own:
            stack.enter_context(patch.object(place, name, value))
        yield
