from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t

cdef extern from "key_column.h" nogil:
    ctypedef enum key_kind:
        KEY_NULL, KEY_BOOL, KEY_INT8, KEY_INT16, KEY_INT32, KEY_INT64, KEY_FLOAT, KEY_DOUBLE, KEY_DECIMAL
        KEY_BIG_DECIMAL, KEY_BYTES, KEY_VIEW, KEY_FIXED, KEY_LIST, KEY_STRUCT, KEY_DICTIONARY

    ctypedef struct key_column

    ctypedef struct key_fault:
        const key_column *column
        int64_t at
        int64_t from_ "from"
        int64_t to

    ctypedef struct key_column:
        key_kind kind
        int32_t width
        int64_t offset
        int64_t child_count
        int64_t list_size
        int64_t limit
        const uint8_t *valid
        const uint8_t *values
        const uint8_t *ends
        const void **blocks
        const int64_t *sizes
        key_column *children
        const key_column *self
        key_fault *fault

    ctypedef struct key_scratch:
        key_fault fault

    ctypedef struct xxh_loops:
        const char *name

    int64_t key_end(const key_column *c, int64_t at)
    const xxh_loops *xxh_choose(int level)
    uint64_t xxh_of(const uint8_t *p, uint64_t count, uint64_t seed)
    void key_hash(const xxh_loops *x, const key_column *c, int64_t columns, int64_t rows, uint64_t seed,
                  int64_t *hashes, uint16_t *slots, key_scratch *s)
