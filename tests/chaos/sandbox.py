"""Where a run lives: namespaces of its own, which the kernel clears away when their first process is gone.

    python -m tests.chaos                 waits, and passes the exit code on
    └ setpriv, unshare                    dies with the process above (PDEATHSIG), its child with it
      └ python -m tests.chaos --inside    process 1 of a pid namespace: nodes and tracers die with it

Mounts and the network (bridge, namespaces of the hosts) are in the same sandbox. A loop device clears itself
when its file system is no longer mounted (`tests/harness/disk.py`). So nothing is left over, however a run
ends: no handler has to run for it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

ENTER = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--mount",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
OWN = ("/run", "/dev/shm")
"""`ip netns` keeps names under the first, a preloaded clock (`fleet.py`) its semaphores in the second."""


def run(command: list[str]) -> int:
    """Run `command` in a sandbox; its exit code. At a signal to end, everything in it dies.

    Of a command that a signal ended, the code is that of a shell, and a line names the signal.
    """
    process = subprocess.Popen([*ENTER, *command])

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    try:
        return _told(process.wait())
    finally:
        if process.poll() is None:
            _kill_first(process)
            process.wait()


def _told(code: int) -> int:
    if code >= 0:
        return code
    print(f"the run itself was ended by {signal.Signals(-code).name}: it proves nothing", file=sys.stderr)
    return 128 - code


def _kill_first(process: subprocess.Popen[bytes]) -> None:
    """Kill process 1 of the sandbox: `unshare` ends when all others in it are gone, too."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    if not children:  # it has not forked yet
        process.kill()
    for child in children:
        subprocess.run(["kill", "-KILL", child], check=False)


def prepare() -> None:
    """What a process in a fresh sandbox lacks. CalledProcessError: not root, or a program is missing.

    A process of the sandbox that crashes says where each of its threads was: this one, and those it starts.
    """
    faulthandler.enable()
    os.environ["PYTHONFAULTHANDLER"] = "1"
    for folder in OWN:
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
