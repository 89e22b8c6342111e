/* One key column as the hash sees it, and its hashes: Spark SQL's xxhash64, where the hash of the columns before is
 * the seed of the next, and a null leaves it as it is.
 *
 *   boolean, int8..32, date   4 bytes of the value widened to int32
 *   int64, timestamp[us]      8 bytes
 *   float, double             bits; -0.0 as 0.0, every NaN as the canonical one
 *   decimal, precision <= 18  8 bytes of the unscaled value; above: its shortest big-endian two's complement
 *   strings, binary           the bytes
 *   list, struct              elements and fields, chained like columns
 *   dictionary                the value it stands for
 *
 * Offsets, views and indexes are the data's own word, and are compared with `limit` where they are followed: one that
 * points nowhere adds nothing to a hash and stands in the `key_fault` of the call. */
#ifndef RINGFENCE_KEY_COLUMN_H
#define RINGFENCE_KEY_COLUMN_H

#include <string.h>
#include "xxh64.h"

/* Rows at once: hashes, the hashes before and widened values of a block stay in the first-level cache (40 KiB). */
#define KEY_BLOCK 2048

typedef enum {
    KEY_NULL, KEY_BOOL, KEY_INT8, KEY_INT16, KEY_INT32, KEY_INT64, KEY_FLOAT, KEY_DOUBLE, KEY_DECIMAL, KEY_BIG_DECIMAL,
    KEY_BYTES, KEY_VIEW, KEY_FIXED, KEY_LIST, KEY_STRUCT, KEY_DICTIONARY,
} key_kind;

/* The first value that points nowhere. */
typedef struct key_fault {
    const struct key_column *column; /* NULL: none does */
    int64_t at;               /* which value of its array */
    int64_t from, to;         /* offsets; the block of a view and its end there; an index, twice */
} key_fault;

typedef struct key_column {
    key_kind kind;
    int32_t width;            /* bytes of a value, of an offset (KEY_BYTES, KEY_LIST) or of an index (KEY_DICTIONARY) */
    int64_t offset;           /* first row in the buffers */
    int64_t child_count;
    int64_t list_size;        /* elements of a fixed-size list, which has no offsets; -1: another one */
    int64_t limit;            /* bytes of KEY_BYTES, elements of KEY_LIST, values of KEY_DICTIONARY, blocks of KEY_VIEW */
    const uint8_t *valid;     /* bitmap; NULL: no nulls */
    const uint8_t *values;
    const uint8_t *ends;      /* offsets of KEY_BYTES and KEY_LIST */
    const void **blocks;      /* data buffers of KEY_VIEW */
    const int64_t *sizes;     /* ... and their bytes */
    struct key_column *children;
    const struct key_column *self;  /* the column that this one is, or is a copy of */
    key_fault *fault;               /* of the call: no argument, for lists of small values are a call a value */
} key_column;

typedef struct {
    key_fault fault;
    uint64_t hash[KEY_BLOCK], before[KEY_BLOCK], wide[KEY_BLOCK];
} key_scratch;

XXH_INLINE int key_valid(const key_column *c, int64_t at) {
    return !c->valid || (c->valid[at >> 3] >> (at & 7) & 1);
}

XXH_INLINE int64_t key_end(const key_column *c, int64_t at) {
    return c->width == 8 ? (int64_t)xxh_load8(c->ends + 8 * at) : (int32_t)xxh_load4(c->ends + 4 * at);
}

/* Beside the loops: nearly no data comes here. */
static __attribute__((noinline, cold)) void key_note(key_fault *fault, const key_column *self, int64_t at,
                                                     int64_t from, int64_t to) {
    if (!fault->column) *fault = (key_fault){self, at, from, to};
}

/* Is from..to within the limit? As unsigned numbers negative ones are beyond every limit. */
XXH_INLINE int key_within(const key_column *c, int64_t from, int64_t to) {
    return __builtin_expect((uint64_t)from <= (uint64_t)to && (uint64_t)to <= (uint64_t)c->limit, 1);
}

