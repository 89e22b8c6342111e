/* XXH64 over rows, several at once. The algorithm is that of the xxHash specification (doc/xxhash_spec.md, XXH64);
 * its chaining over columns, where each hash seeds the next, is Spark SQL's xxhash64.
 *
 * The loops over blocks of rows are compiled three times, for AVX-512, AVX2 and any CPU, and chosen at the first
 * call: vpmullq makes 64-bit products eight at a time, which is the whole cost of an integer key. */
#ifndef RINGFENCE_XXH64_H
#define RINGFENCE_XXH64_H

#include <stdint.h>
#include <stddef.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ringfence reads and writes little-endian numbers in place"
#endif

#define XXH_P1 0x9E3779B185EBCA87ULL
#define XXH_P2 0xC2B2AE3D27D4EB4FULL
#define XXH_P3 0x165667B19E3779F9ULL
#define XXH_P4 0x85EBCA77C2B2AE63ULL
#define XXH_P5 0x27D4EB2F165667C5ULL

#define XXH_INLINE static inline __attribute__((always_inline))

/* Arrow buffers may begin anywhere: received and sliced ones are not always aligned. */
typedef uint64_t __attribute__((aligned(1), may_alias)) xxh_u64;
typedef uint32_t __attribute__((aligned(1), may_alias)) xxh_u32;

XXH_INLINE uint64_t xxh_rotl(uint64_t x, int r) { return (x << r) | (x >> (64 - r)); }
XXH_INLINE uint64_t xxh_load8(const uint8_t *p) { return *(const xxh_u64 *)p; }
XXH_INLINE uint32_t xxh_load4(const uint8_t *p) { return *(const xxh_u32 *)p; }
XXH_INLINE uint64_t xxh_round(uint64_t acc, uint64_t v) { return xxh_rotl(acc + v * XXH_P2, 31) * XXH_P1; }

/* All but the last step of the avalanche, which leaves the upper 32 bits as they are: a slot needs only 16. */
XXH_INLINE uint64_t xxh_mix(uint64_t h) {
    h = (h ^ (h >> 33)) * XXH_P2;
    return (h ^ (h >> 29)) * XXH_P3;
}
XXH_INLINE uint64_t xxh_end(uint64_t h) { h = xxh_mix(h); return h ^ (h >> 32); }
XXH_INLINE uint64_t xxh_add8(uint64_t h, uint64_t v) { return xxh_rotl(h ^ xxh_round(0, v), 27) * XXH_P1 + XXH_P4; }
XXH_INLINE uint64_t xxh_add4(uint64_t h, uint32_t v) { return xxh_rotl(h ^ (v * XXH_P1), 23) * XXH_P2 + XXH_P3; }
XXH_INLINE uint64_t xxh_of8(uint64_t seed, uint64_t v) { return xxh_end(xxh_add8(seed + XXH_P5 + 8, v)); }
XXH_INLINE uint64_t xxh_of4(uint64_t seed, uint32_t v) { return xxh_end(xxh_add4(seed + XXH_P5 + 4, v)); }

XXH_INLINE uint64_t xxh_merge(uint64_t h, uint64_t v) { return (h ^ xxh_round(0, v)) * XXH_P1 + XXH_P4; }

/* Whole stripes of 32 bytes; `*p` ends behind them. */
static uint64_t xxh_stripes(const uint8_t **p, uint64_t bytes, uint64_t seed) {
    const uint8_t *at = *p, *end = at + (bytes & ~(uint64_t)31);
    uint64_t a = seed + XXH_P1 + XXH_P2, b = seed + XXH_P2, c = seed, d = seed - XXH_P1;
    for (; at != end; at += 32) {
        a = xxh_round(a, xxh_load8(at));
        b = xxh_round(b, xxh_load8(at + 8));
        c = xxh_round(c, xxh_load8(at + 16));
        d = xxh_round(d, xxh_load8(at + 24));
    }
    *p = at;
    uint64_t h = xxh_rotl(a, 1) + xxh_rotl(b, 7) + xxh_rotl(c, 12) + xxh_rotl(d, 18);
    return xxh_merge(xxh_merge(xxh_merge(xxh_merge(h, a), b), c), d);
}

