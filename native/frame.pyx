"""Pack and read the headers of requests and answers in place: one call a header, below a microsecond.

wire.pxd has the layout; magic, version and CRC are written and checked here. An invalid header raises
ProtocolError, and the bytes after it must not be read.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cimport wire

from ringfence.native.errors import InvalidArgumentError, ProtocolError
from ringfence.native.wire import AnswerHeader, RequestHeader

cdef extern from "crc32c.h" nogil:
    uint32_t crc32c_any(const uint8_t *p, size_t bytes)
    uint32_t crc32c_short(const uint8_t *p, size_t bytes)

cdef object _new = tuple.__new__
cdef enum:
    CRC_AT = wire.HEADER_BYTES - 4


cdef uint8_t *_room(object out, Py_ssize_t at, Py_buffer *view) except NULL:
    """Pointer to a writable header at `at`; the caller releases the view."""
    PyObject_GetBuffer(out, view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    if at < 0 or view.len - at < wire.HEADER_BYTES:
        length = view.len
        PyBuffer_Release(view)
        raise InvalidArgumentError(f"a header needs {wire.HEADER_BYTES} bytes at {at}, but the buffer has {length}")
    return <uint8_t *> view.buf + at


cdef int _check(const uint8_t *header, Py_ssize_t size) except -1:
    """Check length, magic, CRC and version, in this order: each check relies on the ones before it."""
    cdef const wire.AnswerHeader *as_answer = <const wire.AnswerHeader *> header
    cdef uint32_t found
    if size != wire.HEADER_BYTES:
        raise ProtocolError(f"a header has {wire.HEADER_BYTES} bytes, this one {size}")
    if as_answer.magic != wire.MAGIC:
        raise ProtocolError(f"magic is {as_answer.magic:#010x}, expected {wire.MAGIC:#010x}: not a ringfence peer")
    found = crc32c_short(header, CRC_AT)
    if found != as_answer.header_crc:
        raise ProtocolError(f"the header names CRC {as_answer.header_crc:#010x}, its bytes have {found:#010x}")
    if not wire.PROTOCOL_VERSION_MIN <= as_answer.version <= wire.PROTOCOL_VERSION:
        raise ProtocolError(f"protocol version {as_answer.version} is outside {wire.PROTOCOL_VERSION_MIN}.."
                            f"{wire.PROTOCOL_VERSION}; upgrade the older side")
    return 0


def pack_request(out, Py_ssize_t at, uint8_t opcode, uint64_t request_id, *, uint8_t flags=0, uint64_t topic=0,
                 uint64_t partition=0, uint64_t layout_version=0, uint64_t owner_epoch=0, uint64_t producer_id=0,
                 uint64_t producer_epoch=0, uint64_t sequence=0, uint64_t send=0, uint32_t rows=0,
                 uint32_t schema_id=0, uint32_t deadline_ms=0, uint32_t extension_bytes=0, uint32_t body_bytes=0,
                 uint32_t body_crc=0):
    """Write a sealed request header into `out[at:at + 128]`, a bytearray or another writable buffer.

    Raises:
        InvalidArgumentError: the buffer is shorter.
        OverflowError: a value does not fit its field.
    """
    cdef Py_buffer view
    cdef wire.RequestHeader *header = <wire.RequestHeader *> _room(out, at, &view)
    header.magic, header.version, header.opcode, header.flags = wire.MAGIC, wire.PROTOCOL_VERSION, opcode, flags
    header.request_id, header.topic, header.partition = request_id, topic, partition
    header.layout_version, header.owner_epoch = layout_version, owner_epoch
    header.producer_id, header.producer_epoch = producer_id, producer_epoch
    header.sequence, header.send = sequence, send
    header.rows, header.schema_id, header.deadline_ms = rows, schema_id, deadline_ms
    header.extension_bytes, header.body_bytes, header.body_crc = extension_bytes, body_bytes, body_crc
    memset(header.reserved, 0, sizeof(header.reserved))
    header.header_crc = crc32c_short(<const uint8_t *> header, CRC_AT)
    PyBuffer_Release(&view)


def pack_publish(kept, uint64_t request_id, uint64_t sequence, uint64_t send, uint32_t rows, uint32_t schema_id,
                 uint32_t deadline_ms, uint32_t extension_bytes, uint32_t body_bytes, uint32_t body_crc, /):
    """A copy of `kept`, a PUBLISH header of `pack_request`, with the values of one batch, in a third of its time.

    Raises:
        ProtocolError: `kept` is not a header.
        OverflowError: a value does not fit its field.
    """
    cdef Py_buffer view
    cdef wire.RequestHeader header
    PyObject_GetBuffer(kept, &view, PyBUF_SIMPLE)
    try:
        if view.len != wire.HEADER_BYTES:
            raise ProtocolError(f"a header has {wire.HEADER_BYTES} bytes, this one {view.len}")
        memcpy(&header, view.buf, wire.HEADER_BYTES)
    finally:
        PyBuffer_Release(&view)
    header.request_id, header.sequence, header.send = request_id, sequence, send
    header.rows, header.schema_id, header.deadline_ms = rows, schema_id, deadline_ms
    header.extension_bytes, header.body_bytes, header.body_crc = extension_bytes, body_bytes, body_crc
    header.header_crc = crc32c_short(<const uint8_t *> &header, CRC_AT)
    return PyBytes_FromStringAndSize(<const char *> &header, wire.HEADER_BYTES)


def pack_answer(out, Py_ssize_t at, uint8_t opcode, uint8_t status, uint64_t request_id, *, uint64_t topic=0,
                uint64_t partition=0, uint64_t layout_version=0, uint64_t owner_epoch=0, uint64_t first_offset=0,
                uint64_t end_offset=0, uint64_t sequence=0, uint64_t send=0, uint64_t generation=0,
                uint64_t credit_bytes=0, uint32_t rows=0, uint32_t retry_after_ms=0, uint16_t code=0,
                uint16_t flags=0, uint32_t body_bytes=0, uint32_t body_crc=0):
    """Write a sealed answer header into `out[at:at + 128]`. Errors as for `pack_request`."""
    cdef Py_buffer view
    cdef wire.AnswerHeader *header = <wire.AnswerHeader *> _room(out, at, &view)
    header.magic, header.version, header.opcode, header.status = wire.MAGIC, wire.PROTOCOL_VERSION, opcode, status
    header.request_id, header.topic, header.partition = request_id, topic, partition
    header.layout_version, header.owner_epoch = layout_version, owner_epoch
    header.first_offset, header.end_offset = first_offset, end_offset
    header.sequence, header.send, header.generation = sequence, send, generation
    header.credit_bytes, header.rows, header.retry_after_ms = credit_bytes, rows, retry_after_ms
    header.code, header.flags, header.body_bytes, header.body_crc = code, flags, body_bytes, body_crc
    memset(header.reserved, 0, sizeof(header.reserved))
    header.header_crc = crc32c_short(<const uint8_t *> header, CRC_AT)
    PyBuffer_Release(&view)


def open_request(data):
    """Check the 128 bytes of a request header, and return them as a `wire.RequestHeader`. Raises ProtocolError."""
    cdef Py_buffer view
    cdef const wire.RequestHeader *h
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        _check(<const uint8_t *> view.buf, view.len)
        h = <const wire.RequestHeader *> view.buf
        return _new(RequestHeader, (
            h.magic, h.version, h.opcode, h.flags, h.request_id, h.topic, h.partition, h.layout_version, h.owner_epoch,
            h.producer_id, h.producer_epoch, h.sequence, h.send, h.rows, h.schema_id, h.deadline_ms, h.extension_bytes,
            h.body_bytes, h.body_crc, h.header_crc,
        ))
    finally:
        PyBuffer_Release(&view)


def open_answer(data):
    """Check the 128 bytes of an answer header, and return them as a `wire.AnswerHeader`. Raises ProtocolError."""
    cdef Py_buffer view
    cdef const wire.AnswerHeader *h
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        _check(<const uint8_t *> view.buf, view.len)
        h = <const wire.AnswerHeader *> view.buf
        return _new(AnswerHeader, (
            h.magic, h.version, h.opcode, h.status, h.request_id, h.topic, h.partition, h.layout_version, h.owner_epoch,
            h.first_offset, h.end_offset, h.sequence, h.send, h.generation, h.credit_bytes, h.rows, h.retry_after_ms,
            h.code, h.flags, h.body_bytes, h.body_crc, h.header_crc,
        ))
    finally:
        PyBuffer_Release(&view)


def open_stored(data):
    """(request_id, first_offset, credit_bytes) of an answer that a batch is stored, the most frequent answer.

    None for every other answer, also for a damaged one: `open_answer` then returns all fields or the error.
    """
    cdef Py_buffer view
    cdef const wire.AnswerHeader *h
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        h = <const wire.AnswerHeader *> view.buf
        if (view.len != wire.HEADER_BYTES or h.magic != wire.MAGIC or h.opcode != wire.OP_PUBLISH
                or h.status != wire.STATUS_OK or h.body_bytes != 0
                or not wire.PROTOCOL_VERSION_MIN <= h.version <= wire.PROTOCOL_VERSION
                or crc32c_short(<const uint8_t *> h, CRC_AT) != h.header_crc):
            return None
        return h.request_id, h.first_offset, h.credit_bytes
    finally:
        PyBuffer_Release(&view)


def header_crc(data, *, portable=False):
    """CRC-32C of short data; `portable`: use the code for any CPU (tests)."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if portable:
            return crc32c_any(<const uint8_t *> view.buf, view.len)
        return crc32c_short(<const uint8_t *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
