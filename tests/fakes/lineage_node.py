"""A fake node whose partitions are split, merged and pruned, and which says where a sealed partition ends."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pyarrow as pa

from ringfence.common.lineage import DRAW_BITS
from ringfence.native import messages, wire
from ringfence.native._node import crc32c
from ringfence.native.wire import Opcode, Status
from tests.fakes.cut_node import CutNode
from tests.fakes.socket_node import CLUSTER, STORE, Log

FIRST_MS = 1_700_000_000_000


class LineageNode(CutNode):
    """Ids are drawn as a real node draws them: those of partitions ascend along the lineage.

    `stale` answers to TABLE give the table of before, as a node that lags does; `gone` has the end offsets of
    pruned parents, by child.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ids = itertools.count(100 << DRAW_BITS, 1 << DRAW_BITS)
        self.gone: dict[int, dict[int, int]] = {}
        self.stale = 0
        self._tables: dict[int, messages.Table] = {}
        self._now = itertools.count()

    # ---- from the test --------------------------------------------------------------------------------

    def put(self, name: str, batch: pa.RecordBatch, first: int = 0) -> Log:
        """Append a batch to an ACTIVE partition, the `first`-th in the order of slots."""
        with self._turn:
            log, topic = self.active(name)[first], self.topic_of(name)
            body = batch.serialize().to_pybytes()
            header = wire.RequestHeader(*[0] * len(wire.RequestHeader._fields))
            header = header._replace(
                opcode=Opcode.PUBLISH,
                topic=topic.topic,
                partition=log.partition,
                layout_version=topic.version,
                owner_epoch=log.epoch,
                producer_id=77,
                producer_epoch=1,
                sequence=len(log.records),
                rows=batch.num_rows,
                body_bytes=len(body),
                body_crc=crc32c(body),
            )
            self._publish(topic, log, header, body)
            return log

    def remember_table(self, name: str, answers: int) -> None:
        """The next answers to TABLE give the table of now."""
        topic = self.topic_of(name)
        self._tables[topic.topic] = self.table(topic)
        self.stale = answers

    def prune(self, name: str, partition: int) -> None:
        with self._turn:
            cut, topic = self.cut(partition), self.topic_of(name)
            assert cut.sealed
            assert not cut.parents, "parents first"
            log = topic.logs.pop(partition)
            self.generation += 1
            for child in cut.children:
                if child in topic.logs:
                    self.cut(child).parents.remove(partition)
                    self.gone.setdefault(child, {})[partition] = log.end

    # ---- the node -------------------------------------------------------------------------------------

    def _create(self, header: wire.RequestHeader, made: messages.TopicCreate) -> list[bytes]:
        answer = super()._create(header, made)
        topic = self.topic_of(made.name)
        topic.topic, topic.version = min(topic.logs) >> DRAW_BITS, max(topic.version, 1)
        return answer

    def _serve(self, header: wire.RequestHeader, body: bytes) -> list[bytes] | None:
        with self._turn:
            if header.opcode == Opcode.TABLE and self.stale:
                self.stale -= 1
                self.needed.append(header.layout_version)
                return self._reply(header, self._tables[header.topic], topic=header.topic)
            if header.opcode == Opcode.STATUS:
                return self._reply(header, self._status())
            if header.opcode == Opcode.OFFSET_FOR_TIME:
                topic = next(one for one in self.topics.values() if one.topic == header.topic)
                return self._at_time(header, topic.logs[header.partition])
            return super()._serve(header, body)

    def _status(self) -> messages.Status:
        return messages.Status(
            cluster=CLUSTER,
            history=self.history,
            node=self.node,
            store=STORE,
            program="fake",
            state="serving",
            reasons=[],
            addresses=[self.address],
            uptime_s=1.0,
            index=self.generation,
            topics=len(self.topics),
            partitions=sum(len(topic.logs) for topic in self.topics.values()),
            counters={},
        )

    def _at_time(self, header: wire.RequestHeader, log: Log) -> list[bytes]:
        records = [wire.RecordHeader._make(wire.RECORD_STRUCT.unpack_from(one)) for one in log.records]
        first = next((one.first_offset for one in records if one.time_ms >= header.sequence), log.end)
        epoch = log.epoch if first else 0
        return self._answer(header, Status.OK, first_offset=first, end_offset=log.end, send=epoch)

    def _answer(
        self, header: wire.RequestHeader, status: int, body: bytes = b"", **fields: int
    ) -> list[bytes]:
        is_end = header.opcode in {Opcode.END_OFFSETS, Opcode.OFFSET_FOR_TIME}
        if header.opcode == Opcode.FETCH and status == Status.OK:
            is_end = not fields["rows"] or fields["first_offset"] + fields["rows"] == fields["end_offset"]
        if is_end and status == Status.OK:
            fields["layout_version"] = next(
                t for t in self.topics.values() if t.topic == header.topic
            ).version
            if self.cut(header.partition).sealed:
                fields["flags"] = fields.get("flags", 0) | wire.AnswerFlags.ENDED
        return super()._answer(header, status, body, **fields)

    def _record(self, log: Log, header: wire.RequestHeader, body: bytes) -> bytes:
        """Times ascend over all partitions."""
        record = super()._record(log, header, body)
        made = wire.RecordHeader._make(wire.RECORD_STRUCT.unpack_from(record))
        head = wire.RECORD_STRUCT.pack(*made._replace(time_ms=FIRST_MS + next(self._now)))
        return head[:4] + struct.pack("<I", crc32c(head[8:])) + head[8:] + record[wire.RECORD_HEADER_BYTES :]

    def _entry(self, entry: messages.PartitionEntry) -> messages.PartitionEntry:
        entry = super()._entry(entry)
        fields: dict[str, Any] = {name: getattr(entry, name) for name in entry.__struct_fields__}
        if entry.sealed_version:
            log = next(t.logs[entry.partition] for t in self.topics.values() if entry.partition in t.logs)
            fields |= {"end_offset": log.end, "sealed_ms": FIRST_MS}
        if entry.partition in self.gone:
            fields["gone"] = list(self.gone[entry.partition].items())
        return messages.PartitionEntry(**fields)
