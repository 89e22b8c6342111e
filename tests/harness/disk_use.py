"""`python -m tests.harness.disk_use COMMAND...`: run COMMAND, and print its peak of temporary disk space.

COMMAND gets a TMPDIR of its own. Allocated bytes count, also those of files without a name, as disk images of
tests. The folders of pytest's tests are listed with their own peaks, the largest first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LOOK_S: Final = 2.0
BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system
LISTED: Final = 40


def allocated(root: Path) -> Counter[str]:
    """Allocated bytes below `root` by the folder of a test, each file once."""
    device, found, seen = root.stat().st_dev, Counter[str](), set[int]()
    for path, status in [*_files(root, device), *_unnamed(root)]:
        if status.st_dev == device and status.st_ino not in seen:
            seen.add(status.st_ino)
            found[_test_of(path)] += status.st_blocks * BLOCK_BYTES
    return found


def _files(folder: Path, device: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Files below `folder`; other file systems that are mounted there do not count."""
    try:
        entries = [*os.scandir(folder)]
    except OSError:  # it was removed meanwhile
        return
    for entry in entries:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if entry.is_dir(follow_symlinks=False):
            if status.st_dev == device:
                yield from _files(Path(entry.path), device)
        else:
            yield Path(entry.path), status


def _unnamed(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Files that were below `root`, have no name any more and are open in a process."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = str(descriptor.readlink())
            if target.startswith(f"{root}/") and target.endswith(" (deleted)"):
                yield Path(target), descriptor.stat()
        except OSError:  # the process ended meanwhile
            continue


def _test_of(path: Path) -> str:
    """The folder of a test: below pytest-of-USER/pytest-N, and below that of a worker."""
    parts = path.parts
    runs = [place for place, part in enumerate(parts) if part.startswith("pytest-of-")]
    if not runs:
        return "other files"
    inside = [part for part in parts[runs[0] + 2 :] if not part.startswith("popen-")]
    return inside[0] if len(inside) > 1 else "other files"


def main() -> int:
    peaks, peak = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="ringfence-disk-use-") as folder:
        process = subprocess.Popen(sys.argv[1:], env={**os.environ, "TMPDIR": folder})
        while process.poll() is None:
            now = allocated(Path(folder))
            peaks = peaks | now
            if now.total() > peak.total():
                peak = now
            time.sleep(LOOK_S)
    print(f"peak {peak.total() >> 20:,} MiB")
    for name, size in peaks.most_common(LISTED):
        if size >> 20:
            print(f"{size >> 20:7,} MiB {name}; {peak[name] >> 20:,} MiB at the peak")
    return process.returncode


if __name__ == "__main__":
    raise SystemExit(main())
