"""`ringfence serve` and `fsck`: starting, stopping, refusing."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from prometheus_client.parser import text_string_to_metric_families

import ringfence
from ringfence.control.cli.exit_codes import Exit
from tests.documents import ROOT
from tests.harness.exposition import parsed
from tests.harness.processes import (
    PROGRAM,
    SCHEMA,
    NodeProcess,
    batch,
    check_identity,
    cli,
    free_port,
    read_ids,
)


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_node_says_where_it_serves_and_stops_in_order(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with NodeProcess(tmp_path / "data") as node:
            assert node.ready["event"] == "serving"
            assert node.ready["address"] == node.address
            assert node.process is not None
            node.process.send_signal(number)
            assert node.process.wait(30) == 0
        last = [json.loads(line) for line in node.log.read_text().splitlines()][-1]
        assert last["event"] == "stopped"


def test_a_file_of_settings_is_read_and_libzmq_receives_as_well(tmp_path: Path) -> None:
    """`--config`; flags win over it. With libzmq, the reference of what receives, every row comes back."""
    config = tmp_path / "node.toml"
    config.write_text('transport = "libzmq"\nlisten = ["tcp://127.0.0.1:1"]\nbudget_bytes = "64MiB"\n')
    node = NodeProcess(tmp_path / "data", options=("--config", str(config)))
    with node, ringfence.connect(node.address, timeout_s=30) as client:
        assert node.ready["address"] == node.address
        threads = [path.read_text().strip() for path in Path(f"/proc/{node.pid}/task").glob("*/comm")]
        assert threads.count("rf-engine") > 1, "libzmq has threads of its own, named as who began them"
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=4)
        with client.producer("t") as producer:
            for start in range(0, 20_000, 100):
                producer.send(batch(start, 100))
            large = batch(20_000, 40_000, text="x" * 200)  # above what libzmq copies into its own message
            producer.send(large).result(30)
        check_identity(read_ids(client, "t"), {0: range(60_000)}, {0: 60_000})
    config.write_text('transports = "libzmq"\n')
    done = cli("serve", "--data", str(tmp_path / "data"), "--config", str(config))
    assert done.returncode == Exit.USAGE, done.stderr
    assert "transports" in done.stderr


def test_without_json_one_line_names_the_address(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    command = [str(PROGRAM), "serve", "--data", str(tmp_path / "data"), "--listen", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
        assert process.wait(30) == 0
    assert address in line
    assert str(tmp_path / "data") in line


def test_a_second_process_is_refused_and_told_the_pid(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        for command in ("serve", "fsck"):
            done = cli(command, "--data", str(tmp_path / "data"))
            assert done.returncode == Exit.STORAGE
            assert f"process {node.pid} uses" in done.stderr


def test_a_path_that_no_system_takes_is_no_defect(tmp_path: Path) -> None:
    done = cli("serve", "--data", str(tmp_path / ("x" * 300)))
    assert done.returncode == Exit.STORAGE, done.stderr
    assert "File name too long; choose another --data" in done.stderr
    odd = tmp_path / "odd.toml"
    odd.write_text('data_dir = "a\\u0000b"\n')
    done = cli("serve", "--config", str(odd))
    assert done.returncode == Exit.STORAGE, done.stderr
    assert "null byte" in done.stderr


def test_a_port_that_is_taken_ends_the_start_and_unlocks_the_directory(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "a") as node:
        done = cli("serve", "--data", str(tmp_path / "b"), "--listen", node.address)
        assert done.returncode == Exit.USAGE, done.stderr
        assert node.address in done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("ringfence:")]) == 1
    with NodeProcess(tmp_path / "b"):
        pass


def test_identity_and_topics_outlive_a_kill(tmp_path: Path) -> None:
    create = ("topic", "create", "t", "--column", "id:int64!", "--key", "id", "--partitions", "2")
    with NodeProcess(tmp_path / "data") as node:
        first = node.ready
        assert cli(*create, address=node.address).returncode == 0
        node.kill()
        node.restart()
        assert [node.ready[key] for key in ("cluster", "history", "store")] == [
            first[key] for key in ("cluster", "history", "store")
        ]
        assert node.ready["index"] > first["index"]
        shown = cli("topic", "show", "t", "--json", address=node.address)
        assert len(json.loads(shown.stdout)["partitions"]) == 2


def test_a_newer_format_is_refused_byte_for_byte(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data", options=("--segment-bytes", "4MiB")):  # files that are read whole
        pass
    identity = tmp_path / "data" / "store.toml"
    identity.write_text(identity.read_text().replace("format = 2", "format = 3"))
    before = tree(tmp_path / "data")
    for command in ("serve", "fsck"):
        done = cli(command, "--data", str(tmp_path / "data"))
        assert done.returncode == Exit.STORAGE
        assert "format 3" in done.stderr
    assert tree(tmp_path / "data") == before


def test_a_damaged_journal_is_refused_and_named(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        cli("topic", "create", "t", "--column", "id:int64", address=node.address)
    journal = tmp_path / "data" / "metadata" / "journal"
    data = bytearray(journal.read_bytes())
    data[120] ^= 1
    journal.write_bytes(data)
    done = cli("serve", "--data", str(tmp_path / "data"))
    assert done.returncode == Exit.DAMAGE
    assert "journal" in done.stderr
    report = cli("fsck", "--data", str(tmp_path / "data"), "--json")
    assert report.returncode == Exit.DAMAGE
    assert json.loads(report.stdout.splitlines()[0])["damage"]["file"] == str(journal)
    assert journal.read_bytes() == data


def test_fsck_finds_a_sound_store_sound(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": range(1000)}), rows)
    with NodeProcess(tmp_path / "data") as node:
        done = cli("publish", "t", str(rows), "--create", address=node.address)
        assert done.returncode == 0, done.stderr
    before = tree(tmp_path / "data")
    plain = cli("fsck", "--data", str(tmp_path / "data"))
    assert plain.returncode == 0, plain.stdout + plain.stderr
    assert "sound" in plain.stdout
    report = json.loads(cli("fsck", "--data", str(tmp_path / "data"), "--json").stdout.splitlines()[-1])
    assert report["sound"] is True
    assert report["metadata"]["topics"] == 1
    assert report["records"] > 0
    after = tree(tmp_path / "data")
    assert {name: data for name, data in after.items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }


def test_metadata_older_than_the_rows_is_refused_and_fsck_says_the_same(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data) as node, ringfence.connect(node.address) as client:
        client.create_topic("t", schema=pa.schema([("id", pa.int64())]), partitions=1)
    early = tree(data)
    with (
        NodeProcess(data) as node,  # opens it at a newer epoch
        ringfence.connect(node.address) as client,
        client.producer("t") as producer,
    ):
        producer.send(pa.table({"id": range(10)}))
    (data / "metadata" / "journal").write_bytes(early["metadata/journal"])
    refused = cli("serve", "--data", str(data), "--listen", f"tcp://127.0.0.1:{free_port()}")
    assert refused.returncode == Exit.STORAGE, refused.stderr
    assert "older than the rows" in refused.stderr
    found = cli("fsck", "--data", str(data))
    assert found.returncode == Exit.DAMAGE
    assert "older than the rows" in " ".join(found.stdout.split())


def test_health_and_metrics_are_served_beside(tmp_path: Path) -> None:
    port = free_port()
    with NodeProcess(tmp_path / "data", options=("--http", f"127.0.0.1:{port}")) as node:
        assert node.ready["http"] == f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=5) as answer:
            assert json.load(answer) == {"state": "serving", "reasons": []}
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            metrics = answer.read().decode()
    assert "ringfence_up 1.0" in metrics
    families = parsed(metrics)
    assert {family.kind for family in families.values()} == {"counter", "gauge", "histogram"}
    assert families["ringfence_requests"].kind == "counter"
    assert families["ringfence_store_partitions"].kind == "gauge"
    known = {family.name for family in text_string_to_metric_families(metrics)}
    assert known == families.keys(), "Prometheus' own parser for Python reads the same families"
    guide = (ROOT / "docs" / "operations.md").read_text()
    shown = [name for name, family in families.items() if family.samples]
    counted = [name for name in shown if not name.startswith("ringfence_refused_")]
    missing = [
        name
        for name in counted
        if f"`{name}`" not in guide and f"`{name.removeprefix('ringfence_')}`" not in guide
    ]
    assert counted and not missing, f"docs/operations.md does not say what these count: {missing}"


def test_an_ipc_address_serves(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/socket"
    command = [str(PROGRAM), "serve", "--json", "--data", str(tmp_path / "data"), "--listen", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["addresses"] == [address]
        assert cli("status", address=address).returncode == 0
        process.terminate()
        assert process.wait(30) == 0
