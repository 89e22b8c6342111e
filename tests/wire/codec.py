"""Headers, records and extensions made in plain Python, with a CRC of their own."""

from __future__ import annotations

import struct
from typing import Any

from ringfence.native import messages, wire

CREDIT_BYTES = 33_554_432  # every answer says it
TOPIC, PARTITION, VERSION, EPOCH, PRODUCER, PRODUCER_EPOCH = 7, 9, 0, 12, 65536, 15


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit: polynomial 0x82F63B78 (reflected), init and xorout all ones."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def seal(kind: type[tuple[int, ...]], layout: struct.Struct, fields: dict[str, int], body: bytes) -> bytes:
    sized = {
        "magic": wire.MAGIC,
        "version": wire.PROTOCOL_VERSION,
        "body_bytes": len(body),
        "body_crc": crc32c(body) if body else 0,
    }
    header = layout.pack(*kind(**{**sized, **fields, "header_crc": 0}))
    return header[:-4] + struct.pack("<I", crc32c(header[:-4]))


def request(opcode: wire.Opcode, body: bytes = b"", **fields: int) -> dict[str, Any]:
    header = seal(wire.RequestHeader, wire.REQUEST_STRUCT, {"opcode": opcode, **fields}, body)
    return {"kind": "request", "opcode": opcode.name.lower(), "header": header, "body": body}


def answer(opcode: wire.Opcode, status: wire.Status, body: bytes = b"", **fields: int) -> dict[str, Any]:
    base = {"opcode": opcode, "status": status, "credit_bytes": CREDIT_BYTES}
    header = seal(wire.AnswerHeader, wire.ANSWER_STRUCT, {**base, **fields}, body)
    return {"kind": "answer", "opcode": opcode.name.lower(), "header": header, "body": body}


def control(opcode: wire.Opcode, message: messages.Message, **fields: int) -> dict[str, Any]:
    return request(opcode, messages.encode(message), flags=wire.RequestFlags.CONTROL, **fields)


def reply(
    opcode: wire.Opcode, message: messages.Message, status: wire.Status = wire.Status.OK, **fields: int
) -> dict[str, Any]:
    return answer(opcode, status, messages.encode(message), flags=wire.AnswerFlags.CONTROL, **fields)


def record(body: bytes, **fields: int) -> bytes:
    """One log record as a FETCH answer has it: header, body, zeros up to a multiple of 64."""
    span = -(-(wire.RECORD_HEADER_BYTES + len(body)) // 64) * 64
    base = {
        "magic": wire.RECORD_MAGIC,
        "kind": wire.RecordKind.ROWS,
        "span_bytes": span,
        "body_bytes": len(body),
        "body_crc": crc32c(body),
        "file_number": 1,
        "group": 2,
        "topic": TOPIC,
        "partition": PARTITION,
        "owner_epoch": EPOCH,
        "layout_version": VERSION,
        "chain": 0x0123456789ABCDEF,
        "time_ms": 1_767_225_600_000,
    }
    header = wire.RECORD_STRUCT.pack(*wire.RecordHeader(**{**base, **fields}))
    header = header[:4] + struct.pack("<I", crc32c(header[8:])) + header[8:]
    return header + body + bytes(span - len(header) - len(body))


def extension(kind: wire.ExtensionKind, payload: bytes) -> bytes:
    item = struct.pack("<HHI", kind, 0, len(payload)) + payload
    return item + bytes(-len(item) % 64)
