"""A named producer's epoch in a partition that this node owns: its predecessor is fenced there."""

from __future__ import annotations

from functools import partial
from typing import Any

from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc import messages
from ringfence.native.wire import Code


async def raise_epoch(driver: NativeNode, call: messages.OpenProducer) -> dict[str, Any]:
    """What the partition knows of the name's last batch; empty for a new one.

    {"forgotten": True}, and nothing is written, where it knows nothing any more of `call.previous`.

    Raises:
        RequestRefused: QUARANTINED, for as long as the partition is: what the predecessor stored there cannot
            be told. INTERNAL, to be asked again: it is not open here yet, or was opened elsewhere.
            OVERLOADED, to be asked again: the node's producer tables have no room for a new producer.
    """
    try:
        result = await driver.order(
            partial(
                driver.node.open_producer,
                call.topic,
                call.partition,
                call.producer,
                call.epoch,
                call.name,
                call.previous,
            )
        )
    except OrderError as error:
        why = _quarantine(driver, call.topic, call.partition)
        if why is not None:
            raise RequestRefused(Code.QUARANTINED, f"it is quarantined ({why})") from error
        raise RequestRefused(Code.INTERNAL, str(error), retry_after_ms=1_000) from error
    if "full" in result:
        raise RequestRefused(Code.OVERLOADED, result["full"], retry_after_ms=1_000)
    return result


def _quarantine(driver: NativeNode, topic: int, partition: int) -> str | None:
    for part in driver.node.partitions():
        if (part["topic"], part["partition"]) == (topic, partition):
            return None if part.get("quarantined") is None else str(part["quarantined"])
    return None
