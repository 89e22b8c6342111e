"""Writers of the layout demo besides the plain one: with a name, in transactions, and files for Spark."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from ringfence.control.cli.cluster_load import WAIT_S, ProofError, Writer, WriterStats

if TYPE_CHECKING:
    import pyarrow as pa

    from ringfence import Client

# Sends of one transaction: at the demo's rate it is open for about a second, so changes meet open ones.
TRANSACTION_SENDS: Final = 6
# Seconds between files for Spark: longer than a micro-batch, so that few of them wait.
FILE_S: Final = 2.0


class NamedWriter(Writer):
    """A writer with a producer name. At each `hand_over` a successor opens the name and goes on."""

    def __init__(
        self, address: str, topic: str, number: int, source: pa.RecordBatch, bytes_per_s: float
    ) -> None:
        super().__init__(address, topic, number, source, bytes_per_s)
        self.successors = 0
        self._hand_over = threading.Event()

    def hand_over(self) -> None:
        self._hand_over.set()

    def _write(self, client: Client) -> None:
        name = f"writer-{self.number}"
        producer = client.producer(self._topic, name=name, timeout_s=WAIT_S)
        while not self._stop.is_set():
            self._send(producer)
            if self._hand_over.is_set():
                self._hand_over.clear()
                self._settle(0)
                # Not closed before: the successor fences it.
                successor = client.producer(self._topic, name=name, timeout_s=WAIT_S)
                producer.close()
                producer = successor
                point = producer.resume_from
                # A partition without rows of the last sends has an earlier point, and the least one counts.
                if point is None or not 0 < point.send <= self.sends:
                    raise ProofError(f"{name} stored {self.sends} sends, its resume point is {point}")
                self.successors += 1
        self._settle(0)
        producer.close()


class TransactionWriter(Writer):
    """A writer that commits a few sends together; an answer is that of a commit."""

    def _write(self, client: Client) -> None:
        while not self._stop.is_set():
            rows = size = 0
            with client.transaction(self._topic, scope=f"writer-{self.number}", timeout_s=WAIT_S) as open_one:
                for _ in range(TRANSACTION_SENDS):
                    batch = self._next()
                    self.sends += 1
                    open_one.send(batch)
                    self.sent += batch.num_rows
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    self._pace(batch.nbytes)
                began = time.perf_counter()
                open_one.commit()
            self._record(rows, size, time.perf_counter() - began)


class FileFeed(Writer):
    """Writes files of rows into a folder, which a Spark stream reads. Answers are files, not stored rows."""

    def __init__(self, folder: Path, number: int, source: pa.RecordBatch) -> None:
        super().__init__("", "", number, source, 1.0)
        self._folder = folder
        folder.mkdir(parents=True)
        self.write_file()  # before the stream begins: it takes the schema of this one

    def write_file(self) -> None:
        batch = self._next()
        name = f"part-{self.sends:06}.parquet"
        with pq.ParquetWriter(self._folder / f".{name}", batch.schema) as file:
            file.write_batch(batch)
        (self._folder / f".{name}").rename(self._folder / name)  # a stream reads no file that is half written
        self.sends += 1
        self.sent += batch.num_rows

    def take_stats(self) -> WriterStats:
        return WriterStats(0, 0, 0.0)

    def _run(self) -> None:
        try:
            while not self._stop.wait(FILE_S):
                self.write_file()
        except Exception as error:  # noqa: BLE001 - the story reports it
            self._count_error(error)
            self.failure = self.error
