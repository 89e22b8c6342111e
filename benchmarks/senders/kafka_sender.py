"""`python -m benchmarks.senders.kafka_sender ADDRESS TOPIC WORKLOAD PID REQUESTS WARMUP SECONDS`: librdkafka.

Idempotent, acks=all, no compression. Messages that wait go out as one batch, which the broker syncs once.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from confluent_kafka import Producer

from benchmarks.senders.measured import Window, arguments, bodies_of, run
from benchmarks.workload import Workload

BATCH_BYTES = 16 << 20  # a window of 1,000-row batches has 11 MB
LINGER_MS = 5  # librdkafka's default


def settings(address: str, workload: Workload) -> dict[str, Any]:
    """Of the producer: throughput where there is a window, none of it waits where there is none."""
    return {
        "bootstrap.servers": address,
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "none",
        "linger.ms": LINGER_MS if workload.window > 1 else 0,
        "batch.size": BATCH_BYTES,
        "message.max.bytes": BATCH_BYTES,
    }


def main() -> None:
    address, topic = sys.argv[1:3]
    workload, pid, counts, seconds_max = arguments(sys.argv[3:])
    bodies = bodies_of(workload)
    window = Window(workload.window)
    producer = Producer(settings(address, workload))
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    def post(number: int, began: float) -> None:
        def done(error: Any, _: Any) -> None:
            window.answered(began, None if error is None else f"kafka: {error}")

        producer.produce(topic, bodies[number % len(bodies)], partition=0, on_delivery=done)

    def many(count: int) -> int:
        return window.send_many(post, count, seconds_max)

    poller = threading.Thread(target=serve, daemon=True)
    poller.start()
    sizes = [len(body) for body in bodies]
    run(many, window.latencies_s, workload=workload, pid=pid, counts=counts, body_bytes=sizes)
    ended.set()
    poller.join()


if __name__ == "__main__":
    main()
