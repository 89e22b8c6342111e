"""What `send` costs beyond gathering its rows: the Python producer, one batch at a time.

A bare gather is `pyarrow.RecordBatch.take` of each partition's rows; our own gather, which also writes the
Arrow message and its CRC, stands beside it. One batch is on its way at a time, so that nothing else runs
during a call.
"""

from __future__ import annotations

import itertools
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.dataset import batches_of
from benchmarks.engines.ours import OURS, TOPIC
from benchmarks.trials.base import directory_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workload import Workload

KEPT = 8  # results of earlier calls that are still held, as a window of 8 batches holds them


def _take(batch: pa.RecordBatch, parts: list[pa.Array]) -> list[pa.RecordBatch]:
    return [batch.take(part) for part in parts]


def send_cost(workload: Workload, *, quick: bool) -> dict[str, Any]:
    """Medians of a call of each, in milliseconds, in turn."""
    import ringfence  # noqa: PLC0415 - the installed package
    from ringfence.native.group import rows_by_partition  # noqa: PLC0415
    from ringfence.native.slots import slots  # noqa: PLC0415

    requests, warmup, _ = workload.sizes(quick=quick)
    batches = batches_of(workload)
    taken: dict[str, list[float]] = {"pyarrow": [], "ours": [], "send": []}
    kept: dict[str, list[Any]] = {name: [] for name in taken}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        result = call()
        taken[name].append(time.perf_counter() - begin)
        kept[name] = [*kept[name][1 - KEPT :], result]
        return result

    with (
        OURS.serve(workload, "tcp", directory_of(workload)) as node,
        ringfence.connect(node.address) as client,
        client.producer(TOPIC) as producer,
    ):
        encoder = producer._encoder  # noqa: SLF001 - the layout that `send` itself groups by
        gather = encoder._encoder.gather  # noqa: SLF001
        for batch in itertools.islice(itertools.cycle(batches), warmup + requests):
            order, bounds = rows_by_partition(
                slots(batch, list(workload.key)), encoder.layout.index_of_slot, workload.partitions
            )
            parts = [pa.array(order[at:end]) for at, end in itertools.pairwise(bounds.tolist())]
            timed("pyarrow", partial(_take, batch, parts))
            timed("ours", partial(gather, batch, order, bounds))
            timed("send", partial(producer.send, batch)).result(60)
    medians = {name: statistics.median(times[warmup:]) * 1000 for name, times in taken.items()}
    return {
        "rows": workload.batch_rows,
        "partitions": workload.partitions,
        "gather_pyarrow_ms": round(medians["pyarrow"], 3),
        "gather_ours_with_crc_ms": round(medians["ours"], 3),
        "send_ms": round(medians["send"], 3),
        "send_to_pyarrow": round(medians["send"] / medians["pyarrow"], 3),
        "send_to_ours": round(medians["send"] / medians["ours"], 3),
    }
