/* CRC-32C of headers: short, so one chain of the CPU's crc32 instruction is enough. Bodies go to `_node.crc32c`. */
#ifndef RINGFENCE_CRC32C_H
#define RINGFENCE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Any CPU: bit by bit over the reflected polynomial. */
static uint32_t crc32c_any(const uint8_t *p, size_t bytes) {
    uint32_t crc = 0xFFFFFFFFU;
    for (; bytes; bytes--, p++) {
        crc ^= *p;
        for (int i = 0; i < 8; i++) crc = (crc >> 1) ^ (0x82F63B78U & (0U - (crc & 1)));
    }
    return ~crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(const uint8_t *p, size_t bytes) {
    uint64_t crc = 0xFFFFFFFFU, v;
    for (; bytes >= 8; bytes -= 8, p += 8) { memcpy(&v, p, 8); crc = _mm_crc32_u64(crc, v); }
    for (; bytes; bytes--, p++) crc = _mm_crc32_u8((uint32_t)crc, *p);
    return ~(uint32_t)crc;
}
static uint32_t crc32c_short(const uint8_t *p, size_t bytes) {
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse(p, bytes) : crc32c_any(p, bytes);
}
#else
static uint32_t crc32c_short(const uint8_t *p, size_t bytes) { return crc32c_any(p, bytes); }
#endif

#endif
