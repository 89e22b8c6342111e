"""Find the processes that a command started."""

from __future__ import annotations

from pathlib import Path


def children(folder: Path) -> list[str]:
    """Return the command lines of processes that have a path below `folder` among their arguments."""
    lines = []
    for process in Path("/proc").iterdir():
        try:
            arguments = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if process.name.isdigit() and str(folder) in arguments:
            lines.append(arguments.replace("\0", " "))
    return lines
