"""Convert states of older formats to the present one. Entries are never removed: old data opens.

A converted state equals the one that this program derives from the same log, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ringfence.control.model.state import sorted_maps


def _to_2(data: bytes) -> bytes:
    """Format 1 had one node. It is live since its last start, and alone in the ring since entry 1."""
    state: dict[str, Any] = msgspec.msgpack.decode(data)
    for node in state["nodes"].values():
        node |= {
            "control": [],
            "http": [],
            "zone": "",
            "weight": 100,
            "labels": {},
            "life": "LIVE",
            "draining": False,
            "vote": "AUTO",
            "changed": node["started"],
        }
    members = sorted(state["nodes"])
    state["ring"] = {"version": min(1, len(members)), "members": members, "changed": min(1, len(members))}
    state["removed"] = {}
    return msgspec.msgpack.encode(sorted_maps(state))


def _to_3(data: bytes) -> bytes:
    """Format 2 had neither keys of requests nor tokens."""
    state: dict[str, Any] = msgspec.msgpack.decode(data)
    return msgspec.msgpack.encode(sorted_maps(state | {"requests": {}, "tokens": {}}))


def _to_4(data: bytes) -> bytes:
    """Format 3 had neither changes nor rebalances: none is open, and no leftovers exist."""
    state: dict[str, Any] = msgspec.msgpack.decode(data)
    none = {
        "run": 0,
        "action": "balance",
        "node": 0,
        "state": "IDLE",
        "outcome": "",
        "drained": False,
        "why": "",
        "started_ms": 0,
        "ended_ms": 0,
        "counts": {},
    }
    added = {"changes": {}, "leftovers": {}, "rebalance": none, "moves": {}, "runs": []}
    return msgspec.msgpack.encode(sorted_maps(state | added))


def _to_5(data: bytes) -> bytes:
    """Format 4 kept no copies to reverse a change, and measured no gaps."""
    state: dict[str, Any] = msgspec.msgpack.decode(data)
    for change in state["changes"].values():
        change |= {"before": [], "stopped_us": 0}
    for move in state["moves"].values():
        move["gap_us"] = None
    for run in (state["rebalance"], *state["runs"]):
        run["gaps"] = {}
    return msgspec.msgpack.encode(sorted_maps(state | {"kept": {}}))


def _to_6(data: bytes) -> bytes:
    """Format 5 had no scopes."""
    state: dict[str, Any] = msgspec.msgpack.decode(data)
    return msgspec.msgpack.encode(sorted_maps(state | {"scopes": {}, "scope_names": {}, "scopes_gone": 0}))


def _to_7(data: bytes) -> bytes:
    """Format 6 did not record the drivers of commits."""
    state: dict[str, Any] = msgspec.msgpack.decode(data)
    for scope in state["scopes"].values():
        scope |= {"kept": b"", "unkept": scope["committed"]}
    return msgspec.msgpack.encode(sorted_maps(state))


def _to_8(data: bytes) -> bytes:
    """Format 7 is that of level 0, which format 8 leaves out."""
    return data


def _to_9(data: bytes) -> bytes:
    """Format 8 is that of level 1, which format 9 leaves out."""
    return data


def _to_10(data: bytes) -> bytes:
    """Format 9 is that of level 2, which format 10 leaves out."""
    return data


# State format n -> the function that converts its bytes to format n + 1.
CONVERSIONS: Final[dict[int, Callable[[bytes], bytes]]] = {
    1: _to_2,
    2: _to_3,
    3: _to_4,
    4: _to_5,
    5: _to_6,
    6: _to_7,
    7: _to_8,
    8: _to_9,
    9: _to_10,
}
