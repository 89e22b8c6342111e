"""The steps of the demo that need no Spark."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ringfence.control.cli.tables import Source
from ringfence.native.errors import ConfigError
from ringfence.native.slots import hash64

if TYPE_CHECKING:
    from ringfence import Client

KEY = "l_orderkey"
# Sends under way: the producer bounds their bytes, this bounds our list.
SENDS_MAX = 64


@dataclass(frozen=True, slots=True)
class Step:
    """One way that all rows went.

    `digest` is the content hash, None where a step sees none; `size` is Arrow bytes.
    """

    name: str
    rows: int
    size: int
    digest: int | None
    seconds: float

    def values(self) -> dict[str, Any]:
        hashed = None if self.digest is None else f"{self.digest:016x}"
        return asdict(self) | {"digest": hashed}


class Content:
    """Rows, bytes and a hash that the order of rows does not change.

    The hash is the sum modulo 2**64 of every row's `xxhash64` over all columns as Spark computes it, so that
    Spark can say the same of its own rows.
    """

    def __init__(self) -> None:
        self.rows = self.size = self.digest = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.size += batch.nbytes
        hashes = hash64(batch, batch.schema.names)
        self.digest = (self.digest + int(hashes.view(np.uint64).sum(dtype=np.uint64))) % (1 << 64)


def generate(scale: float, folder: Path) -> Path:
    """lineitem.parquet of a TPC-H scale. ConfigError when the generator is missing."""
    return generate_tables(scale, folder, ["lineitem"])["lineitem"][0]


def generate_tables(
    scale: float, folder: Path, tables: Sequence[str], parts: int = 1
) -> dict[str, list[Path]]:
    """Parquet files of TPC-H tables, each in `parts` of about equal length. ConfigError as above."""
    beside = Path(sys.executable).parent / "tpchgen-cli"
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        raise ConfigError(
            "tpchgen-cli is missing: pip install tpchgen-cli, or pass --input lineitem.parquet", key="input"
        )
    command = [program, "parquet", "-s", str(scale), "--tables", ",".join(tables)]
    command += ["--output-dir", str(folder), *(["--parts", str(parts)] if parts > 1 else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a program we found
    made = {table: sorted(folder.rglob(f"{table}*.parquet")) for table in tables}
    if done.returncode != 0 or not all(made.values()):
        raise ConfigError(f"tpchgen-cli failed: {done.stderr.strip()[-300:]}", key="input")
    return made


def create_topic(client: Client, topic: str, source: Path, partitions: int) -> None:
    with Source(str(source)) as rows:
        client.create_topic(topic, schema=rows.schema, key=[KEY], partitions=partitions)


def read_file(source: Path) -> Step:
    """What the file itself holds: the truth that all others are compared with."""
    content, began = Content(), time.perf_counter()
    with Source(str(source)) as rows:
        for batch in rows:
            content.add(batch)
    return _step("Parquet file", content, began)


def write(client: Client, topic: str, source: Path) -> Step:
    """Send the file by the Python producer; ends when all rows are on disk."""
    rows = size = 0
    waiting: deque[Future[Any]] = deque()
    began = time.perf_counter()
    with Source(str(source)) as batches, client.producer(topic) as producer:
        for batch in batches:
            waiting.append(producer.send(batch))
            size += batch.nbytes
            while len(waiting) >= SENDS_MAX:
                rows += sum(part.rows for part in waiting.popleft().result())
        while waiting:
            rows += sum(part.rows for part in waiting.popleft().result())
    return Step("Python wrote, on disk", rows, size, None, time.perf_counter() - began)


def read(client: Client, topic: str) -> Step:
    content, began = Content(), time.perf_counter()
    for batch in client.read(topic):
        content.add(batch)
    return _step("Python read", content, began)


def _step(name: str, content: Content, began: float) -> Step:
    return Step(name, content.rows, content.size, content.digest, time.perf_counter() - began)
