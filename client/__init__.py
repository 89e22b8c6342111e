"""Durable, partitioned ingest of Arrow record batches, exactly once.

START HERE:

    import ringfence
    with ringfence.connect("tcp://127.0.0.1:7411") as client:
        client.create_topic("events", schema=schema, key=["id"], partitions=8, exist_ok=True)
        with client.producer("events") as producer:
            future = producer.send(batch)        # anything with __arrow_c_array__ or __arrow_c_stream__
            future.result()                      # (Appended(partition, first_offset, rows), ...): on disk
        for batch in client.read("events"):      # pyarrow record batches
            ...

    client.py     connect, Client          producer.py  Producer: rows in       reader.py  Reader: rows out
    topic_calls.py  calls about topics        admin.py  their requests      topic_info.py  what they return
    consumer/     Consumer: a member of a cohort (consumer group)
    watch.py      Watch: what happens to topics and layouts
    client_admin.py  what `Client.admin` has: layout_admin.py: split, merge and repartition topics;
                     cohort_admin.py: cohorts; parked_admin.py: rows that queues have put aside
    transaction.py  all rows of a block or none; consuming_transaction.py: and what a consumer gave
    scopes.py     transactions in parts: begin, stage, commit; staged_reader.py reads what they published
    answer_batches.py  the answers of a read as batches
    aio.py        the same for asyncio: ringfence.aio.connect; aio_admin.py, aio_scopes.py, aio_watch.py
    compact.py    a topic as Parquet files; with compaction/
    send/         from rows to outcomes; inflight.py has the rules of exactly-once, pure
    cluster/      routing tables, and the offsets where reads begin and end
    arrow/        Arrow data: check, cast, encode, decode
    network/      io_thread.py: the background thread with its sockets
    common/       values and helpers that all of them share
    spark/        ringfence.spark.write(df, ...), ringfence.spark.read(spark, ...)

Imports run downward in this list only, spark/ at the top; pyproject.toml holds it as a contract.

Errors are one tree below RingfenceError, a branch for each thing a caller can do: see
`ringfence.native.errors`. Importing this loads nothing heavy: names are looked up when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence import aio, spark
    from ringfence.arrow.decode import Place
    from ringfence.arrow.keys import slots
    from ringfence.client import Client, connect
    from ringfence.cluster.offsets import Ends, Position
    from ringfence.common.cluster_info import ClusterInfo
    from ringfence.common.watch_events import EventKind, WatchEvent
    from ringfence.consumer.consumer import Consumer
    from ringfence.consumer.delivery import Delivery
    from ringfence.consumer.values import ConsumerPlace
    from ringfence.native.errors import (
        AlreadyExistsError,
        BatchError,
        ClosedError,
        ConfigError,
        ConflictError,
        ConnectError,
        DeadlineError,
        DiskFullError,
        FencedError,
        ForgottenError,
        ForkedError,
        InvalidArgumentError,
        LostRowsError,
        MemberError,
        MemberExistsError,
        NotFoundError,
        OverloadedError,
        PositionError,
        ProtocolError,
        QuarantinedError,
        ReentrantError,
        RefusedError,
        RerouteError,
        ResumeUnknownError,
        RetriableError,
        RingfenceError,
        SchemaError,
        TruncatedError,
        UnauthorizedError,
        UnknownOutcomeError,
        WaitTimeoutError,
    )
    from ringfence.producer import Producer
    from ringfence.reader import Reader
    from ringfence.send.outcomes import Failure
    from ringfence.send.send_future import Appended, SendFuture
    from ringfence.watch import Watch

__all__ = [
    "AlreadyExistsError",
    "Appended",
    "BatchError",
    "Client",
    "ClosedError",
    "ClusterInfo",
    "ConfigError",
    "ConflictError",
    "ConnectError",
    "Consumer",
    "ConsumerPlace",
    "DeadlineError",
    "Delivery",
    "DiskFullError",
    "Ends",
    "EventKind",
    "Failure",
    "FencedError",
    "ForgottenError",
    "ForkedError",
    "InvalidArgumentError",
    "LostRowsError",
    "MemberError",
    "MemberExistsError",
    "NotFoundError",
    "OverloadedError",
    "Place",
    "Position",
    "PositionError",
    "Producer",
    "ProtocolError",
    "QuarantinedError",
    "Reader",
    "ReentrantError",
    "RefusedError",
    "RerouteError",
    "ResumeUnknownError",
    "RetriableError",
    "RingfenceError",
    "SchemaError",
    "SendFuture",
    "TruncatedError",
    "UnauthorizedError",
    "UnknownOutcomeError",
    "WaitTimeoutError",
    "Watch",
    "WatchEvent",
    "aio",
    "connect",
    "slots",
    "spark",
]

_HOMES = {
    "Client": "client",
    "connect": "client",
    "ClusterInfo": "common.cluster_info",
    "EventKind": "common.watch_events",
    "Watch": "watch",
    "WatchEvent": "common.watch_events",
    "Place": "arrow.decode",
    "slots": "arrow.keys",
    "Ends": "cluster.offsets",
    "Position": "cluster.offsets",
    "Producer": "producer",
    "Reader": "reader",
    "Consumer": "consumer.consumer",
    "ConsumerPlace": "consumer.values",
    "Delivery": "consumer.delivery",
    "Appended": "send.send_future",
    "SendFuture": "send.send_future",
    "Failure": "send.outcomes",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ringfence' has no attribute {name!r}")
    if name in {"aio", "spark"}:
        return importlib.import_module(f"ringfence.{name}")
    home = importlib.import_module(f"ringfence.{_HOMES.get(name, 'native.errors')}")
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return __all__
