"""Compute slots from key columns, equal to Spark's `shiftrightunsigned(xxhash64(key...), 48)`.

Reads any Arrow data in place, through the Arrow C data interface; the loops (key_column.h, xxh64.h) run without
the GIL. Types that Spark cannot hash (unsigned integers, timestamps of other units, maps, ...) are refused.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

cimport wire
from arrow_abi cimport ArrowArray, ArrowArrayStream, ArrowSchema
from key_column cimport (
    KEY_BIG_DECIMAL, KEY_BOOL, KEY_BYTES, KEY_DECIMAL, KEY_DICTIONARY, KEY_DOUBLE, KEY_FIXED, KEY_FLOAT, KEY_INT8,
    KEY_INT16, KEY_INT32, KEY_INT64, KEY_LIST, KEY_NULL, KEY_STRUCT, KEY_VIEW, key_column, key_end, key_fault, key_hash,
    key_kind, key_scratch, xxh_choose, xxh_loops, xxh_of,
)

import numpy as np

from ringfence.native.errors import BatchError, InvalidArgumentError, SchemaError

# format string -> (kind, bytes of a value or an offset)
cdef dict SIMPLE = {
    "n": (KEY_NULL, 0), "b": (KEY_BOOL, 0), "c": (KEY_INT8, 1), "s": (KEY_INT16, 2), "i": (KEY_INT32, 4),
    "l": (KEY_INT64, 8), "f": (KEY_FLOAT, 4), "g": (KEY_DOUBLE, 8), "tdD": (KEY_INT32, 4),
    "u": (KEY_BYTES, 4), "z": (KEY_BYTES, 4), "U": (KEY_BYTES, 8), "Z": (KEY_BYTES, 8),
    "vu": (KEY_VIEW, 16), "vz": (KEY_VIEW, 16), "+s": (KEY_STRUCT, 0), "+l": (KEY_LIST, 4), "+L": (KEY_LIST, 8),
}
cdef dict INDEX_BYTES = {"c": 1, "C": 1, "s": 2, "S": 2, "i": 4, "I": 4, "l": 8, "L": 8}
cdef dict NAMES = {
    "C": "uint8", "S": "uint16", "I": "uint32", "L": "uint64", "e": "float16", "tdm": "date64", "+m": "map",
    "+r": "run-end encoded",
}


cdef int _buffer_count(key_column *column) except -1:
    """Minimum number of buffers of an array, its validity included."""
    if column.kind == KEY_NULL:
        return 0
    if column.kind == KEY_STRUCT or column.list_size >= 0:
        return 1
    return 3 if column.kind in (KEY_BYTES, KEY_VIEW) else 2


cdef void _free_children(key_column *column) noexcept:
    cdef int64_t i
    if column.children == NULL:
        return
    for i in range(column.child_count):
        _free_children(column.children + i)
    free(column.children)


cdef int _unsupported(str path, str format) except -1:
    shown = NAMES.get(format, format)
    unit = {"s": "s", "m": "ms", "u": "us", "n": "ns"}.get(format[2:3])
    if format.startswith("ts") and unit is not None:
        shown = f"timestamp[{unit}]"
    raise SchemaError(f"key column {path!r} has type {shown}, which Spark's xxhash64 cannot hash; "
                      "cast it to a signed integer, timestamp[us], decimal, string or binary", column=path, type=shown)


cdef list _numbers(str format, int count, str path):
    """The numbers after the colon: `count` of them, or one fewer; each below 2^31, as in Arrow.

    The format string comes from the caller and is checked: these numbers decide how many bytes are read.
    """
    cdef list parts = format[format.index(":") + 1:].split(",")
    digits = [part[1:] if at == 1 and part.startswith("-") else part for at, part in enumerate(parts)]
    if not max(1, count - 1) <= len(parts) <= count or not all(
            part.isascii() and part.isdigit() and len(part) < 11 and int(part) < 1 << 31 for part in digits):
        raise SchemaError(f"column {path!r} is invalid: no type has the format {format!r}", column=path)
    return [int(part) for part in parts]


cdef int _decimal(key_column *column, str format, str path) except -1:
    parts = _numbers(format, 3, path)
    bits = parts[2] if len(parts) > 2 else 128
    if parts[0] > 38:
        _unsupported(path, f"decimal({parts[0]}, {parts[1]})")
    if bits not in (32, 64, 128, 256):
        raise SchemaError(f"column {path!r} is invalid: no type has the format {format!r}", column=path)
    column.kind, column.width = KEY_DECIMAL if parts[0] <= 18 else KEY_BIG_DECIMAL, bits // 8
    return 0


cdef int _kind(key_column *column, str format, str path) except -1:
    """Set kind, width and list size from the format string."""
    column.list_size = -1
    if format in SIMPLE:
        column.kind, column.width = SIMPLE[format]
    elif format.startswith("tsu:"):
        column.kind, column.width = KEY_INT64, 8
    elif format.startswith("w:"):
        column.kind, column.width = KEY_FIXED, _numbers(format, 1, path)[0]
    elif format.startswith("+w:"):
        column.kind, column.list_size = KEY_LIST, _numbers(format, 1, path)[0]
    elif format.startswith("d:"):
        _decimal(column, format, path)
    else:
        _unsupported(path, format)
    return 0


cdef int _measure(key_column *column, ArrowArray *array, str format, str path) except -1:
    """Set the limit of offsets, views and indexes. The array has all buffers of its type.

    The interface does not pass the length of a buffer: the bytes of strings end at the last offset.
    """
    cdef int64_t i, end = array.offset + array.length
    cdef bint fixed = column.kind not in (KEY_NULL, KEY_STRUCT, KEY_BYTES, KEY_LIST)
    cdef bint listed = column.kind == KEY_BYTES or (column.kind == KEY_LIST and column.list_size < 0)
    if array.length == 0:
        return 0  # no value is read
    if (fixed and column.width and column.values == NULL) or (listed and column.ends == NULL):
        raise BatchError(f"column {path!r} is invalid: it has {array.length} rows and no buffer for them", column=path)
    if column.kind == KEY_BYTES:
        column.limit = key_end(column, end)
        if column.limit < 0 or (column.limit and column.values == NULL):
            raise BatchError(f"column {path!r} is invalid: its last offset is {column.limit}, but it has no bytes",
                             column=path)
    elif column.kind == KEY_VIEW:
        column.limit = array.n_buffers - 3
        column.sizes = <const int64_t *> array.buffers[array.n_buffers - 1]
        if column.sizes == NULL:
            column.limit = 0
    elif column.kind == KEY_DICTIONARY:
        column.limit = array.dictionary.length
        if column.width < 8 and format in SIMPLE:  # negative indexes, read as unsigned, begin at this number
            column.limit = min(column.limit, <int64_t> 1 << (8 * column.width - 1))
    elif column.kind == KEY_LIST:
        column.limit = array.children[0].length
        if column.list_size > 0 and column.limit // column.list_size < end:
            _short(path, "elements", column.limit, f"{end} lists of {column.list_size}")
    elif column.kind == KEY_STRUCT:
        for i in range(array.n_children):
            if array.children[i].length < end:
                _short(path, f"values in field {i}", array.children[i].length, f"{end} rows")
    return 0


cdef int _short(str path, str what, int64_t have, str need) except -1:
    raise BatchError(f"column {path!r} is invalid: {have} {what} for {need}", column=path)


cdef int _fill(key_column *column, ArrowSchema *schema, ArrowArray *array, str path, int depth,
               key_fault *fault) except -1:
    """Describe an array and all of its children. `column` was zeroed; the caller frees the children."""
    cdef int64_t i
    cdef str format = "" if schema.format == NULL else schema.format.decode(errors="backslashreplace")
    if depth > wire.NESTING_MAX:
        raise SchemaError(f"key column {path!r} is nested deeper than {wire.NESTING_MAX} levels", column=path)
    column.offset, column.self, column.fault = array.offset, column, fault
    if schema.dictionary != NULL:
        if format not in INDEX_BYTES:
            raise SchemaError(f"column {path!r} is invalid: the indexes of its dictionary have the format "
                              f"{format!r}, which is no integer type", column=path)
        column.kind, column.width, column.list_size = KEY_DICTIONARY, INDEX_BYTES[format], -1
    else:
        _kind(column, format, path)
    if array.n_buffers < _buffer_count(column):
        raise BatchError(f"column {path!r}: {array.n_buffers} buffers for format {format!r}", column=path)
    if array.n_children != schema.n_children or (array.dictionary == NULL) != (schema.dictionary == NULL) or (
            column.kind == KEY_LIST and array.n_children != 1):
        raise BatchError(f"column {path!r}: {array.n_children} children for format {format!r}", column=path)
    if array.null_count != 0 and array.n_buffers > 0:
        column.valid = <const uint8_t *> array.buffers[0]
    if column.kind in (KEY_BYTES, KEY_LIST):
        column.ends = <const uint8_t *> array.buffers[1] if column.list_size < 0 else NULL
    elif array.n_buffers > 1:
        column.values = <const uint8_t *> array.buffers[1]
    if column.kind == KEY_BYTES:
        column.values = <const uint8_t *> array.buffers[2]
    elif column.kind == KEY_VIEW:
        column.blocks = array.buffers + 2
    _measure(column, array, format, path)
    column.child_count = 1 if column.kind == KEY_DICTIONARY else array.n_children
    if column.child_count:
        column.children = <key_column *> calloc(column.child_count, sizeof(key_column))
        if column.children == NULL:
            raise MemoryError
    if column.kind == KEY_DICTIONARY:
        return _fill(column.children, schema.dictionary, array.dictionary, path, depth + 1, fault)
    for i in range(array.n_children):
        _fill(column.children + i, schema.children[i], array.children[i], f"{path}.{_name(schema.children[i])}",
              depth + 1, fault)
    return 0


cdef str _name(ArrowSchema *schema):
    return schema.name.decode(errors="backslashreplace") if schema.name != NULL else ""


cdef str _path(key_column *column, ArrowSchema *schema, str path, const key_column *wanted):
    """Path of `wanted` if it is `column` or one of its descendants; else None."""
    cdef int64_t i
    if column == wanted:
        return path
    if column.kind == KEY_DICTIONARY:
        return _path(column.children, schema.dictionary, path, wanted)
    for i in range(column.child_count):
        found = _path(column.children + i, schema.children[i], f"{path}.{_name(schema.children[i])}", wanted)
        if found is not None:
            return found
    return None


cdef str _what(key_fault *fault):
    """The range or index that the invalid value names, and the limit."""
    cdef const key_column *column = fault.column
    if column.kind == KEY_BYTES:
        return f"the bytes {fault.from_}..{fault.to} of {column.limit}"
    if column.kind == KEY_LIST:
        return f"the elements {fault.from_}..{fault.to} of {column.limit}"
    if column.kind == KEY_DICTIONARY:
        return f"the index {fault.from_} (unsigned) of a dictionary of {column.limit} values"
    if fault.from_ >= column.limit:
        return f"buffer {fault.from_} of {column.limit}"
    return f"the bytes up to {fault.to} of buffer {fault.from_}, which has {column.sizes[fault.from_]}"


cdef int64_t _place(ArrowSchema *schema, str name) except -1:
    """Index of the top-level column `name`."""
    cdef int64_t i
    cdef list names = [_name(schema.children[i]) for i in range(schema.n_children)]
    if names.count(name) != 1:
        how = "no column" if name not in names else "several columns"
        raise SchemaError(f"the batch has {how} {name!r}; it has {names}", column=name)
    return names.index(name)


cdef int _check_struct(ArrowSchema *schema, ArrowArray *array) except -1:
    cdef int64_t at
    cdef const uint8_t *valid
    if schema.release == NULL or array.release == NULL:
        raise BatchError("the Arrow data was already consumed; export it again")
    if schema.format == NULL or schema.format != b"+s":
        raise SchemaError("a batch is a struct of columns, "
                          f"this is an array of format {'?' if schema.format == NULL else schema.format.decode(errors='backslashreplace')!r}")
    if schema.n_children != array.n_children:
        raise BatchError(f"the schema has {schema.n_children} columns, the data {array.n_children}")
    for at in range(array.n_children):
        if array.children[at].length < array.offset + array.length:
            raise BatchError(f"column {at} has {array.children[at].length} rows of {array.offset + array.length}")
    if array.null_count != 0 and array.n_buffers > 0 and array.buffers[0] != NULL:
        valid = <const uint8_t *> array.buffers[0]
        for at in range(array.offset, array.offset + array.length):
            if not valid[at >> 3] >> (at & 7) & 1:
                raise BatchError(f"row {at - array.offset} of the batch is null as a whole; a batch has rows of columns")
    return 0


cdef int _refuse(key_column *columns, ArrowSchema *schema, list names, key_fault *fault) except -1:
    cdef int64_t i
    for i in range(len(names)):
        path = _path(columns + i, schema.children[_place(schema, names[i])], names[i], fault.column)
        if path is not None:
            raise BatchError(f"column {path!r} is invalid: its value {fault.at} is {_what(fault)}; build it again",
                             column=path)
    return 0


cdef _hash_array(ArrowSchema *schema, ArrowArray *array, list names, bint slots, const xxh_loops *loops):
    """The hashes or slots of one struct array."""
    cdef int64_t i, rows = array.length, count = len(names)
    cdef key_column *columns = NULL
    cdef key_scratch *scratch = NULL
    cdef Py_buffer view
    _check_struct(schema, array)
    out = np.empty(rows, dtype=np.uint16 if slots else np.int64)
    if rows == 0:
        for name in names:
            _place(schema, name)
        return out
    PyObject_GetBuffer(out, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        columns = <key_column *> calloc(count, sizeof(key_column))
        scratch = <key_scratch *> malloc(sizeof(key_scratch))
        if columns == NULL or scratch == NULL:
            raise MemoryError
        for i in range(count):
            place = _place(schema, names[i])
            _fill(columns + i, schema.children[place], array.children[place], names[i], 0, &scratch.fault)
            columns[i].offset += array.offset
        with nogil:
            key_hash(loops, columns, count, rows, wire.SLOT_SEED, NULL if slots else <int64_t *> view.buf,
                     <uint16_t *> view.buf if slots else NULL, scratch)
        if scratch.fault.column != NULL:
            _refuse(columns, schema, names, &scratch.fault)
    finally:
        PyBuffer_Release(&view)
        if columns != NULL:
            for i in range(count):
                _free_children(columns + i)
        free(columns)
        free(scratch)
    return out


cdef _hash_stream(object capsule, list names, bint slots, const xxh_loops *loops):
    """The hashes or slots of all batches of a stream, in order."""
    cdef ArrowArrayStream *stream = <ArrowArrayStream *> PyCapsule_GetPointer(capsule, "arrow_array_stream")
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef list parts = []
    cdef int failed
    if stream.release == NULL:
        raise BatchError("the Arrow stream was already consumed; export it again")
    schema.release = NULL
    array.release = NULL
    try:
        failed = stream.get_schema(stream, &schema)
        while not failed:
            failed = stream.get_next(stream, &array)
            if failed or array.release == NULL:
                break
            parts.append(_hash_array(&schema, &array, names, slots, loops))
            array.release(&array)
        if failed:
            why = stream.get_last_error(stream)
            raise BatchError(f"the Arrow stream failed with {failed}: {'?' if why == NULL else why.decode()}")
        for name in names:
            _place(&schema, name)
    finally:
        if array.release != NULL:
            array.release(&array)
        if schema.release != NULL:
            schema.release(&schema)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint16 if slots else np.int64)


cdef _hash(object batch, object key, bint slots, int level):
    cdef list names = [key] if isinstance(key, str) else list(key)
    cdef const xxh_loops *loops = xxh_choose(level)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"key must name one column or more, and is {key!r}")
    if loops == NULL:
        raise InvalidArgumentError(f"this CPU does not support the loops of level {level}; use level -1")
    if hasattr(batch, "__arrow_c_array__"):
        schema, array = batch.__arrow_c_array__()
        return _hash_array(<ArrowSchema *> PyCapsule_GetPointer(schema, "arrow_schema"),
                           <ArrowArray *> PyCapsule_GetPointer(array, "arrow_array"), names, slots, loops)
    if hasattr(batch, "__arrow_c_stream__"):
        return _hash_stream(batch.__arrow_c_stream__(), names, slots, loops)
    raise InvalidArgumentError(f"{type(batch).__name__} is not Arrow data: it has neither __arrow_c_array__ "
                               "nor __arrow_c_stream__")


def slots(batch, key, *, level=-1):
    """Slot of every row.

    Args:
        batch: anything with `__arrow_c_array__` (a record batch) or `__arrow_c_stream__` (a table).
        key: names of the key columns, in their order; a str is one name.
        level: for tests: selects the loops for 0 any CPU, 1 AVX2, 2 AVX-512; -1: the fastest that the CPU has.

    Returns:
        uint16, shape (rows,).

    Raises:
        SchemaError: a key column is missing, or of a type that Spark cannot hash.
        BatchError: the Arrow data is invalid.
        InvalidArgumentError: `key` names no column, or `batch` is not Arrow data.
    """
    return _hash(batch, key, True, level)


def hash64(batch, key, *, level=-1):
    """Spark SQL's `xxhash64(key...)` of every row: int64, shape (rows,). Arguments and errors as for `slots`."""
    return _hash(batch, key, False, level)


def xxh64(data, seed=0):
    """Plain XXH64 of the bytes."""
    cdef Py_buffer view
    cdef uint64_t start = seed
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return xxh_of(<const uint8_t *> view.buf, view.len, start)
    finally:
        PyBuffer_Release(&view)
