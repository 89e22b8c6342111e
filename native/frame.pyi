from typing_extensions import Buffer

from ringfence.native.wire import AnswerHeader, RequestHeader

def pack_request(
    out: Buffer,
    at: int,
    opcode: int,
    request_id: int,
    *,
    flags: int = 0,
    topic: int = 0,
    partition: int = 0,
    layout_version: int = 0,
    owner_epoch: int = 0,
    producer_id: int = 0,
    producer_epoch: int = 0,
    sequence: int = 0,
    send: int = 0,
    rows: int = 0,
    schema_id: int = 0,
    deadline_ms: int = 0,
    extension_bytes: int = 0,
    body_bytes: int = 0,
    body_crc: int = 0,
) -> None:
    """Write a sealed request header into `out[at:at + 128]`."""

def pack_publish(
    kept: Buffer,
    request_id: int,
    sequence: int,
    send: int,
    rows: int,
    schema_id: int,
    deadline_ms: int,
    extension_bytes: int,
    body_bytes: int,
    body_crc: int,
    /,
) -> bytes:
    """A copy of `kept`, a PUBLISH header of `pack_request`, with the values of one batch."""

def pack_answer(
    out: Buffer,
    at: int,
    opcode: int,
    status: int,
    request_id: int,
    *,
    topic: int = 0,
    partition: int = 0,
    layout_version: int = 0,
    owner_epoch: int = 0,
    first_offset: int = 0,
    end_offset: int = 0,
    sequence: int = 0,
    send: int = 0,
    generation: int = 0,
    credit_bytes: int = 0,
    rows: int = 0,
    retry_after_ms: int = 0,
    code: int = 0,
    flags: int = 0,
    body_bytes: int = 0,
    body_crc: int = 0,
) -> None:
    """Write a sealed answer header into `out[at:at + 128]`."""

def open_request(data: Buffer) -> RequestHeader:
    """Check and return the 128 bytes of a request header. Raises ProtocolError."""

def open_answer(data: Buffer) -> AnswerHeader:
    """Check and return the 128 bytes of an answer header. Raises ProtocolError."""

def open_stored(data: Buffer) -> tuple[int, int, int] | None:
    """(request_id, first_offset, credit_bytes) of an answer that a batch is stored; else None."""

def header_crc(data: Buffer, *, portable: bool = False) -> int:
    """CRC-32C of short data."""
