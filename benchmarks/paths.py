"""Where benchmarks keep what they make: data sets, logs of engines, recycled files."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = ROOT / "benchmarks" / "workloads"
RECORD = ROOT / "benchmarks" / "record"


def work_directory() -> Path:
    """`BENCHMARKS_DIR`, by default `.data/bench` in the checkout; it must lie on the disk to be measured.

    The variable does not begin with RINGFENCE_: a node refuses settings that it does not know.
    """
    directory = Path(os.environ.get("BENCHMARKS_DIR", ROOT / ".data" / "bench"))
    directory.mkdir(parents=True, exist_ok=True)
    return directory
