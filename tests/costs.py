"""What each test costs: seconds on the clock, and of a core with all processes below it.

A pytest plugin: `TEST_COSTS=DIR pytest -p tests.costs ...` adds a line of JSON for each test to a file of
each worker in DIR; `python -m tests.costs DIR` prints the files of tests by their cost.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def _descendants() -> Iterator[float]:
    """Seconds of a core of each process below this one that still runs, with those that it has waited for."""
    parents: dict[int, list[tuple[int, float]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            seconds = sum(map(int, fields[11:15])) / _TICKS_A_SECOND
            parents.setdefault(int(fields[1]), []).append((int(stat.parent.name), seconds))
    below = [os.getpid()]
    while below:
        for process, seconds in parents.pop(below.pop(), ()):
            below.append(process)
            yield seconds


def _core_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + sum(_descendants())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    clock, core = time.monotonic(), _core_seconds()
    result = yield
    line = {"test": item.nodeid, "clock_s": time.monotonic() - clock, "core_s": _core_seconds() - core}
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    with (Path(os.environ["TEST_COSTS"]) / f"{worker}-{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return result


def main(folder: Path, most: int = 60) -> None:
    """Print the dearest files and tests with their seconds of a core and on the clock."""
    lines = [
        json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    for name in ("file", "test"):
        core: Counter[str] = Counter()
        clock: Counter[str] = Counter()
        for line in lines:
            key = line["test"].split("::")[0] if name == "file" else line["test"]
            core[key] += line["core_s"]
            clock[key] += line["clock_s"]
        sums = (sum(core.values()), sum(clock.values()))
        print(f"{len(core)} {name}s: {sums[0]:.0f} s of a core, {sums[1]:.0f} s on the clock")
        for key, seconds in core.most_common(most):
            print(f"{seconds:8.1f} {clock[key]:8.1f}  {key}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
