"""The command line in a process that kills itself: python -m tests.system.cli.dying STEP ARGUMENT...

SIGKILL comes before the STEP-th change of a directory, or sync of a file, from 0 on; with fewer of them the
command ends as it would.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ringfence.control.cli import main

STEPS = ("mkdir", "fsync", "rename", "unlink")


def die_at(step: int) -> None:
    numbers = itertools.count()

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def perhaps(*given: Any, **named: Any) -> Any:
            if next(numbers) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **named)

        return perhaps

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name)))


if __name__ == "__main__":
    die_at(int(sys.argv.pop(1)))
    main()
