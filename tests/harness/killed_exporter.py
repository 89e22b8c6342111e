"""A process that exports what a queue has parked, and kills itself at a step: `STEP before|after`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import ringfence
from ringfence.consumer.exporter import OneExport
from ringfence.consumer.parked_export import Call, Event

ROOT = Path(__file__).parents[2]
STEPS = ("BeginScope", "StageRows", "Take", "Commit", "Mark")


def killed_exporter(address: str, topic: str, cohort: str, to: str, item: tuple[int, int], when: str) -> None:
    """Run one to its death; `when`: a step, then before or after."""
    arguments = [address, topic, cohort, to, f"{item[0]}:{item[1]}", when]
    done = subprocess.run(
        [sys.executable, "-m", "tests.harness.killed_exporter", *arguments],
        cwd=ROOT,
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def main(address: str, topic: str, cohort: str, to: str, item: str, when: str) -> None:
    step, moment = when.split()
    carry_out = OneExport._carried_out

    def dying(one: OneExport, call: Call) -> Event:
        is_it = type(call).__name__ == step
        if is_it and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        event = carry_out(one, call)
        if is_it:
            os.kill(os.getpid(), signal.SIGKILL)
        return event

    OneExport._carried_out = dying  # type: ignore[method-assign, assignment]
    partition, number = map(int, item.split(":"))
    with ringfence.connect(address, timeout_s=30) as client:
        client.admin.export_parked(topic, cohort, to=to, items=[(partition, number)])


if __name__ == "__main__":
    main(*sys.argv[1:])
