"""Run a temporary node for a command: a child process with a temporary data directory."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ringfence.control.cli import signals
from ringfence.native.errors import ConnectError

# A first start takes a second; a busy machine may need longer.
START_S = 60.0
STOP_S = 30.0


@contextmanager
def embedded_node(*options: str, data: Path | None = None) -> Iterator[str]:
    """Run a node while the context is open; yield its address.

    The data directory is temporary unless `data` names one. ConnectError, with the last line of the node's
    log, if the node does not start. The node uses this interpreter, so a virtual environment needs no PATH.
    """
    with tempfile.TemporaryDirectory(prefix="ringfence-") as folder:
        root = data if data is not None else Path(folder) / "data"
        log = Path(folder) / "log"
        command = [
            sys.executable,
            "-m",
            "ringfence.control.cli",
            "serve",
            "--json",
            "--data",
            str(root),
            "--listen",
            "tcp://127.0.0.1:0",
            *options,
        ]
        with ExitStack() as stack:
            with log.open("wb") as errors, signals.deferred():
                # A separate session: Ctrl-C reaches only the command, which then stops the node.
                process = subprocess.Popen(  # noqa: S603 - our own program with our own arguments
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
                stack.callback(_stop, process)
            yield _address(process, log)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline() if readable else b""
    if not line:
        lines = log.read_text(errors="replace").strip().splitlines()
        late = f"did not serve within {START_S:g} s; check the load of the machine"
        fault = "ended before it served" if readable else late
        raise ConnectError(f"the embedded node {fault}; last log line: {lines[-1] if lines else 'none'}")
    address: str = json.loads(line)["address"]
    return address


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
