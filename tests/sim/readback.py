"""All rows of a partition, read from a stepped node in no time: for the reckoning behind a run."""

from __future__ import annotations

from typing import Any

from ringfence.native.frame import open_answer
from ringfence.native.wire import AnswerHeader, Status
from tests.sim.ledger import Stored
from tests.sim.reader import fetch_header, records_of
from tests.sim.violation import ViolationError


def read_back(node: Any, connection: int, topic: int, partition: int) -> list[Stored] | None:
    """Every row from the log start to the mark, over a new connection; None if reading is refused.

    Not beyond: that nothing came behind the mark is what an owner asks its replicas, and that takes time.
    """
    node.connect(connection)
    status = next(each for each in node.partitions() if each["partition"] == partition)
    records: list[Stored] = []
    offset, epoch = status["start_offset"], 0
    while offset < status["end_offset"]:
        header, body = _ask(node, connection, fetch_header(topic, 1, partition, offset, epoch, 0))
        if header.status != Status.OK:
            return None
        found = records_of(header, body)
        if not found:
            break
        records += found
        offset, epoch = found[-1].offset + found[-1].rows, found[-1].epoch
    node.disconnect(connection)
    return records


def _ask(node: Any, connection: int, header: bytes) -> tuple[AnswerHeader, bytes]:
    """The answer to one request, without time passing."""
    node.request(connection, header, b"")
    for _ in range(100):
        for ticket in node.turn()[1]:
            node.run_read(ticket)
        for to, frame, body in node.take_answers():
            if to == connection:
                return open_answer(frame), body
    raise ViolationError("I8", "a fetch has no answer behind 100 reads")
