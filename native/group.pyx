"""Group the row numbers of a batch by partition, and keep their order."""

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free

cimport wire

import numpy as np

from ringfence.native.errors import InvalidArgumentError

cdef extern from "group.h" nogil:
    int64_t group_rows(const uint16_t *slots, int64_t rows, const uint16_t *table, uint32_t count,
                       uint32_t *order, uint32_t *bounds, uint32_t *counters)


cdef int _slots(object array, str what, Py_buffer *view) except -1:
    """View of a contiguous uint16 array."""
    PyObject_GetBuffer(array, view, PyBUF_FORMAT)
    if view.format == NULL or view.format[0] != c"H" or view.format[1] != 0:
        format = "bytes" if view.format == NULL else view.format.decode()
        PyBuffer_Release(view)
        raise InvalidArgumentError(f"{what} must be uint16; its format is {format!r}")
    return 0


def rows_by_partition(slots, table, uint32_t count):
    """Row numbers grouped by partition; the batch's order is kept within each. A counting sort, O(rows + count).

    Args:
        slots: uint16, shape (rows,); rows <= 16,777,216.
        table: uint16, shape (65536,); the partition's index of every slot.
        count: partitions; every index is below it; 1..65536.

    Returns:
        order: uint32, shape (rows,); every row number once.
        bounds: uint32, shape (count + 1,); rows of partition p are `order[bounds[p]:bounds[p + 1]]`.

    Raises:
        InvalidArgumentError: wrong types or sizes, or a row whose index is not below `count`; the message names it.
    """
    cdef Py_buffer slots_view, table_view, order_view, bounds_view
    cdef int64_t rows, wrong = -1
    cdef uint32_t *counters = NULL
    if not 1 <= count <= wire.PARTITIONS_MAX:
        raise InvalidArgumentError(f"count is {count}, and must be 1..{wire.PARTITIONS_MAX}")
    _slots(slots, "slots", &slots_view)
    try:
        _slots(table, "table", &table_view)
        try:
            rows = slots_view.len // 2
            if table_view.len != 2 * wire.SLOT_COUNT:
                raise InvalidArgumentError(f"table has {table_view.len // 2} slots, and must have {wire.SLOT_COUNT}")
            if rows > wire.ROWS_MAX:
                raise InvalidArgumentError(f"the batch has {rows} rows, above the limit of {wire.ROWS_MAX}; split it")
            order = np.empty(rows, dtype=np.uint32)
            bounds = np.empty(count + 1, dtype=np.uint32)
            counters = <uint32_t *> calloc(4 * <size_t> count, sizeof(uint32_t))
            if counters == NULL:
                raise MemoryError
            PyObject_GetBuffer(order, &order_view, PyBUF_SIMPLE | PyBUF_WRITABLE)
            PyObject_GetBuffer(bounds, &bounds_view, PyBUF_SIMPLE | PyBUF_WRITABLE)
            with nogil:
                wrong = group_rows(<const uint16_t *> slots_view.buf, rows, <const uint16_t *> table_view.buf, count,
                                   <uint32_t *> order_view.buf, <uint32_t *> bounds_view.buf, counters)
            PyBuffer_Release(&order_view)
            PyBuffer_Release(&bounds_view)
            if wrong >= 0:
                raise InvalidArgumentError(f"row {wrong} has slot {slots[wrong]}, whose partition index "
                                           f"{table[slots[wrong]]} is not below {count}")
            return order, bounds
        finally:
            free(counters)
            PyBuffer_Release(&table_view)
    finally:
        PyBuffer_Release(&slots_view)
