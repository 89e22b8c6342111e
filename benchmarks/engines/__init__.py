"""Engines: what a workload is sent to. Each module has one, with the interface of `base.Engine`."""

from __future__ import annotations

from benchmarks.engines.base import Engine, Server, Turn
from benchmarks.engines.flight import FLIGHT
from benchmarks.engines.kafka_log import KAFKA_LOG
from benchmarks.engines.limit import LIMIT, LIMIT_BUFFERED
from benchmarks.engines.nats_jetstream import NATS_JETSTREAM
from benchmarks.engines.ours import OURS
from benchmarks.engines.pyzmq_router import PYZMQ_ROUTER
from benchmarks.engines.redis_stream import REDIS_STREAM

ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (LIMIT, LIMIT_BUFFERED, OURS, PYZMQ_ROUTER, FLIGHT, KAFKA_LOG, NATS_JETSTREAM, REDIS_STREAM)
}

__all__ = ["ENGINES", "Engine", "Server", "Turn"]
