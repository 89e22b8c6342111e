"""A client whose process is out of descriptors while its node restarts goes on once there are some."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.harness.processes import NodeProcess

PROGRAM = """
import os, resource, sys, threading
import pyarrow as pa
import ringfence

row = pa.record_batch([pa.array([1])], ["v"])
client = ringfence.connect(sys.argv[1], timeout_s=60)
client.create_topic("t", schema=pa.schema([("v", pa.int64())]))
producer = client.producer("t", timeout_s=60)
producer.send(row).result()
print("ready", flush=True)
sys.stdin.readline()  # the node is down
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
held = []
try:
    while True:
        held.append(open(os.devnull))
except OSError:
    pass
waiting = producer.send(row)
print("out of them", flush=True)
sys.stdin.readline()  # the node is back
threading.Event().wait(2)  # some tries fail
assert not waiting.done()
for file in held:
    file.close()
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
waiting.result(30)
producer.send(row).result(30)
print("stored", client.count("t"), flush=True)
"""


def test_a_client_without_descriptors_goes_on_when_there_are_some(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path / "data") as node,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, node.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        node.stop()
        print(file=program.stdin, flush=True)
        assert program.stdout.readline() == "out of them\n"
        node.start()
        print(file=program.stdin, flush=True)
        assert program.stdout.readline() == "stored 3\n"
        assert program.wait(30) == 0
