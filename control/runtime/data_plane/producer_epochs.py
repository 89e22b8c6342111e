"""Raise a named producer's epoch in a partition that this node owns, which fences the predecessor there."""

from __future__ import annotations

from typing import Any

from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc import messages
from ringfence.native._node import Order
from ringfence.native.wire import Code


async def raise_epoch(native_node: NativeNode, call: messages.OpenProducer) -> dict[str, Any]:
    """Raise the epoch, and return the partition's record of the name's last batch; empty for a new name.

    Returns {"forgotten": True}, and writes nothing, if the partition has no record of `call.previous` left.

    Raises:
        RequestRefused: QUARANTINED while the partition is quarantined: the predecessor's last batch cannot
            be read. INTERNAL, try again: the partition is not open here yet, or was opened elsewhere.
            OVERLOADED, try again: the node's producer tables have no room for a new producer.
    """
    try:
        result = await native_node.order(
            Order.open_producer(
                call.topic, call.partition, call.producer, call.epoch, call.name, call.previous
            )
        )
    except OrderError as error:
        why = _quarantine(native_node, call.topic, call.partition)
        if why is not None:
            raise RequestRefused(Code.QUARANTINED, f"it is quarantined ({why})") from error
        raise RequestRefused(Code.INTERNAL, str(error), retry_after_ms=1_000) from error
    if "full" in result:
        raise RequestRefused(Code.OVERLOADED, result["full"], retry_after_ms=1_000)
    return result


def _quarantine(native_node: NativeNode, topic: int, partition: int) -> str | None:
    for part in native_node.node.partitions():
        if (part["topic"], part["partition"]) == (topic, partition):
            return None if part.get("quarantined") is None else str(part["quarantined"])
    return None
