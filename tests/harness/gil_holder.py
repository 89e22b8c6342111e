"""`python -m tests.harness.gil_holder PIPE PROGRAM serve ...`: the `ringfence` command, and a thread more.

For each line in the named pipe, a number of seconds, the thread sleeps so long in C and keeps the GIL: all
that needs the GIL waits. Files beside the pipe say when it begins (`held`), and when it was over (`free`).
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from pathlib import Path

from ringfence.control.cli import main


def hold(pipe: Path) -> None:
    libc = ctypes.PyDLL(None)  # calls of a PyDLL keep the GIL
    while True:
        for line in pipe.read_text().splitlines():
            pipe.with_suffix(".held").touch()
            began = time.monotonic()
            libc.sleep(int(line))
            ended = time.monotonic()
            pipe.with_suffix(".free").write_text(f"{began!r} {ended!r}")


if __name__ == "__main__":
    threading.Thread(target=hold, args=(Path(sys.argv[1]),), name="holder", daemon=True).start()
    sys.argv = sys.argv[2:]
    main()
