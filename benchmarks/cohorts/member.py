"""`python -m benchmarks.cohorts.member READER ADDRESS TOPIC GROUP FILE`: reads until SIGTERM, and leaves."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import closing
from pathlib import Path

from benchmarks.cohorts.messages import parts, rows_of
from benchmarks.cohorts.readers import READERS
from benchmarks.cohorts.receipts import ReceiptFile


def main() -> None:
    reader, address, topic, group, path = sys.argv[1:]
    receipts = ReceiptFile(Path(path))
    list(
        parts(rows_of(0, 0, 0, 1))
    )  # pyarrow imports pandas with the first column, which takes half a second
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    with closing(READERS[reader](address, topic, group)) as batches:  # type: ignore[type-var] # a generator
        for batch in batches:
            if batch is not None:
                now_ns = time.monotonic_ns()
                for stream, serial, sent_ns, rows in parts(batch):
                    receipts.add(stream, serial, sent_ns, now_ns, rows)
            if ended:
                break


if __name__ == "__main__":
    main()
