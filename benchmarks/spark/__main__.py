"""`python -m benchmarks.spark`: turns of all ways, interleaved; medians and ratios; `--json FILE`."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks import dataset, machine
from benchmarks.paths import work_directory
from benchmarks.peers.kafka_server import broker
from benchmarks.spark import kafka, latency
from benchmarks.spark.jobs import OTHERS, WRITES, Bench, read
from ringfence.control.cli.demo_spark import application
from ringfence.control.cli.embedded import embedded_node

# name -> (way, other way, least ratio of their rates; 0 = it is only told)
WANTED = {
    "sink against mapInArrow into nothing": ("sink", "nothing", 1 / 1.3),
    "exactly once against at least once": ("staged", "at_least_once", 1 / 1.1),
    "read against Parquet through Python": ("read", "read_parquet_by_python", 0.8),
    "repartitioned against not": ("repartitioned", "staged", 0.0),
    "sink against Parquet by Spark": ("sink", "to_parquet", 0.0),
    "sink against Parquet behind mapInArrow": ("sink", "to_parquet_by_python", 0.0),
    "sink against Kafka by Spark's connector": ("sink_beside_kafka", "to_kafka", 0.0),
}
AGE_P99_S_MAX = 2.0


def turns(bench: Bench, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, a round after the other; a first round that warms everything up is dropped."""
    seconds: dict[str, list[float]] = {}
    for turn in range(rounds + 1):
        for name, other in OTHERS.items():
            _timed(seconds, name, turn, lambda other=other: other(bench))
        for name, write in WRITES.items():
            topic = bench.topic()
            _timed(seconds, name, turn, lambda write=write, topic=topic: write(bench, topic))
        _timed(seconds, "read", turn, lambda topic=bench.made[-1]: read(bench, topic))
    return seconds


def beside_kafka(bench: Bench, rounds: int) -> dict[str, list[float]]:
    """Kafka and ours in turn, behind all else: what a broker has not on disk yet would slow the others."""
    seconds: dict[str, list[float]] = {}
    with broker(bench.folder, kafka.BROKER, kafka.HEAP_MIB) as one:
        for turn in range(rounds + 1):
            made, topic = kafka.topic(one.address, turn), bench.topic()
            _timed(seconds, "to_kafka", turn, lambda made=made: kafka.write(bench, one.address, made))
            _timed(seconds, "sink_beside_kafka", turn, lambda topic=topic: WRITES["sink"](bench, topic))
    return seconds


def _timed(seconds: dict[str, list[float]], name: str, turn: int, way: Any) -> None:
    began = time.perf_counter()
    way()
    if turn:
        seconds.setdefault(name, []).append(round(time.perf_counter() - began, 3))


def ratios(seconds: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Of medians: rate of the first way by that of the second."""
    median = {name: statistics.median(all_of) for name, all_of in seconds.items()}
    found = {}
    for name, (one, other, least) in WANTED.items():
        if other not in median:
            continue
        ratio = median[other] / median[one]
        found[name] = {"ratio": round(ratio, 3), "least": round(least, 3), "held": ratio >= least}
    return found


def show(result: dict[str, Any]) -> None:
    ways = Table("way", "median s", "rows/s", "all turns")
    for name, all_of in result["seconds"].items():
        median = statistics.median(all_of)
        ways.add_row(name, f"{median:.2f}", f"{result['rows'] / median:,.0f}", str(all_of))
    figures = Table("figure", "seen", "wanted", "held")
    for name, one in result["ratios"].items():
        wanted = f">= {one['least']}" if one["least"] else ""
        figures.add_row(name, f"{one['ratio']:.3f}", wanted, str(one["held"]))
    for name, value in result["stream"].items():
        wanted = f"<= {AGE_P99_S_MAX}" if name == "age_p99_s" else ""
        figures.add_row(f"stream: {name}", f"{value:,}", wanted, "")
    console = Console(width=160)
    for table in (ways, figures):
        console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.2, help="of TPC-H lineitem; 0.2 is 1,199,969 rows")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each way behind the first")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the stream at half of its rate")
    parser.add_argument("--stream-rows", type=int, default=1_000_000, help="that find the stream's rate")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record")
    arguments = parser.parse_args()
    dataset.lineitem(arguments.scale)
    source = work_directory() / f"lineitem-{arguments.scale}" / "lineitem.parquet"
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder:
        state = machine.describe()
        jars = kafka.jars()
        options = {} if jars is None else {"spark.jars": jars}
        node = embedded_node(data=Path(folder) / "node")
        with node as address, application("local[2]", options) as spark:
            spark.sparkContext.setLogLevel("ERROR")
            rows = pq.ParquetFile(source).metadata.num_rows
            bench = Bench(spark, address, source, rows, Path(folder))
            seconds = turns(bench, arguments.rounds)
            stream = latency.measure(bench, arguments.stream_rows, arguments.seconds)
            if jars is not None:
                seconds |= beside_kafka(bench, arguments.rounds)
        result = {
            "machine": state,
            "load_average_after": machine.describe()["load_average"],
            "rows": rows,
            "version": version("ringfence"),
            "scale": arguments.scale,
            "seconds": seconds,
            "kafka": None if jars is None else kafka.about(),
            "ratios": ratios(seconds),
            "stream": stream,
        }
    show(result)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    held = all(one["held"] for one in result["ratios"].values()) and stream["age_p99_s"] <= AGE_P99_S_MAX
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
