"""A `CutNode` on which rows are staged and committed. What is committed is visible at once."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from ringfence.arrow.decode import read_body
from ringfence.common import extension
from ringfence.native import cluster_messages, layout_messages, messages, wire
from ringfence.native._node import crc32c
from ringfence.send.stager import IDENTITY
from tests.fakes.cut_node import CutNode
from tests.fakes.socket_node import Log, Topic

Op, Status, Code = wire.Opcode, wire.Status, wire.Code
LISTED_MAX = 3
"""Batches of one answer to STAGED_LIST: a test needs several pages."""


class Staged(NamedTuple):
    """One staged record."""

    number: int
    token: bytes
    rows: int
    origin: tuple[int, int] | None
    record: bytes
    ids: list[int]


@dataclass
class Scope:
    driver: int = 0
    committed: int = 0
    tokens: list[bytes] = field(default_factory=list)


class StagingNode(CutNode):
    """`published`: by partition the ids of committed rows, in the order of the publish records.

    `unsealed_answers`: so many answers about staged rows come before the owner knows that they are in a
    sealed partition. It says so in a list, and shows no record at the end of its log.
    `behind`: by partition, answers to STAGED_LIST of an owner that has not applied the layout change yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.staged: dict[int, list[Staged]] = {}
        self.published: dict[int, list[int]] = {}
        self.behind: dict[int, int] = {}
        self.scopes: dict[str, tuple[int, Scope]] = {}
        self.commits: list[cluster_messages.ScopeCommit] = []
        self.unsealed_answers = 0
        self._numbers = itertools.count(1)
        self._drivers = itertools.count(1)

    def visible(self, name: str) -> list[int]:
        """Committed ids, ancestors first."""
        return [one for partition in self.lineage_ids(name) for one in self.published.get(partition, [])]

    def _serve(self, header: wire.RequestHeader, body: bytes) -> list[bytes] | None:
        with self._turn:
            match header.opcode:
                case Op.BEGIN:
                    return self._begin(header, messages.decode(cluster_messages.ScopeBegin, body))
                case Op.COMMIT:
                    return self._commit(header, messages.decode(cluster_messages.ScopeCommit, body))
                case Op.EXPIRE:
                    return self._reply(header, cluster_messages.ScopeCommitted())
                case Op.STAGE:
                    return self._stage(header, body)
                case Op.STAGED_LIST:
                    return self._list(header, messages.decode(layout_messages.StagedList, body))
                case Op.FETCH if header.flags & wire.RequestFlags.STAGED:
                    if self._is_unsealed():
                        return self._answer(header, Status.OK)
                    records = [
                        one.record for one in self.staged[header.partition] if one.number >= header.sequence
                    ]
                    return self._answer(header, Status.OK, b"".join(records[:2]))
            return super()._serve(header, body)

    def _begin(self, header: wire.RequestHeader, asked: cluster_messages.ScopeBegin) -> list[bytes]:
        number, scope = self.scopes.setdefault(asked.scope, (next(self._numbers), Scope()))
        scope.driver = next(self._drivers)
        begun = cluster_messages.ScopeBegun(
            scope_id=number, driver=scope.driver, committed=scope.committed, decided=scope.committed
        )
        return self._reply(header, begun)

    def _stage(self, header: wire.RequestHeader, body: bytes) -> list[bytes]:
        topic = next(one for one in self.topics.values() if one.topic == header.topic)
        log, cut = topic.logs[header.partition], self.cut(header.partition)
        items = extension.items_of(body[: header.extension_bytes])
        token = IDENTITY.unpack(items[wire.ExtensionKind.STAGE])[-1]
        staged = self.staged.setdefault(log.partition, [])
        count = sum(one.token == token for one in staged)
        if header.sequence < count:
            return self._answer(header, Status.STAGED)
        if cut.sealed:
            told = messages.Redirected(
                owner=self.node,
                addresses=[self.address],
                children=cut.children,
                version=cut.sealed,
                stored=count,
            )
            fields = {"sequence": count, "layout_version": topic.version}
            return self._reply(header, told, Status.REDIRECT, code=wire.RedirectReason.SEALED, **fields)
        if header.layout_version != topic.version:
            told = messages.Redirected(owner=self.node, addresses=[self.address])
            reason = wire.RedirectReason.STALE_VERSION
            return self._reply(header, told, Status.REDIRECT, code=reason, layout_version=topic.version)
        if cut.is_held:
            return self._refuse(header, Code.HELD, "on hold", retry_after_ms=5)
        if header.sequence > count:
            return self._refuse(header, Code.SEQUENCE_GAP, sequence=count)
        self._keep(topic, log, header, body, token, items)
        return self._answer(header, Status.STAGED)

    def _keep(
        self,
        topic: Topic,
        log: Log,
        header: wire.RequestHeader,
        body: bytes,
        token: bytes,
        items: dict[int, bytes],
    ) -> None:
        schema = pa.ipc.read_schema(pa.py_buffer(topic.schemas[header.schema_id]))
        message = body[header.extension_bytes :]
        batch = read_body(pa.py_buffer(topic.schemas[0]), schema, message, is_stream=False)
        number = len(self.staged[log.partition]) + 1
        origin = items.get(wire.ExtensionKind.ORIGIN)
        self.staged[log.partition].append(
            Staged(
                number,
                token,
                header.rows,
                None if origin is None else struct.unpack("<QQ", origin),
                self._staged_record(log, header, body, number),
                batch.column("id").to_pylist(),
            )
        )

    def _staged_record(self, log: Log, header: wire.RequestHeader, body: bytes, number: int) -> bytes:
        span = -(-(wire.RECORD_HEADER_BYTES + len(body)) // 64) * 64
        values: dict[str, Any] = {
            "magic": wire.RECORD_MAGIC,
            "kind": wire.RecordKind.STAGED,
            "span_bytes": span,
            "rows": header.rows,
            "topic": header.topic,
            "partition": header.partition,
            "record_number": number,
            "owner_epoch": log.epoch,
            "sequence": header.sequence,
            "schema_id": header.schema_id,
            "extension_bytes": header.extension_bytes,
            "body_bytes": len(body),
            "body_crc": header.body_crc,
        }
        zero = dict.fromkeys(wire.RecordHeader._fields, 0)
        head = wire.RECORD_STRUCT.pack(*wire.RecordHeader(**zero | values))
        head = head[:4] + struct.pack("<I", crc32c(head[8:])) + head[8:]
        return head + body + bytes(span - len(head) - len(body))

    def _is_unsealed(self) -> bool:
        self.unsealed_answers -= 1
        return self.unsealed_answers >= 0

    def _list(self, header: wire.RequestHeader, asked: layout_messages.StagedList) -> list[bytes]:
        found = [
            (one.number, one.rows, asked.tokens.index(one.token))
            for one in self.staged[header.partition]
            if one.token in asked.tokens and one.number > asked.after
        ]
        sealed = 0 if self._is_unsealed() else self.cut(header.partition).sealed
        if self.behind.get(header.partition):
            self.behind[header.partition] -= 1
            sealed = 0
        page = layout_messages.StagedBatches(
            batches=found[:LISTED_MAX], more=len(found) > LISTED_MAX, sealed_version=sealed
        )
        return self._reply(header, page)

    def _commit(self, header: wire.RequestHeader, asked: cluster_messages.ScopeCommit) -> list[bytes]:
        self.commits.append(asked)
        scope = next(scope for number, scope in self.scopes.values() if number == asked.scope_id)
        if asked.epoch <= scope.committed:
            own = cluster_messages.AlreadyCommitted(own=scope.tokens == asked.tokens)
            return self._reply(header, own, Status.ALREADY_COMMITTED)
        sealed = [partition for _, partition, _ in asked.parts if self.cut(partition).sealed]
        if sealed:
            told = messages.Refused(message="sealed", details={"partitions": sealed})
            return self._reply(header, told, Status.REFUSED, code=Code.MOVED)
        for _, partition, rows in asked.parts:
            here = sum(one.rows for one in self.staged[partition] if one.token in asked.tokens)
            if here != rows:
                return self._refuse(header, Code.INVALID_ARGUMENT, f"{here} rows are staged, not {rows}")
        for _, partition, _ in asked.parts:
            own_rows = [one for one in self.staged[partition] if one.token in asked.tokens]
            own_rows.sort(key=lambda one: (one.origin is None, one.origin or (0, 0), one.number))
            self.published.setdefault(partition, []).extend(number for one in own_rows for number in one.ids)
        scope.committed, scope.tokens = asked.epoch, list(asked.tokens)
        return self._reply(header, cluster_messages.ScopeCommitted())
