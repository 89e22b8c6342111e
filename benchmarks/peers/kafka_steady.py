"""The steady producer of `benchmarks.cluster`, into Kafka: the same rate, batches, window and figures."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.cluster.steady import SCHEMA, Steady

FLUSH_S = 120.0


class KafkaSteady(Steady):
    """Idempotent, acks=all, no compression; each batch is one message and does not wait for others."""

    def __init__(self, addresses: str, topic: str, bytes_per_s: float, more: Mapping[str, object]) -> None:
        super().__init__(addresses, topic, bytes_per_s)
        self._more = more

    def _run(self) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415 - optional

        rows = pa.array(np.arange(self.batch_bytes // 8))
        body = pa.record_batch([rows], schema=SCHEMA).serialize().to_pybytes()
        ended = threading.Event()
        try:
            producer = Producer(
                {
                    "bootstrap.servers": self._addresses,
                    "enable.idempotence": True,
                    "acks": "all",
                    "compression.type": "none",
                    "linger.ms": 0,
                    "log_level": 0,
                    **self._more,
                }
            )
            poller = threading.Thread(target=_poll, args=(producer, ended), daemon=True)
            poller.start()
            due = time.perf_counter()
            while not self._stop.is_set():
                self._room.acquire()
                began = time.perf_counter()
                producer.produce(self._topic, body, partition=0, on_delivery=self._told(began))
                due = max(due + self._pause_s, began - self._pause_s)
                time.sleep(max(0.0, due - time.perf_counter()))
            left = producer.flush(FLUSH_S)
            if left:
                self.errors.append(TimeoutError(f"kafka: {left} messages unanswered for {FLUSH_S:g} s"))
        except BaseException as error:  # noqa: BLE001 - raised again where the context ends
            self.errors.append(error)
        finally:
            ended.set()

    def _told(self, began: float) -> Any:
        def done(error: Any, _: Any) -> None:
            now = time.perf_counter()
            self._room.release()
            if error is not None:
                self.errors.append(RuntimeError(f"kafka: {error}"))
                return
            self.waits_s.append(now - began)
            self.acknowledged_s.append(now)

        return done


def _poll(producer: Any, ended: threading.Event) -> None:
    while not ended.is_set():
        producer.poll(0.1)
