"""C5: no batch needs the interpreter's lock on its way through a node, to be stored or to be read."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import ringfence
from tests.harness.load import Load
from tests.harness.loaded_cluster import grown
from tests.harness.processes import SCHEMA, NodeProcess, check_identity, read_ids, until

HELD_S = 3
SURE_S = 2
"""For so long at least the lock was held for sure; less where the thread that takes it waited for a core."""
HOLDS_MAX = 10
BATCHES_MIN = 20
"""As many as a loaded machine stores and gives in that time; a quiet one thousands."""


class Holder:
    """A node whose process can be made to hold the GIL without a pause."""

    def __init__(self, folder: Path) -> None:
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        prefix = (sys.executable, "-m", "tests.harness.gil_holder", str(self.pipe))
        self.node = NodeProcess(folder / "data", prefix=prefix)

    def hold(self, seconds: int) -> None:
        """Returns once the GIL is held."""
        self.pipe.write_text(f"{seconds}\n")
        until(self.pipe.with_suffix(".held").exists, what="a GIL that is held")

    def held(self) -> tuple[float, float]:
        """When it was for sure, by the monotonic clock of the machine.

        The two times are taken just before and just after the call that holds it for HELD_S: it began at the
        latest so long before the second, and ended at the earliest so long after the first.
        """
        free = self.pipe.with_suffix(".free")
        until(lambda: free.exists() and len(free.read_text().split()) == 2, what="the end of it")
        before, after = map(float, free.read_text().split())
        free.unlink()
        self.pipe.with_suffix(".held").unlink()
        return after - HELD_S, before + HELD_S

    def held_long(self) -> tuple[float, float]:
        """Hold it, again where a busy machine left too little of that time for sure."""
        for _ in range(HOLDS_MAX):
            self.hold(HELD_S)
            began, ended = self.held()
            if ended - began >= SURE_S:
                return began, ended
        pytest.fail(f"the lock was never held for {SURE_S} s for sure, {HOLDS_MAX} times")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    made = Holder(tmp_path)
    with made.node:
        yield made


class Beside:
    """Something that a thread does again and again, until its client is closed, with the times of each."""

    def __init__(self, address: str, work: Callable[[ringfence.Client], Iterable[object]]) -> None:
        self.done_s: list[tuple[float, float]] = []
        self._client, self._work = ringfence.connect(address, timeout_s=60), work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(ringfence.ClosedError):
            began = time.monotonic()
            for _ in self._work(self._client):
                ended = time.monotonic()
                self.done_s.append((began, ended))
                began = time.monotonic()

    def close(self) -> None:
        self._client.close()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_batches_are_stored_and_read_while_the_lock_is_held_all_the_time(holder: Holder) -> None:
    """C5: counted. Each batch of that time took the lock 0 times: one C call held it from first to last."""
    address = holder.node.address
    with ringfence.connect(address, timeout_s=60) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=2)
        load = Load(address, "t", 0, pause_s=0.002).start()
        reader = Beside(address, lambda other: other.read("t", follow=True))
        # The control plane serves this, in Python.
        asking = Beside(address, lambda other: iter(other.topics, None))
        until(lambda: load.errors or min(len(reader.done_s), len(asking.done_s)) > 10, what="all under way")
        began, ended = holder.held_long()
        until(grown([load], 500), what="rows after it")
        asked = len(asking.done_s)
        until(lambda: len(asking.done_s) > asked, what="an answer after it")
        for beside in (reader, asking):
            beside.close()
        load.finish()
        assert load.errors == []
        stored = sum(began < at < ended for at in load.answered_s)
        given = sum(began < at < ended for _, at in reader.done_s)
        # An answer that came before may be looked at late: only what was asked for in that time counts.
        answered = sum(began < asked and at < ended for asked, at in asking.done_s)
        print(
            f"lock held for {ended - began:.2f} s: {stored} batches stored, {given} read, {answered} answers"
        )
        assert answered == 0, "the lock was not held"
        assert min(stored, given) > BATCHES_MIN
        check_identity(read_ids(client, "t"), {0: load.acknowledged}, {0: load.sent})
