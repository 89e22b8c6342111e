"""A node that stores nothing: reads publishes, checks their headers, answers as a test says."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import zmq

from ringfence.native import frame, wire
from ringfence.native._node import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.native.wire import RequestHeader

    # Changes the fields of an answer, given the request and how often this sequence was sent.
    Change = Callable[[RequestHeader, int], dict[str, int]]

READY_BODY = b"\x80"
PUSH_EVERY = 3
SILENCE_MS = 100  # the sender waits for answers


def _answer(request: RequestHeader, **fields: int) -> bytearray:
    header = bytearray(wire.HEADER_BYTES)
    told = {"status": wire.Status.OK, "credit_bytes": 1 << 30, **fields}
    frame.pack_answer(header, 0, request.opcode, told.pop("status"), request.request_id, **told)
    return header


class FakeNode:
    """`requests` are the publish headers in the order of arrival; answers wait until `hold` are there."""

    def __init__(self, change: Change | None = None, hold: int = 1) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.linger = 0
        port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        self.requests: list[RequestHeader] = []
        self.unanswered_max = 0
        self._offsets: Counter[int] = Counter()
        self._sent: Counter[tuple[int, int, int]] = Counter()
        self._change = change or (lambda _request, _time: {})
        self._hold = hold
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._router.close()
        self._context.term()

    def _run(self) -> None:
        waiting: list[tuple[bytes, RequestHeader]] = []
        while not self._stop.is_set():
            # What is held is answered once the sender falls silent: its window is full, or it has ended.
            if not self._router.poll(SILENCE_MS) or len(waiting) >= self._hold:
                self.unanswered_max = max(self.unanswered_max, len(waiting))
                for sender, request in waiting:
                    self._settle(sender, request)
                waiting.clear()
                continue
            sender, head, body = self._router.recv_multipart()
            request = frame.open_request(head)
            assert (len(body), crc32c(body)) == (request.body_bytes, request.body_crc)
            if request.opcode == wire.Opcode.HELLO:
                ready = _answer(request, status=wire.Status.READY, body_bytes=1, body_crc=crc32c(READY_BODY))
                self._router.send_multipart([sender, ready, READY_BODY])
            else:
                self.requests.append(request)
                waiting.append((sender, request))

    def _settle(self, sender: bytes, request: RequestHeader) -> None:
        identity = (request.producer_id, request.partition, request.sequence)
        self._sent[identity] += 1
        told: dict[str, int] = {
            "partition": request.partition,
            "sequence": request.sequence,
            "rows": request.rows,
            "first_offset": self._offsets[request.partition],
        } | self._change(request, self._sent[identity])
        if told.get("status", wire.Status.OK) == wire.Status.OK:
            self._offsets[request.partition] += request.rows
        self._router.send_multipart([sender, _answer(request, **told)])
        if len(self.requests) % PUSH_EVERY == 0:
            push = bytearray(wire.HEADER_BYTES)
            frame.pack_answer(push, 0, wire.Opcode.TABLE_PUSH, wire.Status.PUSH, 0)
            self._router.send_multipart([sender, push])
