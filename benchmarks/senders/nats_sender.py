"""`python -m benchmarks.senders.nats_sender PORT WORKLOAD PID REQUESTS WARMUP SECONDS`: JetStream publishes.

Asynchronous: a window of messages is without a PubAck, as NATS's documents advise for throughput.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import nats
from nats.js.api import StorageType, StreamConfig

from benchmarks.peers.process import HOST
from benchmarks.senders.measured import ANSWER_TIMEOUT_S, arguments, bodies_of, run

STREAM = "bench"
KEPT_BYTES = 1 << 30  # as ours: older messages are dropped, a block at a time


class Publisher:
    """At most `window` messages without an answer."""

    def __init__(self, stream: Any, bodies: Sequence[bytes], window: int) -> None:
        self._stream, self._bodies = stream, bodies
        self._window, self._free = window, asyncio.Semaphore(window)
        self._failure: BaseException | None = None
        self.latencies_s: list[float] = []

    async def send_many(self, count: int, seconds_max: float) -> int:
        """Send `count`, or those for which there is time, and wait. Returns how many were sent."""
        end = time.perf_counter() + seconds_max
        sent = 0
        while sent < count and time.perf_counter() < end:
            await self._place()
            began = time.perf_counter()
            answer = await self._stream.publish_async(STREAM, self._bodies[sent % len(self._bodies)])
            answer.add_done_callback(lambda done, began=began: self._answered(done, began))
            sent += 1
        for _ in range(self._window):
            await self._place()
        for _ in range(self._window):
            self._free.release()
        return sent

    async def _place(self) -> None:
        await asyncio.wait_for(self._free.acquire(), ANSWER_TIMEOUT_S)
        if self._failure is not None:
            raise self._failure

    def _answered(self, done: asyncio.Future[Any], began: float) -> None:
        self._failure = self._failure or done.exception()
        if self._failure is None:
            self.latencies_s.append(time.perf_counter() - began)
        self._free.release()


async def stream_of(client: Any) -> Any:
    """The stream, empty; it stays for the next turn."""
    stream = client.jetstream(timeout=ANSWER_TIMEOUT_S, publish_async_max_pending=100_000)
    await stream.add_stream(
        StreamConfig(
            name=STREAM, subjects=[STREAM], storage=StorageType.FILE, num_replicas=1, max_bytes=KEPT_BYTES
        )
    )
    await stream.purge_stream(STREAM)
    return stream


def main() -> None:
    port = int(sys.argv[1])
    workload, pid, counts, seconds_max = arguments(sys.argv[2:])
    bodies = bodies_of(workload)
    with asyncio.Runner() as runner:
        client = runner.run(nats.connect(f"nats://{HOST}:{port}", allow_reconnect=False))
        publisher = Publisher(runner.run(stream_of(client)), bodies, workload.window)

        def many(count: int) -> int:
            return runner.run(publisher.send_many(count, seconds_max))

        sizes = [len(body) for body in bodies]
        run(many, publisher.latencies_s, workload=workload, pid=pid, counts=counts, body_bytes=sizes)
        runner.run(client.close())


if __name__ == "__main__":
    main()
