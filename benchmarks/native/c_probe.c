/* The limit once more, in C: a check that the Rust probe loses nothing to its language.
 *
 *     cc -O3 -march=native -pthread -o c_probe c_probe.c
 *     c_probe PORT FILE FILE_MIB        serves one connection after another on 127.0.0.1
 *
 * Framing as in src/probe/mod.rs: u64 body bytes, u32 CRC-32C, u32 zero, body; answers are u64 counts.
 * Ring of 128 MiB on huge pages, one receiver, one writer, O_DIRECT, one fdatasync a group.
 * x86-64 with SSE 4.2 only. The file must be whole already (the Rust probe makes it).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define RING (128ull << 20)
#define BLOCK 4096ull
#define CHUNK (1u << 20)
#define PREFIX 16
#define LANE 4096 /* bytes of each of the three interleaved CRC streams */

static uint32_t lane_shift[4][256]; /* CRC of a byte string followed by LANE zero bytes */
static char *ring;
static int file, sock;
static uint64_t file_bytes;
static struct { uint64_t received, bodies, released; int closed; } shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void die(const char *what) { perror(what); exit(2); }

static uint32_t crc_bytes(uint32_t crc, const char *p, size_t n) {
    uint64_t c = crc;
    for (; n >= 8; n -= 8, p += 8) { uint64_t v; memcpy(&v, p, 8); c = _mm_crc32_u64(c, v); }
    for (; n; n--, p++) c = _mm_crc32_u8((uint32_t)c, (uint8_t)*p);
    return (uint32_t)c;
}

static void make_tables(void) {
    static char zeros[LANE];
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t v = 0; v < 256; v++) lane_shift[byte][v] = crc_bytes(v << (8 * byte), zeros, LANE);
}

static uint32_t shift(uint32_t c) {
    return lane_shift[0][c & 255] ^ lane_shift[1][c >> 8 & 255] ^ lane_shift[2][c >> 16 & 255] ^ lane_shift[3][c >> 24];
}

/* Three streams side by side: the crc32 instruction has a latency of three cycles. */
static uint32_t crc32c(uint32_t crc, const char *p, size_t n) {
    uint64_t a = ~crc;
    for (; n >= 3 * LANE; n -= 3 * LANE, p += 3 * LANE) {
        uint64_t b = 0, c = 0;
        for (size_t i = 0; i < LANE; i += 8) {
            uint64_t x, y, z;
            memcpy(&x, p + i, 8); memcpy(&y, p + LANE + i, 8); memcpy(&z, p + 2 * LANE + i, 8);
            a = _mm_crc32_u64(a, x); b = _mm_crc32_u64(b, y); c = _mm_crc32_u64(c, z);
        }
        a = shift((uint32_t)a) ^ b;
        a = shift((uint32_t)a) ^ c;
    }
    return ~crc_bytes((uint32_t)a, p, n);
}

static void *writer(void *unused) {
    static char tail[BLOCK] __attribute__((aligned(4096)));
    uint64_t aligned = 0, at = 0, end, bodies;
    (void)unused;
    for (uint64_t written = 0;; written = end) {
        pthread_mutex_lock(&lock);
        while (shared.received == written && !shared.closed) pthread_cond_wait(&changed, &lock);
        end = shared.received;
        bodies = shared.bodies;
        pthread_mutex_unlock(&lock);
        if (end == written) return NULL;
        uint64_t stop = end & ~(BLOCK - 1), place = aligned % RING, first = stop - aligned;
        if (first > RING - place) first = RING - place;
        memcpy(tail, ring + stop % RING, end - stop);
        memset(tail + (end - stop), 0, BLOCK - (end - stop));
        struct iovec parts[3] = {{ring + place, first}, {ring, stop - aligned - first}, {tail, BLOCK}};
        if (at + (stop - aligned) + BLOCK > file_bytes) at = 0;
        if (pwritev(file, parts, 3, at) != (ssize_t)(stop - aligned + BLOCK)) die("pwritev");
        if (fdatasync(file)) die("fdatasync");
        at += stop - aligned;
        aligned = stop;
        pthread_mutex_lock(&lock);
        shared.released = aligned;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (write(sock, &bodies, 8) != 8) return NULL;
    }
}

static void copy_out(char *to, uint64_t from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = ring[(from + i) % RING];
}

static void receive(void) {
    uint64_t filled = 0, start = 0, checked = 0, stop = 0, bodies = 0, length;
    uint32_t crc = 0, named = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (filled - shared.released == RING) pthread_cond_wait(&changed, &lock);
        uint64_t space = RING - (filled - shared.released), before = bodies;
        pthread_mutex_unlock(&lock);
        if (space > RING - filled % RING) space = RING - filled % RING;
        ssize_t got = recv(sock, ring + filled % RING, space < CHUNK ? space : CHUNK, 0);
        if (got <= 0) break;
        filled += (uint64_t)got;
        for (;;) {
            if (!stop) {
                if (filled < start + PREFIX) break;
                char prefix[PREFIX];
                copy_out(prefix, start, PREFIX);
                memcpy(&length, prefix, 8);
                memcpy(&named, prefix + 8, 4);
                checked = start + PREFIX, stop = checked + length, crc = 0;
            }
            uint64_t until = stop < filled ? stop : filled;
            while (checked < until) {
                uint64_t part = until - checked, room = RING - checked % RING;
                if (part > room) part = room;
                crc = crc32c(crc, ring + checked % RING, part);
                checked += part;
            }
            if (checked < stop) break;
            if (crc != named) { fprintf(stderr, "c_probe: CRC %08x, named %08x\n", crc, named); exit(1); }
            bodies++, start = stop, stop = 0;
        }
        if (bodies > before) {
            pthread_mutex_lock(&lock);
            shared.received = start, shared.bodies = bodies;
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&lock);
        }
    }
    pthread_mutex_lock(&lock);
    shared.closed = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv) {
    if (argc != 4) { fprintf(stderr, "usage: c_probe PORT FILE FILE_MIB\n"); return 2; }
    make_tables();
    file_bytes = strtoull(argv[3], NULL, 10) << 20;
    if ((file = open(argv[2], O_WRONLY | O_DIRECT)) < 0) die(argv[2]);
    char *raw = mmap(NULL, RING + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) die("mmap");
    ring = (char *)(((uintptr_t)raw + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
    madvise(ring, RING, MADV_HUGEPAGE);
    memset(ring, 0, RING);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1)) die("bind");
    printf("{\"address\": \"tcp://127.0.0.1:%s\"}\n", argv[1]);
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        memset(&shared, 0, sizeof shared);
        if ((sock = accept(listener, NULL, NULL)) < 0) die("accept");
        setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_create(&thread, NULL, writer, NULL);
        receive();
        pthread_join(thread, NULL);
        close(sock);
    }
}
