"""`python -m benchmarks.senders.redis_sender PORT WORKLOAD PID REQUESTS WARMUP SECONDS`: pipelined XADD.

Commands are packed before the clock runs. Several connections, because Redis reads one large argument of a
connection at a time and syncs once for what all connections brought: with one of them it would sync for each.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque

import redis
from redis.connection import Connection

from benchmarks.peers.process import HOST
from benchmarks.senders.measured import ANSWER_TIMEOUT_S, Window, arguments, bodies_of, run

CONNECTIONS = 8
STREAM = "bench"
KEPT_BYTES = 256 << 20  # a stream lives in memory; older entries are trimmed, whole nodes at a time
REWRITE_TIMEOUT_S = 60.0


class Lane:
    """One connection: commands out, a thread that reads the answers in their order."""

    def __init__(self, port: int, window: Window) -> None:
        self._connection = Connection(host=HOST, port=port, socket_timeout=ANSWER_TIMEOUT_S)
        self._connection.connect()
        self._window = window
        self._began: deque[float] = deque()
        self._unread = threading.Semaphore(0)
        threading.Thread(target=self._read, daemon=True).start()

    def post(self, command: list[bytes], began: float) -> None:
        self._began.append(began)
        self._connection.send_packed_command(command, check_health=False)
        self._unread.release()

    def _read(self) -> None:
        while True:
            self._unread.acquire()
            try:
                self._connection.read_response()
                failure = None
            except (redis.RedisError, OSError) as error:
                failure = f"redis: {error}"
            self._window.answered(self._began.popleft(), failure)


def packed(bodies: list[bytes]) -> list[list[bytes]]:
    """One XADD a body."""
    kept = max(1, KEPT_BYTES // max(map(len, bodies)))
    packer = Connection(host=HOST)
    return [packer.pack_command("XADD", STREAM, "MAXLEN", "~", kept, "*", "b", body) for body in bodies]


def tidy(port: int) -> None:
    """Forget the stream and have the append-only file written anew, so that the next turn finds room."""
    client = redis.Redis(host=HOST, port=port, socket_timeout=ANSWER_TIMEOUT_S)
    client.delete(STREAM)
    client.bgrewriteaof()
    end = time.monotonic() + REWRITE_TIMEOUT_S
    while client.info("persistence")["aof_rewrite_in_progress"]:
        if time.monotonic() > end:
            raise TimeoutError(f"the append-only file is not rewritten after {REWRITE_TIMEOUT_S} s")
        time.sleep(0.05)


def main() -> None:
    port = int(sys.argv[1])
    workload, pid, counts, seconds_max = arguments(sys.argv[2:])
    bodies = bodies_of(workload)
    commands, sizes = packed(bodies), [len(body) for body in bodies]
    del bodies
    window = Window(workload.window)
    lanes = [Lane(port, window) for _ in range(min(CONNECTIONS, workload.window))]

    def post(number: int, began: float) -> None:
        lanes[number % len(lanes)].post(commands[number % len(commands)], began)

    def many(count: int) -> int:
        return window.send_many(post, count, seconds_max)

    run(many, window.latencies_s, workload=workload, pid=pid, counts=counts, body_bytes=sizes)
    tidy(port)


if __name__ == "__main__":
    main()
