"""One NATS server with a stream that is synced, and a durable pull consumer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from benchmarks.cohorts.messages import packed
from benchmarks.cohorts.running import ANSWER_S, GROUP, TOPIC, Running
from benchmarks.engines.nats_jetstream import CONFIGURATION
from benchmarks.peers import installed
from benchmarks.peers.process import HOST, free_port, serving

UNDER_WAY_MAX: Final = 256
"""Messages without an answer."""
ACK_WAIT_S: Final = 2.0
"""As long as a killed member of our queue keeps its rows; 30 s by default."""


@contextmanager
def on_nats(folder: Path) -> Iterator[Running]:
    installed.require("nats")
    port, file = free_port(), folder / "nats.conf"
    file.write_text(CONFIGURATION.format(host=HOST, port=port, directory=folder / "data"))
    address = f"nats://{HOST}:{port}"
    with (
        serving([installed.nats_program(), "-c", str(file)], folder / "log", port),
        _Nats(address) as producer,
    ):
        yield Running(address, producer.send, producer.flush)


class _Nats:
    """An asyncio client on a thread of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._room = threading.Semaphore(UNDER_WAY_MAX)
        self._failed: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._open())
        return self

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S)

    async def _open(self) -> None:
        import nats  # noqa: PLC0415 - optional
        from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig  # noqa: PLC0415 - optional

        self._client = await nats.connect(self._address, allow_reconnect=False)
        self._stream = self._client.jetstream(timeout=ANSWER_S)
        await self._stream.add_stream(
            StreamConfig(name=TOPIC, subjects=[f"{TOPIC}.*"], storage=StorageType.FILE, num_replicas=1)
        )
        settings = ConsumerConfig(
            durable_name=GROUP, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S, max_ack_pending=10_000
        )
        await self._stream.add_consumer(TOPIC, settings)

    def send(self, stream: int, batch: pa.RecordBatch) -> None:
        self._room.acquire()
        body = packed(batch)
        asyncio.run_coroutine_threadsafe(self._publish(f"{TOPIC}.{stream}", body), self._loop)

    async def _publish(self, subject: str, body: bytes) -> None:
        try:
            await self._stream.publish(subject, body)
        except BaseException as error:  # noqa: BLE001 - raised by flush
            self._failed.append(error)
        finally:
            self._room.release()

    def flush(self) -> None:
        for _ in range(UNDER_WAY_MAX):
            self._room.acquire(timeout=ANSWER_S)
        self._room.release(UNDER_WAY_MAX)
        if self._failed:
            raise self._failed[0]

    def __exit__(self, *_: object) -> None:
        self._call(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_S)
