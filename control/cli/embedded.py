"""A node of a command's own: a child process with a temporary data directory."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.native.errors import ConnectError

# A first start takes a second; a loaded machine may need longer.
START_S = 60.0
STOP_S = 30.0


@contextmanager
def embedded_node(*options: str, data: Path | None = None) -> Iterator[str]:
    """The address of a node that runs while the context is open.

    Its data directory is temporary unless `data` names one. ConnectError, with the node's own words, when it
    does not start. The interpreter is this one, so that a command in a virtual environment needs no PATH.
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
        with log.open("wb") as errors:
            # A group of its own: Ctrl-C reaches us first, and we stop it in order.
            process = subprocess.Popen(  # noqa: S603 - our own program with our own arguments
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        try:
            yield _address(process, log)
        finally:
            _stop(process)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline() if readable else b""
    if not line:
        said = log.read_text(errors="replace").strip().splitlines()
        slow = f"did not serve within {START_S:g} s (a busy machine?)"
        what = "ended before it served" if readable else slow
        raise ConnectError(f"the embedded node {what}; {said[-1] if said else 'it said nothing'}")
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
