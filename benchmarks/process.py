"""What a process has used so far, from /proc: the twin of native/src/sample.rs, for senders in Python."""

from __future__ import annotations

from pathlib import Path

TICK_NS = 10_000_000  # USER_HZ is 100 on every supported machine


def _values(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except PermissionError:
        return {}
    pairs = (line.split() for line in lines if line.count(":") == 1)
    return {words[0].rstrip(":"): int(words[1]) for words in pairs if len(words) > 1 and words[1].isdigit()}


def usage(pid: int) -> dict[str, int]:
    """Counters of `pid` since its start; keys as in `Turn.server`.

    Raises FileNotFoundError when it is gone.
    """
    process = Path(f"/proc/{pid}")
    # The second field is the program's name in parentheses and may hold blanks; field 3 comes after the last
    # ')'.
    stat = (process / "stat").read_text().rpartition(")")[2].split()
    status, calls = _values(process / "status"), _values(process / "io")
    return {
        "user_ns": int(stat[11]) * TICK_NS,
        "system_ns": int(stat[12]) * TICK_NS,
        "faults_minor": int(stat[7]),
        "faults_major": int(stat[9]),
        "read_calls": calls.get("syscr", 0),
        "write_calls": calls.get("syscw", 0),
        "storage_write_bytes": calls.get("write_bytes", 0),
        "resident_bytes_max": status.get("VmHWM", 0) * 1024,
    }


def used_since(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What was used between two samples; `resident_bytes_max` is no difference."""
    return {
        name: value if name == "resident_bytes_max" else value - before[name] for name, value in after.items()
    }
