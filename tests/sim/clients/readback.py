"""All rows of a partition, read from a stepped node in no time: for the reckoning behind a run."""

from __future__ import annotations

from typing import Any

from ringfence.common.codec import request_header
from ringfence.native import messages, wire
from ringfence.native._node import crc32c
from ringfence.native.frame import open_answer
from ringfence.native.wire import AnswerHeader, Status
from tests.sim.checks.ledger import Published, Record, Stored
from tests.sim.checks.violation import ViolationError
from tests.sim.clients import keyed
from tests.sim.clients.content import first_id
from tests.sim.clients.reader import FirstId, fetch_header, records_of, staged_header, staged_of


def read_back(node: Any, connection: int, topic: int, partition: int) -> list[Record] | None:
    """Every row from the log start to the mark, over a new connection; None if reading is refused.

    Behind each publish come the rows that it gives offsets to. Nothing beyond the mark: that nothing came
    behind it is what an owner asks its replicas, and that takes time.
    """
    node.connect(connection)
    return _read(node, connection, topic, partition, first_id)


def _read(node: Any, connection: int, topic: int, partition: int, first_of: FirstId) -> list[Record] | None:
    status = next(each for each in node.partitions() if each["partition"] == partition)
    records: list[Record] = []
    offset, epoch = status["start_offset"], 0
    while offset < status["end_offset"]:
        header, body = _ask(node, connection, fetch_header(topic, 1, partition, offset, epoch, 0))
        if header.status != Status.OK:
            return None
        found = records_of(header, body, first_of)
        if not found:
            break
        for record in found:
            records.append(record)
            if isinstance(record, Published):
                staged = _staged(node, connection, topic, partition, record, first_of)
                if staged is None:
                    return None
                record.staged = staged
                records += staged
        offset, epoch = found[-1].offset + found[-1].rows, found[-1].epoch
    node.disconnect(connection)
    return records


def keyed_back(node: Any, connection: int, topic: int, partition: int) -> list[Record] | None:
    """As `read_back`, of rows with keys, by a reader that knows lineages."""
    hello = messages.Hello(
        version_min=wire.PROTOCOL_VERSION_MIN,
        version_max=wire.PROTOCOL_VERSION,
        client="end",
        features=int(wire.Features.LINEAGE),
    )
    body = messages.encode(hello)
    fields = {"flags": wire.RequestFlags.CONTROL, "body_bytes": len(body), "body_crc": crc32c(body)}
    node.connect(connection)
    header, _ = _ask(node, connection, bytes(request_header(wire.Opcode.HELLO, 2, **fields)), body)
    assert header.status == Status.READY, header
    return _read(node, connection, topic, partition, keyed.first_id)


def _staged(
    node: Any, connection: int, topic: int, partition: int, published: Published, first_of: FirstId
) -> list[Stored] | None:
    """The rows that a publish names, in the order of their offsets; None if reading is refused."""
    left = {place.record: place for place in published.places}
    found: list[Stored] = []
    at = min(left, default=0)
    while left:
        header, body = _ask(node, connection, staged_header(topic, 1, partition, at))
        if header.status != Status.OK:
            return None
        staged = staged_of(body, first_of)
        if not staged:
            what = f"partition {partition}: of the publish at {published.offset} the records {sorted(left)}"
            raise ViolationError("all or nothing", f"{what} are not in the log")
        found += [
            Stored(left.pop(one.record).offset, one.rows, one.first, published.epoch, one.body)
            for one in staged
            if one.record in left
        ]
        at = staged[-1].record + 1
    return sorted(found, key=lambda each: each.offset)


def _ask(node: Any, connection: int, header: bytes, asked: bytes = b"") -> tuple[AnswerHeader, bytes]:
    """The answer to one request, without time passing."""
    node.request(connection, header, asked)
    for _ in range(100):
        for ticket in node.turn()[1]:
            node.run_read(ticket)
        for to, frame, body in node.take_answers():
            if to == connection:
                return open_answer(frame), body
    raise ViolationError("I8", "a fetch has no answer behind 100 reads")
