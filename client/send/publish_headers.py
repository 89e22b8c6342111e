"""Cache the header fields that all batches of a partition share; packing them takes 1 us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.common.codec import request_header
from ringfence.native import wire

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from ringfence.common.send_effects import Identity


class PublishHeaders:
    """Headers for one layout and one identity; a change of either clears the cache."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._identity: Identity | None = None
        self._headers: dict[int, bytes] = {}

    def of(self, layout: Layout, identity: Identity, partition: int) -> bytes:
        """For `Connection.publish`."""
        if self._layout is not layout or self._identity is not identity:
            self._layout, self._identity = layout, identity
            self._headers.clear()
        packed = self._headers.get(partition)
        if packed is None:
            entry = layout.partitions.get(partition)
            header = request_header(
                wire.Opcode.PUBLISH,
                0,
                topic=layout.topic,
                partition=partition,
                layout_version=layout.version,
                owner_epoch=entry.epoch if entry is not None else 0,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
            )
            packed = self._headers[partition] = bytes(header)
        return packed