/* Any bytes. `p` may be anything when there are none. */
XXH_INLINE uint64_t xxh_of(const uint8_t *p, uint64_t bytes, uint64_t seed) {
    uint64_t h = (bytes >= 32 ? xxh_stripes(&p, bytes, seed) : seed + XXH_P5) + bytes;
    uint64_t rest = bytes & 31;
    for (; rest >= 8; rest -= 8, p += 8) h = xxh_add8(h, xxh_load8(p));
    if (rest >= 4) { h = xxh_add4(h, xxh_load4(p)); rest -= 4; p += 4; }
    for (; rest; rest--, p++) h = xxh_rotl(h ^ (*p * XXH_P5), 11) * XXH_P1;
    return xxh_end(h);
}

/* ---- loops over rows: the same code for each kind of CPU ---- */

#define XXH_LOOPS(NAME, TARGET)                                                                                      \
    /* h[i] = hash of v[i] seeded by h[i] */                                                                         \
    TARGET static void NAME##_chain8(uint64_t *restrict h, const xxh_u64 *restrict v, int64_t n) {                  \
        for (int64_t i = 0; i < n; i++) h[i] = xxh_of8(h[i], v[i]);                                                  \
    }                                                                                                                \
    TARGET static void NAME##_chain4(uint64_t *restrict h, const xxh_u32 *restrict v, int64_t n) {                  \
        for (int64_t i = 0; i < n; i++) h[i] = xxh_of4(h[i], v[i]);                                                  \
    }                                                                                                                \
    /* the slots of one column without nulls: no hash is stored between */                                           \
    TARGET static void NAME##_slots8(uint16_t *restrict out, const xxh_u64 *restrict v, int64_t n, uint64_t seed) { \
        for (int64_t i = 0; i < n; i++) out[i] = (uint16_t)(xxh_mix(xxh_add8(seed + XXH_P5 + 8, v[i])) >> 48);       \
    }                                                                                                                \
    TARGET static void NAME##_slots4(uint16_t *restrict out, const xxh_u32 *restrict v, int64_t n, uint64_t seed) { \
        for (int64_t i = 0; i < n; i++) out[i] = (uint16_t)(xxh_mix(xxh_add4(seed + XXH_P5 + 4, v[i])) >> 48);       \
    }

XXH_LOOPS(xxh_any, )

#if defined(__x86_64__)
XXH_LOOPS(xxh_avx2, __attribute__((target("avx2,bmi2"))))
#if defined(__clang__)
#define XXH_512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#else
#define XXH_512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")))
#endif
XXH_LOOPS(xxh_avx512, XXH_512)
#endif

typedef struct {
    void (*chain8)(uint64_t *restrict, const xxh_u64 *restrict, int64_t);
    void (*chain4)(uint64_t *restrict, const xxh_u32 *restrict, int64_t);
    void (*slots8)(uint16_t *restrict, const xxh_u64 *restrict, int64_t, uint64_t);
    void (*slots4)(uint16_t *restrict, const xxh_u32 *restrict, int64_t, uint64_t);
    const char *name;
} xxh_loops;

#define XXH_TABLE(NAME) {NAME##_chain8, NAME##_chain4, NAME##_slots8, NAME##_slots4, #NAME}

/* `level`: 0 any, 1 AVX2, 2 AVX-512, or -1 for the best that this CPU has. NULL: this CPU has it not. */
static const xxh_loops *xxh_choose(int level) {
    static const xxh_loops any = XXH_TABLE(xxh_any);
#if defined(__x86_64__)
    static const xxh_loops avx2 = XXH_TABLE(xxh_avx2), avx512 = XXH_TABLE(xxh_avx512);
    __builtin_cpu_init();
    int best = 0;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) best = 1;
    if (best && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512vl")) best = 2;
    if (level < 0) level = best;
    if (level > best) return NULL;
    return level == 2 ? &avx512 : level == 1 ? &avx2 : &any;
#else
    return level <= 0 ? &any : NULL;
#endif
}

#endif
