"""A connection that ends between the two frames of an answer must not end the process.

With ZMQ_IMMEDIATE or without reconnecting libzmq ends the pipe of a broken connection at once, also between
the frames of a message: the next `recv` then aborts the process (`Assertion failed: !_more (src/fq.cpp:80)`).
It looks at such events with every hundredth `recv`, so a hundred answers that lie there meet it.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, time, zmq
from ringfence.network.connection import OPTIONS
context = zmq.Context()
node = context.socket(zmq.ROUTER)
port = node.bind_to_random_port("tcp://127.0.0.1")
client = context.socket(zmq.DEALER)
for option, value in OPTIONS.items():
    client.setsockopt(option, value)
client.connect(f"tcp://127.0.0.1:{port}")
client.poll(5000, zmq.POLLOUT)
client.send(b"hello")
peer, _ = node.recv_multipart()
for _ in range(int(sys.argv[1])):
    client.send(b"one more recv, or one less")
    node.send_multipart([peer, b"single"])
    client.recv()
for number in range(300):
    node.send_multipart([peer, b"header %d" % number, b"body"])
time.sleep(0.3)
client.recv_multipart()
node.close(0)
time.sleep(0.3)
answers = 0
while True:
    try:
        client.recv(zmq.NOBLOCK)
        client.recv(zmq.NOBLOCK)
    except zmq.Again:
        break
    answers += 1
print(answers)
context.destroy(0)
"""


def test_a_connection_that_breaks_behind_a_header_ends_no_process() -> None:
    for shift in (0, 1):  # at a header the hundredth `recv` does no harm, at a body it does
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(shift)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert int(ended.stdout) > 0
