"""A workload: what is sent, how, and what must be stored afterwards. Data in `workloads/*.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from benchmarks.paths import WORKLOADS
from benchmarks.peers.installed import PEERS

if TYPE_CHECKING:
    from pathlib import Path

DEDUPE_WINDOW = 64  # unanswered batches of one producer in one partition; core/wire/wire.toml


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One file of `workloads/`. Every batch has `batch_rows` rows.

    `requests` are measured, `warmup` ones before them are not; the `_quick` numbers are those of `--quick`.
    `window` requests are unanswered at most, over `partitions` x `producers` lanes. Whoever the `sender` is
    of the other engines, the limit is fed natively. `options` are added to `ringfence serve`. A `trial` is no
    race between engines: `trials` has what is done then.
    """

    name: str
    about: str
    table: Literal["lineitem", "two_columns"]
    batch_rows: int
    distinct_batches: int
    window: int
    requests: int
    warmup: int
    rows_expected: int
    requests_quick: int
    warmup_quick: int
    rows_expected_quick: int
    key: tuple[str, ...] = ()
    partitions: int = 1
    producers: int = 1
    sender: Literal["native", "python"] = "native"
    engines: tuple[str, ...] = ("limit", "limit_buffered", "ours", "pyzmq_router", "flight", *PEERS)
    transports: tuple[str, ...] = ("tcp",)
    options: tuple[str, ...] = ()
    trial: Literal["", "recovery", "overload", "partitions", "send_cost", "busy_thread", "c_limit"] = ""
    scale: float = 0.1

    def __post_init__(self) -> None:
        for requests, expected in (
            (self.requests, self.rows_expected),
            (self.requests_quick, self.rows_expected_quick),
        ):
            if requests * self.batch_rows != expected:
                raise ValueError(
                    f"workload {self.name}: {requests} x {self.batch_rows} rows are not {expected} rows"
                )
        lanes = self.partitions * self.producers
        if lanes * DEDUPE_WINDOW < self.window:
            raise ValueError(
                f"workload {self.name}: {lanes} lanes of {DEDUPE_WINDOW} are less than {self.window}"
            )

    def sizes(self, *, quick: bool) -> tuple[int, int, int]:
        """(measured requests, requests before them, rows expected of the measured ones)."""
        if quick:
            return self.requests_quick, self.warmup_quick, self.rows_expected_quick
        return self.requests, self.warmup, self.rows_expected


def load(path: Path) -> Workload:
    """Read one file. Raises ValueError that names the file and the key."""
    values = tomllib.loads(path.read_text())
    known = {field.name for field in fields(Workload)}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise ValueError(f"{path.name}: unknown keys {unknown}; known are {sorted(known)}")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    try:
        return Workload(name=path.stem, **values)
    except TypeError as error:
        raise ValueError(f"{path.name}: {error}") from error


def load_all() -> dict[str, Workload]:
    """All workloads by name."""
    return {path.stem: load(path) for path in sorted(WORKLOADS.glob("*.toml"))}
