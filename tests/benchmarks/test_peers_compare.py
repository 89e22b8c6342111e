"""The table of clusters: a column a system, a failure is told, a peer that is missing is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.peers import __main__ as peers_command
from benchmarks.peers import compare, installed
from benchmarks.peers.compare import System
from benchmarks.peers.kafka_server import Broker

GAP = {"p50": 15.2, "p99": 21.0, "worst": 22.5}
MOVED = {
    "gap_ms": GAP,
    "without_a_move_ms": {"p50": 5.0, "worst": 9.7},
    "move_s": {"median": 0.5, "worst": 1},
}


def moved(count: int) -> dict[str, Any]:
    return {"moves": count, "moved": MOVED, "handed_over": MOVED}


def killed(count: int) -> dict[str, Any]:
    return {"kills": count, "resumed_s": {"median": 2.0, "worst": 2.2}, "all_s": [2.0, 2.2]}


def never(count: int) -> dict[str, Any]:
    raise RuntimeError(f"no leader after {count} s")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = System("ringfence", "fdatasync on a majority", {"moves": moved, "failovers": killed})
    other = System("Kafka, default", "memory of two", {"moves": moved, "failovers": never})
    monkeypatch.setattr(compare, "systems", lambda: ([ours, other], []))
    monkeypatch.setattr(installed, "versions", lambda names: dict.fromkeys(names, "4.3.1"))


@pytest.mark.usefixtures("two")
def test_the_table_has_a_column_a_system_and_names_promises_and_failures(tmp_path: Path) -> None:
    record, table = tmp_path / "record.json", tmp_path / "table.md"
    words = ["cluster", "--moves", "3", "--kills", "2", "--json", str(record), "--markdown", str(table)]
    done = CliRunner().invoke(peers_command.main, words)
    assert done.exit_code == 1  # a system failed
    lines = table.read_text().splitlines()
    assert lines[0] == "| figure | ringfence | Kafka, default |"
    gap = next(line for line in lines if "one copy moves" in line)
    assert gap.endswith("| p50 15.2, p99 21, worst 22.5 | p50 15.2, p99 21, worst 22.5 |")
    killed_line = next(line for line in lines if line.startswith("| kill -9"))
    assert killed_line.endswith("| median 2, worst 2.2 | failed |")
    assert next(line for line in lines if "leads the metadata" in line).endswith("| - | failed |")
    assert "- Kafka, default: memory of two" in lines
    told = json.loads(record.read_text())
    assert told["counts"] == {"moves": 3, "failovers": 2}
    assert told["systems"]["Kafka, default"]["failovers"] == {"failure": "no leader after 2 s"}
    assert told["systems"]["ringfence"]["moves"]["moved"]["gap_ms"] == GAP


@pytest.mark.usefixtures("two")
def test_only_the_parts_that_are_asked_for_are_measured() -> None:
    result = compare.run(["moves"], {"moves": 1, "failovers": 1}, lambda _: None)
    assert not compare.failed(result)
    assert "kill -9" not in compare.markdown(result)
    refused = CliRunner().invoke(peers_command.main, ["cluster", "--parts", "moves,naps"])
    assert refused.exit_code == 2
    assert "unknown parts ['naps']" in refused.output


def test_a_missing_kafka_is_left_out_of_the_table_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHMARKS_PEERS", str(tmp_path))
    monkeypatch.setenv("BENCHMARKS_DIR", str(tmp_path))
    monkeypatch.setattr("benchmarks.cluster.moves.measure", moved)
    told: list[str] = []
    result = compare.run(["moves"], {"moves": 1}, told.append)
    assert list(result["systems"]) == ["ringfence"]
    assert told[0].startswith("missing: kafka: ")
    table = compare.markdown(result)
    assert "- missing: kafka: " in table
    assert table.endswith("`python -m benchmarks.peers install kafka` installs it; left out")


def test_a_broker_names_all_voters_and_listens_on_the_loopback_only(tmp_path: Path) -> None:
    broker = Broker(2, 9002, {1: 7001, 2: 7002, 3: 7003}, tmp_path, 512, {"broker.session.timeout.ms": 2000})
    values = dict(line.split("=", 1) for line in broker.text().splitlines())
    assert values["listeners"] == "PLAINTEXT://127.0.0.1:9002,CONTROLLER://127.0.0.1:7002"
    assert values["controller.quorum.voters"] == "1@127.0.0.1:7001,2@127.0.0.1:7002,3@127.0.0.1:7003"
    assert values["broker.session.timeout.ms"] == "2000"
    assert values["node.id"] == "2"
