"""Where benchmarks keep what they make: data sets, logs of engines, recycled files."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = ROOT / "benchmarks" / "workloads"
RECORD = ROOT / "benchmarks" / "record"


def work_directory() -> Path:
    """`RINGFENCE_BENCH_DIR`, by default `.data/bench` in the checkout.

    It must lie on the disk that is to be measured.
    """
    directory = Path(os.environ.get("RINGFENCE_BENCH_DIR", ROOT / ".data" / "bench"))
    directory.mkdir(parents=True, exist_ok=True)
    return directory
