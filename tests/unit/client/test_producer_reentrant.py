"""A signal's handler or a finalizer that sends in the midst of a send of its own thread: never a hang."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

import pyarrow as pa
import pytest

import ringfence
from ringfence.arrow.encode import Body, TopicEncoder
from tests.fakes.client_topic import ids_of, node_with_topic, rows

SENDS = 200


class Interrupt:
    """Calls something in the midst of another call, between any two lines: as a handler is called.

    `every`: between so many lines, so that each is met in some round. `also`: in a file of this name, too.
    """

    def __init__(self, call: Callable[[], object], every: int, also: str = "/fakes/client") -> None:
        self._call, self._every, self._lines = call, every, 0
        self._files = ("ringfence", "/client/", also)
        self.refused = self.done = 0

    def __enter__(self) -> Self:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        del arg
        if not any(name in frame.f_code.co_filename for name in self._files):
            return None
        if event == "line":
            self._lines += 1
            if self._lines % self._every == 0:
                sys.settrace(None)
                try:
                    self._call()
                    self.done += 1
                except ringfence.ReentrantError:
                    self.refused += 1
                finally:
                    sys.settrace(self._trace)
        return self._trace


@pytest.mark.timeout(60)
@pytest.mark.parametrize("linger_ms", [0.0, 2.0])
@pytest.mark.parametrize("nested", ["send", "try_send", "flush"])
def test_a_call_in_the_midst_of_another_is_served_or_refused_at_once(nested: str, linger_ms: float) -> None:
    with node_with_topic() as (node, client):
        producer = client.producer("t", linger_ms=linger_ms, batch_bytes=4000)
        sent = SENDS

        def call() -> None:
            nonlocal sent
            if nested == "flush":
                producer.flush()  # of the send that it interrupts, too: that one would never end
            else:
                (producer.send if nested == "send" else producer.try_send)(rows(sent))
                sent += 1

        with Interrupt(call, 7) as interrupt:
            for number in range(SENDS):
                producer.send(rows(number))
        producer.close()
        print(f"{nested}: {interrupt.done} served, {interrupt.refused} refused")
        assert interrupt.done > 0
        assert interrupt.refused > 0
        assert sorted(ids_of(client)) == list(range(sent)), "each row that was taken is stored once"
        numbers = [header.send for log in node.topic_of("t").logs.values() for header in log.stored]
        assert len(numbers) >= len(set(numbers)) > 0
        assert producer.bytes_in_flight == 0


@pytest.mark.timeout(60)
def test_what_waits_for_an_answer_in_the_midst_of_a_crowd_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or is refused, where the link's thread may wait for what the interrupted call holds."""
    monkeypatch.setattr("ringfence.network.io_thread.CROWD", 1)
    with node_with_topic() as (_, client), client.producer("t") as producer:
        with Interrupt(lambda: client.topic("t"), 97, "threading.py") as interrupt:
            for number in range(SENDS):
                producer.send(rows(number))
        print(f"{interrupt.done} served, {interrupt.refused} refused")
        assert interrupt.refused > 0


PROGRAM = """
import signal, sys
import ringfence
from tests.fakes.client_topic import node_with_topic, rows

with node_with_topic() as (_, client), client.producer("t", linger_ms=float(sys.argv[1])) as producer:
    seen, row = [0, 0], rows(0)  # pyarrow's own first use is no place for a handler

    def handler(*_):
        # On a slow machine a handler takes longer than the period: they would nest without limit.
        global nested
        if nested == 20:
            return
        nested += 1
        try:
            producer.send(row)
            seen[0] += 1
        except ringfence.ReentrantError as error:
            assert "queue.SimpleQueue" in error.message
            seen[1] += 1
        finally:
            nested -= 1

    nested = 0
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    for number in range(3000):
        producer.send(row)
    signal.setitimer(signal.ITIMER_REAL, 0)
    producer.flush()
    print(*seen)
"""


@pytest.mark.parametrize("linger_ms", ["0", "1"])
def test_handlers_of_a_real_timer_hang_nobody(linger_ms: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, linger_ms], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    served, refused = map(int, ended.stdout.split())
    print(f"served {served}, refused {refused}")
    assert served > 0


@pytest.mark.timeout(60)
def test_a_callback_of_rows_that_cannot_be_encoded_may_send_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in the midst of a flush, in the thread of the application."""
    real = TopicEncoder.bodies

    def bodies(self: TopicEncoder, batch: pa.RecordBatch, *rest: Any, **more: Any) -> list[Body]:
        if 5000 in batch.column("id").to_pylist():
            raise MemoryError("planted")
        return real(self, batch, *rest, **more)

    monkeypatch.setattr(TopicEncoder, "bodies", bodies)
    with node_with_topic(key=()) as (_, client):
        producer = client.producer("t", linger_ms=10_000.0, batch_bytes=4000)
        again: list[ringfence.SendFuture] = []
        bad = producer.send(rows(5000))
        bad.add_done_callback(lambda _: again.append(producer.send(rows(1000, 1000))))
        producer.send(rows(0, 1000))  # enough for a flush, in this thread
        assert isinstance(bad.exception(10), ringfence.BatchError)
        assert [part.rows for part in again[0].result(10)] == [1000]
        with pytest.raises(ringfence.BatchError):
            producer.close()
        assert sorted(ids_of(client)) == list(range(2000))
