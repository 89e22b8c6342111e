"""Worked messages between a member of a cohort and the owners of its gates: their bodies are binary."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ringfence.native import wire
from tests.wire.codec import EPOCH, PARTITION, TOPIC, answer, request

if TYPE_CHECKING:
    from collections.abc import Iterator

Op, St = wire.Opcode, wire.Status
COHORT, SESSION, GENERATION = 44 << 16, 46 << 16, 3
HOLD = EPOCH << 20


def gates() -> Iterator[tuple[str, dict[str, Any]]]:
    """A member attaches its connection, and keeps its hold of one partition; another one it has lost."""
    attached: dict[str, Any] = {"topic": TOPIC, "sequence": GENERATION, "send": wire.GATE_LEASE_MS}
    member: dict[str, Any] = {"topic": TOPIC, "producer_id": SESSION, "producer_epoch": COHORT}
    yield "attach", request(Op.ATTACH, request_id=25, **member)
    yield "attach_ok", answer(Op.ATTACH, St.OK, request_id=25, **attached)
    listed = struct.pack("<4Q", PARTITION, HOLD, PARTITION + 1, HOLD)
    yield "member_beat", request(Op.MEMBER_BEAT, listed, request_id=26, **member)
    lost = struct.pack("<Q", PARTITION + 1)
    yield "member_beat_ok", answer(Op.MEMBER_BEAT, St.OK, lost, request_id=26, **attached)
