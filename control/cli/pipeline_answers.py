"""What the pipeline's story and its jobs share: tables, TPC-H's query 3, one hash for rows of any engine."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

# Of the two tables that are streamed, each with its topic's key.
KEYS: Final = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
# While the demo's folder has this file, no task that ingests gives its rows on.
HOLD: Final = "hold"
SEGMENT: Final = "BUILDING"
DATE: Final = dt.date(1995, 3, 15)
COLUMNS: Final = ("l_orderkey", "revenue", "o_orderdate", "o_shippriority")
# Decimals of a price of two times a discount of two.
SCALE: Final = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """All rows of query 3 (its text has LIMIT 10; without it more can differ) by one engine on one copy."""

    name: str
    rows: int
    digest: str
    seconds: float

    def values(self) -> dict[str, Any]:
        return asdict(self)


def query3(customer: str, orders: str, lineitem: str) -> str:
    """Query 3 of TPC-H (specification 3.0.1, 2.4.3) with its validation parameters, for Spark and DuckDB.

    The arguments are table expressions.
    """
    return f"""
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM {customer} c JOIN {orders} o ON c_custkey = o_custkey
        JOIN {lineitem} l ON l_orderkey = o_orderkey
        WHERE c_mktsegment = '{SEGMENT}' AND o_orderdate < DATE '{DATE}' AND l_shipdate > DATE '{DATE}'
        GROUP BY l_orderkey, o_orderdate, o_shippriority"""  # noqa: S608 - our own names and constants


def digest(rows: Iterable[tuple[Any, ...]]) -> tuple[int, str]:
    """Number of rows, and 16 hex digits of SHA-256 over their sorted texts. Columns as in COLUMNS."""
    texts = sorted(f"{key}|{revenue:.{SCALE}f}|{date}|{priority}" for key, revenue, date, priority in rows)
    return len(texts), hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
