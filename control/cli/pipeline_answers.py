"""Values that the pipeline demo and its jobs share: tables, TPC-H's query 3, and a hash of query results."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

# The two streamed tables, each with the key of its topic.
KEYS: Final = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
# While this file exists in the demo's directory, ingesting tasks hold their rows.
HOLD: Final = "hold"
SEGMENT: Final = "BUILDING"
DATE: Final = dt.date(1995, 3, 15)
COLUMNS: Final = ("l_orderkey", "revenue", "o_orderdate", "o_shippriority")
# Decimals of the revenue: two of the price and two of the discount.
SCALE: Final = 4


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """The result of query 3, without its LIMIT 10, by one engine on one copy of the tables."""

    name: str
    rows: int
    digest: str
    seconds: float

    def values(self) -> dict[str, Any]:
        return asdict(self)


def query3(customer: str, orders: str, lineitem: str) -> str:
    """Return query 3 of TPC-H (specification 3.0.1, 2.4.3) with its validation parameters.

    The arguments are table expressions of Spark or DuckDB.
    """
    return f"""
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM {customer} c JOIN {orders} o ON c_custkey = o_custkey
        JOIN {lineitem} l ON l_orderkey = o_orderkey
        WHERE c_mktsegment = '{SEGMENT}' AND o_orderdate < DATE '{DATE}' AND l_shipdate > DATE '{DATE}'
        GROUP BY l_orderkey, o_orderdate, o_shippriority"""  # noqa: S608 - constant names only


def digest(rows: Iterable[tuple[Any, ...]]) -> tuple[int, str]:
    """Return the number of rows and 16 hex digits of SHA-256 over their sorted texts. Columns: COLUMNS."""
    texts = sorted(f"{key}|{revenue:.{SCALE}f}|{date}|{priority}" for key, revenue, date, priority in rows)
    return len(texts), hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
