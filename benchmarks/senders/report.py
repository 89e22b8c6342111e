"""What a sender in Python prints at its end: the same object as the native one."""

from __future__ import annotations

import json

import numpy as np


def print_report(
    *,
    requests: int,
    rows: int,
    body_bytes: int,
    seconds: float,
    latencies_s: list[float],
    server: dict[str, int],
) -> None:
    """One JSON line on stdout."""
    p50, p99 = np.percentile(np.asarray(latencies_s) * 1e3, [50, 99])
    result = {
        "requests": requests,
        "rows": rows,
        "body_bytes": body_bytes,
        "seconds": seconds,
        "ack_p50_ms": round(float(p50), 4),
        "ack_p99_ms": round(float(p99), 4),
        "server": server,
    }
    print(json.dumps(result), flush=True)
