"""Route encoded bodies again by a newer layout.

After a split or merge a body may become several, or join another. Of a topic with key it is decoded, its rows
are grouped by the newer partitions, and each group is encoded again with the note of the body. A body whose
rows stay together, and every body of a topic without key, keeps its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ringfence.arrow.batches import one_batch
from ringfence.arrow.decode import has_dictionary, read_body
from ringfence.arrow.encode import Body
from ringfence.common.routes import ALL_SLOTS, overlap
from ringfence.common.routing import WeightedRoundRobin
from ringfence.native._node import Encoder
from ringfence.native.errors import BatchError
from ringfence.native.group import rows_by_partition
from ringfence.native.slots import slots

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.arrow.partition_choice import PartitionChoice
    from ringfence.common.routing import Layout


class Routed(NamedTuple):
    """A body of a newer partition, and the slot of its first row."""

    body: Body
    slot: int


class _Schema(NamedTuple):
    message: pa.Buffer
    schema: pa.Schema
    is_stream: bool
    encoder: Encoder


class BodyRouter:
    """Of one producer; used by the I/O thread."""

    def __init__(
        self, slot_of_send: Callable[[int], int] | None = None, choice: PartitionChoice | None = None
    ) -> None:
        """`slot_of_send`: of a named producer in a topic without key. `choice`: partitions to avoid."""
        self._slot_of_send, self._choice = slot_of_send, choice
        self._schemas: dict[int, _Schema] = {}
        # Topic without a key: sealed partition -> the one that has its batches.
        self._heirs: dict[int, int] = {}
        self._layout: Layout | None = None
        self._chooser: WeightedRoundRobin | None = None

    def routed(self, layout: Layout, body: Body, send: int) -> list[Routed]:
        """The bodies that the rows of a body become, in the order of slots."""
        if self._slot_of_send is not None:
            slot = self._slot_of_send(send)
            partition = layout.active[layout.index_of_slot[slot]].partition
            return [Routed(body._replace(partition=partition), slot)]
        if not layout.key:
            return [Routed(body._replace(partition=self._heir(layout, body.partition)), 0)]
        batch = self._rows(layout, body)
        hashed = slots(batch, list(layout.key))
        order, bounds = rows_by_partition(hashed, layout.index_of_slot, len(layout.active))
        ends = bounds.tolist()
        groups = [index for index in range(len(layout.active)) if ends[index] < ends[index + 1]]
        if len(groups) == 1:
            partition = layout.active[groups[0]].partition
            return [Routed(body._replace(partition=partition), int(hashed[0]))]
        messages = self._schema(layout, body.schema_id).encoder.gather(
            batch, order, bounds, bytes(body.data[: body.extension_bytes])
        )
        found = []
        for index in groups:
            rows = order[ends[index] : ends[index + 1]]
            message, crc = messages[index]
            places = rows if body.order is None else body.order[rows]
            part = body._replace(
                partition=layout.active[index].partition, data=message, crc=crc, rows=len(rows), order=places
            )
            found.append(Routed(part, int(hashed[rows[0]])))
        return found

    def joined(self, layout: Layout, first: Body, second: Body, bytes_max: int) -> Body:
        """Two bodies of one send for one partition as one body, with the rows in the order of the send.

        Raises:
            BatchError: the body would be above `bytes_max`.
        """
        known = self._schema(layout, first.schema_id)
        batch = one_batch([self._rows(layout, body) for body in (first, second)], known.schema)
        places = np.arange(batch.num_rows, dtype=np.uint32)
        if first.order is not None and second.order is not None:
            places = np.concatenate([first.order, second.order]).astype(np.uint32)
        order = np.argsort(places, kind="stable").astype(np.uint32)
        bounds = np.array([0, batch.num_rows], np.uint32)
        extension = bytes(first.data[: first.extension_bytes])
        ((message, crc),) = known.encoder.gather(batch, order, bounds, extension)
        if len(message) > bytes_max:
            raise BatchError(
                "two parts of one send belong to one partition since a merge, and together they are above "
                "the limit of a message. A named producer has one message of a send in each partition, so "
                "that its resume point is exact: open the name again, and send fewer rows in one call",
                topic=layout.name,
                partition=first.partition,
                bytes=len(message),
                bytes_max=bytes_max,
            )
        return first._replace(data=message, crc=crc, rows=batch.num_rows, order=places[order])

    def _schema(self, layout: Layout, schema_id: int) -> _Schema:
        found = self._schemas.get(schema_id)
        if found is None:
            message = layout.schemas[schema_id]
            schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(message))
            found = _Schema(pa.py_buffer(message), schema, has_dictionary(schema), Encoder(message))
            self._schemas[schema_id] = found
        return found

    def _rows(self, layout: Layout, body: Body) -> pa.RecordBatch:
        known = self._schema(layout, body.schema_id)
        message = memoryview(body.data)[body.extension_bytes :]
        return read_body(known.message, known.schema, message, is_stream=known.is_stream)

    def _heir(self, layout: Layout, sealed: int) -> int:
        """One partition for everything of a sealed one: the producer's batches there have an order."""
        heir = self._heirs.get(sealed)
        if heir is not None and layout.entry(heir) is not None:
            return heir
        if self._chooser is None or layout is not self._layout:
            self._layout, self._chooser = layout, WeightedRoundRobin(layout)
        entry = layout.partitions.get(sealed)
        own = ALL_SLOTS if entry is None else (entry.lo, entry.hi)
        others = frozenset(one.partition for one in layout.active if not overlap((one.lo, one.hi), own))
        unavailable = frozenset() if self._choice is None else self._choice.unavailable
        heir = self._chooser.choose(others | unavailable)
        if heir in others:  # no heir's owner is available: it is waited for
            heir = self._chooser.choose(others)
        self._heirs[sealed] = heir
        return heir