XXH_INLINE uint32_t key_float_bits(uint32_t bits) {
    return (bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC00000U : bits == 0x80000000U ? 0 : bits;
}

XXH_INLINE uint64_t key_double_bits(uint64_t bits) {
    uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFULL;
    return magnitude > 0x7FF0000000000000ULL ? 0x7FF8000000000000ULL : magnitude == 0 ? 0 : bits;
}

/* The value at `at` as Spark's int: what is hashed as 4 bytes. */
XXH_INLINE uint32_t key_int(const key_column *c, int64_t at) {
    switch (c->kind) {
    case KEY_BOOL: return c->values[at >> 3] >> (at & 7) & 1;
    case KEY_INT8: return (uint32_t)(int8_t)c->values[at];
    case KEY_INT16: { int16_t v; memcpy(&v, c->values + 2 * at, 2); return (uint32_t)v; }
    case KEY_FLOAT: return key_float_bits(xxh_load4(c->values + 4 * at));
    default: return xxh_load4(c->values + 4 * at);
    }
}

/* ... as Spark's long: 8 bytes. A decimal of 18 digits fits in its low 8 bytes. */
XXH_INLINE uint64_t key_long(const key_column *c, int64_t at) {
    const uint8_t *p = c->values + c->width * at;
    if (c->kind == KEY_DOUBLE) return key_double_bits(xxh_load8(p));
    return c->width == 4 ? (uint64_t)(int64_t)(int32_t)xxh_load4(p) : xxh_load8(p);
}

/* A decimal as Java's BigInteger.toByteArray gives it. 38 digits fit in the low 16 bytes of any width >= 16. */
static uint64_t key_big_decimal(const key_column *c, int64_t at, uint64_t seed) {
    const uint8_t *p = c->values + c->width * at;
    uint8_t bytes[16];
    int used = c->width < 16 ? c->width : 16;
    for (int i = 0; i < used; i++) bytes[i] = p[used - 1 - i];
    uint8_t sign = bytes[0] & 0x80 ? 0xFF : 0;
    int first = 0;
    while (first < used - 1 && bytes[first] == sign && ((bytes[first + 1] ^ sign) & 0x80) == 0) first++;
    return xxh_of(bytes + first, (uint64_t)(used - first), seed);
}

XXH_INLINE uint64_t key_bytes(const key_column *c, int64_t at, uint64_t seed) {
    int64_t from = key_end(c, at), to = key_end(c, at + 1);
    if (key_within(c, from, to)) return xxh_of(c->values + from, (uint64_t)(to - from), seed);
    key_note(c->fault, c->self, at, from, to);
    return seed;
}

/* A view is {u32 length, 12 bytes} or {u32 length, u32 prefix, u32 block, u32 offset}. */
XXH_INLINE uint64_t key_view(const key_column *c, int64_t at, uint64_t seed) {
    const uint8_t *view = c->values + 16 * at;
    uint32_t bytes = xxh_load4(view);
    if (bytes <= 12) return xxh_of(view + 4, bytes, seed);
    uint32_t block = xxh_load4(view + 8), from = xxh_load4(view + 12);
    int64_t to = (int64_t)from + bytes;
    if (__builtin_expect(block < c->limit && to <= c->sizes[block], 1))
        return xxh_of((const uint8_t *)c->blocks[block] + from, bytes, seed);
    key_note(c->fault, c->self, at, block, to);
    return seed;
}

XXH_INLINE int64_t key_index(const key_column *c, int64_t at) {
    switch (c->width) {  /* negative ones count as large ones, which are beyond the limit too */
    case 1: return c->values[at];
    case 2: { uint16_t v; memcpy(&v, c->values + 2 * at, 2); return v; }
    case 4: return xxh_load4(c->values + 4 * at);
    default: return (int64_t)xxh_load8(c->values + 8 * at);
    }
}

/* The hash of one row under `seed`; recursion is as deep as the type, which the caller has bounded. */
static uint64_t key_row(const key_column *c, int64_t row, uint64_t seed) {
    int64_t at = row + c->offset;
    if (c->kind == KEY_NULL || !key_valid(c, at)) return seed;
    switch (c->kind) {
    case KEY_BOOL: case KEY_INT8: case KEY_INT16: case KEY_INT32: case KEY_FLOAT: return xxh_of4(seed, key_int(c, at));
    case KEY_INT64: case KEY_DOUBLE: case KEY_DECIMAL: return xxh_of8(seed, key_long(c, at));
    case KEY_BIG_DECIMAL: return key_big_decimal(c, at, seed);
    case KEY_BYTES: return key_bytes(c, at, seed);
    case KEY_VIEW: return key_view(c, at, seed);
    case KEY_FIXED: return xxh_of(c->values + c->width * at, (uint64_t)c->width, seed);
    case KEY_DICTIONARY: {
        int64_t index = key_index(c, at);
        if ((uint64_t)index < (uint64_t)c->limit) return key_row(c->children, index, seed);
        key_note(c->fault, c->self, at, index, index);
        return seed;
    }
    case KEY_LIST: {
        int64_t from = c->list_size >= 0 ? at * c->list_size : key_end(c, at);
        int64_t to = c->list_size >= 0 ? from + c->list_size : key_end(c, at + 1);
        if (!key_within(c, from, to)) {
            key_note(c->fault, c->self, at, from, to);
            return seed;
        }
        for (int64_t i = from; i < to; i++) seed = key_row(c->children, i, seed);
        return seed;
    }
    case KEY_STRUCT:
        for (int64_t i = 0; i < c->child_count; i++) seed = key_row(c->children + i, at, seed);
        return seed;
    default: return seed;
    }
}

/* The hashes of at most KEY_BLOCK rows of a fixed-width column, nulls too: whoever calls puts those right. */
static void key_fixed_block(const xxh_loops *x, const key_column *c, int64_t at, int64_t n, key_scratch *s) {
    uint32_t *ints = (uint32_t *)s->wide;
    switch (c->kind) {
    case KEY_INT32: x->chain4(s->hash, (const xxh_u32 *)(c->values + 4 * at), n); return;
    case KEY_INT64: x->chain8(s->hash, (const xxh_u64 *)(c->values + 8 * at), n); return;
    case KEY_DOUBLE: case KEY_DECIMAL:
        for (int64_t i = 0; i < n; i++) s->wide[i] = key_long(c, at + i);
        x->chain8(s->hash, (const xxh_u64 *)s->wide, n);
        return;
    default:
        for (int64_t i = 0; i < n; i++) ints[i] = key_int(c, at + i);
        x->chain4(s->hash, (const xxh_u32 *)ints, n);
    }
}

static void key_block(const xxh_loops *x, const key_column *c, int64_t row, int64_t n, key_scratch *s) {
    const key_column own = *c;  /* which no hash that is written can change: its parts stay in registers */
    int64_t at = row + c->offset;
    switch (c->kind) {
    case KEY_NULL: return;
    case KEY_BYTES:
        for (int64_t i = 0; i < n; i++)
            if (key_valid(&own, at + i)) s->hash[i] = key_bytes(&own, at + i, s->hash[i]);
        return;
    case KEY_VIEW:  /* the view of a null may hold anything, so it must not be followed */
        for (int64_t i = 0; i < n; i++)
            if (key_valid(&own, at + i)) s->hash[i] = key_view(&own, at + i, s->hash[i]);
        return;
    case KEY_BIG_DECIMAL: case KEY_FIXED: case KEY_LIST: case KEY_STRUCT: case KEY_DICTIONARY:
        for (int64_t i = 0; i < n; i++) s->hash[i] = key_row(c, row + i, s->hash[i]);
        return;
    default:
        if (c->valid) memcpy(s->before, s->hash, (size_t)n * 8);
        key_fixed_block(x, c, at, n, s);
        if (c->valid)
            for (int64_t i = 0; i < n; i++) s->hash[i] = key_valid(c, at + i) ? s->hash[i] : s->before[i];
    }
}

/* Hashes into `hashes` or slots into `slots`, one of which is NULL, of `rows` rows of the columns chained. What they
 * are is undefined once there is a fault. */
static void key_hash(const xxh_loops *x, const key_column *c, int64_t columns, int64_t rows, uint64_t seed,
                     int64_t *hashes, uint16_t *slots, key_scratch *s) {
    s->fault.column = NULL;
    if (slots && columns == 1 && !c->valid && c->kind == KEY_INT64) {
        x->slots8(slots, (const xxh_u64 *)(c->values + 8 * c->offset), rows, seed);
        return;
    }
    if (slots && columns == 1 && !c->valid && c->kind == KEY_INT32) {
        x->slots4(slots, (const xxh_u32 *)(c->values + 4 * c->offset), rows, seed);
        return;
    }
    for (int64_t row = 0; row < rows && !s->fault.column; row += KEY_BLOCK) {
        int64_t n = rows - row < KEY_BLOCK ? rows - row : KEY_BLOCK;
        for (int64_t i = 0; i < n; i++) s->hash[i] = seed;
        for (int64_t i = 0; i < columns; i++) key_block(x, c + i, row, n, s);
        if (slots) for (int64_t i = 0; i < n; i++) slots[row + i] = (uint16_t)(s->hash[i] >> 48);
        else memcpy(hashes + row, s->hash, (size_t)n * 8);
    }
}

#endif
