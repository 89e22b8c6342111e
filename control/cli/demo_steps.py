"""Steps of the demo without Spark."""

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
# Pending sends. The producer bounds their bytes; this bounds the length of the list.
SENDS_MAX = 64


@dataclass(frozen=True, slots=True)
class DemoStep:
    """Result of one step over all rows.

    `digest` is the content hash, None if the step does not compute it; `size` is in Arrow bytes.
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
    """Rows, bytes and a hash that is independent of the order of rows.

    The hash is the sum modulo 2**64 of every row's `xxhash64` over all columns, as Spark computes it, so that
    hashes from Spark and Python are comparable.
    """

    def __init__(self) -> None:
        self.rows = self.size = self.digest = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.size += batch.nbytes
        hashes = hash64(batch, batch.schema.names)
        self.digest = (self.digest + int(hashes.view(np.uint64).sum(dtype=np.uint64))) % (1 << 64)


def generate(scale: float, folder: Path) -> Path:
    """Generate lineitem.parquet of a TPC-H scale. ConfigError if the generator is missing."""
    return generate_tables(scale, folder, ["lineitem"])["lineitem"][0]


def generate_tables(
    scale: float, folder: Path, tables: Sequence[str], parts: int = 1
) -> dict[str, list[Path]]:
    """Generate Parquet files of TPC-H tables, each in `parts` of about equal length. ConfigError as above."""
    installed = Path(sys.executable).parent / "tpchgen-cli"
    program = str(installed) if installed.exists() else shutil.which("tpchgen-cli")
    if program is None:
        raise ConfigError(
            "tpchgen-cli is missing: run `pip install tpchgen-cli`, or pass --input lineitem.parquet",
            key="input",
        )
    command = [program, "parquet", "-s", str(scale), "--tables", ",".join(tables)]
    command += ["--output-dir", str(folder), *(["--parts", str(parts)] if parts > 1 else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the path was resolved above
    files = {table: sorted(folder.rglob(f"{table}*.parquet")) for table in tables}
    if done.returncode != 0 or not all(files.values()):
        raise ConfigError(f"tpchgen-cli failed: {done.stderr.strip()[-300:]}", key="input")
    return files


def create_topic(client: Client, topic: str, source: Path, partitions: int) -> None:
    with Source(str(source)) as rows:
        client.create_topic(topic, schema=rows.schema, key=[KEY], partitions=partitions)


def read_file(source: Path) -> DemoStep:
    """Hash the rows of the file: the reference for all other steps."""
    content, began = Content(), time.perf_counter()
    with Source(str(source)) as rows:
        for batch in rows:
            content.add(batch)
    return _step("Parquet file", content, began)


def write(client: Client, topic: str, source: Path) -> DemoStep:
    """Send the file with a Python producer and wait until all rows are on disk."""
    rows = size = 0
    pending: deque[Future[Any]] = deque()
    began = time.perf_counter()
    with Source(str(source)) as batches, client.producer(topic) as producer:
        for batch in batches:
            pending.append(producer.send(batch))
            size += batch.nbytes
            while len(pending) >= SENDS_MAX:
                rows += sum(part.rows for part in pending.popleft().result())
        while pending:
            rows += sum(part.rows for part in pending.popleft().result())
    return DemoStep("Python wrote, on disk", rows, size, None, time.perf_counter() - began)


def read(client: Client, topic: str) -> DemoStep:
    content, began = Content(), time.perf_counter()
    for batch in client.read(topic):
        content.add(batch)
    return _step("Python read", content, began)


def _step(name: str, content: Content, began: float) -> DemoStep:
    return DemoStep(name, content.rows, content.size, content.digest, time.perf_counter() - began)
