/* Rows by partition: a counting sort that keeps the order of rows (Knuth, TAOCP 3, 5.2, algorithm D). */
#ifndef RINGFENCE_GROUP_H
#define RINGFENCE_GROUP_H

#include <stdint.h>
#include <string.h>

/* `bounds` has count + 1 zeros. Returns the first row whose partition is not below `count`, or -1.
 * Four rows at a time go to four histograms: equal partitions in a row would wait for each other's counter. */
static int64_t group_rows(const uint16_t *slots, int64_t rows, const uint16_t *table, uint32_t count,
                          uint32_t *order, uint32_t *bounds, uint32_t *counters) {
    uint32_t *a = counters, *b = a + count, *c = b + count, *d = c + count;
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        uint32_t p = table[slots[i]], q = table[slots[i + 1]], r = table[slots[i + 2]], s = table[slots[i + 3]];
        if (p >= count || q >= count || r >= count || s >= count) break;
        a[p]++; b[q]++; c[r]++; d[s]++;
    }
    for (; i < rows; i++) {
        uint32_t p = table[slots[i]];
        if (p >= count) return i;
        a[p]++;
    }
    uint32_t at = 0;
    for (uint32_t p = 0; p < count; p++) {
        uint32_t here = a[p] + b[p] + c[p] + d[p];
        bounds[p] = a[p] = at;  /* a becomes the next place of each partition */
        at += here;
    }
    bounds[count] = at;
    for (i = 0; i < rows; i++) order[a[table[slots[i]]]++] = (uint32_t)i;
    return -1;
}

#endif
