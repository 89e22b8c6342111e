"""What a record says of the machine: what decides speed, and nothing that names it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.paths import ROOT, work_directory


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _file_system(directory: Path) -> str:
    """Type of the file system that holds `directory`: the longest mount point that is a prefix."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, found, *_ = line.split()
        if directory.is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _revision() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def describe() -> dict[str, Any]:
    """Processor, cores, memory, kernel, file system, versions. No host name, no path."""
    return {
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        "architecture": platform.machine(),
        "virtual": "hypervisor" in _field("/proc/cpuinfo", "flags").split(),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "file_system": _file_system(work_directory().resolve()),
        "huge_pages": Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip(),
        "load_average": round(os.getloadavg()[1], 1),
        # Under `chrt -f 10` other work on the machine hardly counts.
        "scheduling": "normal" if os.sched_getscheduler(0) == os.SCHED_OTHER else "real time",
        "python": platform.python_version(),
        "revision": _revision(),
    }


def short_name(machine: dict[str, Any]) -> str:
    """The folder of its records: `amd-epyc-2x-24g`."""
    processor = re.sub(r"[^a-z0-9]+", "-", machine["processor"].lower()).strip("-")
    return f"{processor}-{machine['cores']}x-{round(machine['memory_gib'])}g"
