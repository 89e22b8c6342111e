"""`python -m benchmarks.servers.busy_node serve ...`: the `ringfence` command, and a thread that can be busy.

SIGUSR1 makes it count without end, SIGUSR2 lets it rest. For benchmarks: no setting of the product does
this.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from ringfence.control.cli import main

NAME = "rf-busy"  # of the thread, in /proc
RUN = threading.Event()


def _spin() -> None:
    """Pure Python, so that it wants the interpreter's lock all the time."""
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(NAME)
    number = 0
    while True:
        RUN.wait()
        while RUN.is_set():
            number += 1


def _toggle(number: int, _: object) -> None:
    if number == signal.SIGUSR1:
        RUN.set()
    else:
        RUN.clear()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _toggle)
    signal.signal(signal.SIGUSR2, _toggle)
    threading.Thread(target=_spin, name="busy", daemon=True).start()
    main()
