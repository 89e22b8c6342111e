"""Ctrl-C and SIGTERM: what was read is a file, what was stored is told, with what a repetition would do."""

from __future__ import annotations

import json
import random
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ringfence.control.cli.exit_codes import Exit
from tests.harness.processes import PROGRAM, NodeProcess, cli, until

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
ROWS = pa.record_batch({"id": pa.array(range(100), pa.int64())})


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


class Publishing:
    """A `publish --json` of an Arrow stream that does not end."""

    def __init__(self, node: NodeProcess, topic: str, started: list[subprocess.Popen[bytes]]) -> None:
        command = [str(PROGRAM), "publish", topic, "-", "--create", "--json", "--address", node.address]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(self.process)
        assert self.process.stdin is not None
        self._writer = pa.ipc.new_stream(self.process.stdin, ROWS.schema)

    def send(self, batches: int) -> None:
        assert self.process.stdin is not None
        for _ in range(batches):
            self._writer.write_batch(ROWS)
        self.process.stdin.flush()

    def send_until_acknowledged(self) -> int:
        """One send after the other, for a send's outcome is looked at with the next; how many there were."""
        assert self.process.stdout is not None
        for sent in range(1, 200):
            self.send(1)
            if select.select([self.process.stdout], [], [], 0.3)[0]:
                assert json.loads(self.process.stdout.readline())["rows"] == 100
                return sent
        raise AssertionError("no send was acknowledged")

    def ended(self) -> dict[str, object]:
        """What it said last. Its stdin stays open until then."""
        assert self.process.stderr is not None
        self.process.wait(60)
        line: dict[str, object] = json.loads(self.process.stderr.read().splitlines()[-1])
        return line


@SIGNALS
def test_an_interrupted_publish_says_what_is_on_disk_and_what_a_repetition_would_do(
    node: NodeProcess, started: list[subprocess.Popen[bytes]], number: signal.Signals
) -> None:
    topic = f"stopped{number}"
    publishing = Publishing(node, topic, started)
    publishing.send_until_acknowledged()
    time.sleep(1)  # it waits for more to send
    publishing.process.send_signal(number)
    said = publishing.ended()
    assert publishing.process.returncode == said["exit"] == Exit.PARTLY
    stored = json.loads(cli("topic", "show", topic, "--json", address=node.address).stdout)
    rows, unknown = said["rows"], said["rows_unknown"]
    assert isinstance(rows, int)
    assert isinstance(unknown, int)
    assert 100 <= rows <= stored["rows"] <= rows + unknown
    message = str(said["message"])
    rest = f"{unknown:,} unanswered rows may be" if unknown else "the other rows are not"
    assert message.startswith(f"interrupted: {rows:,} rows in 1 partition are on disk, {rest};")
    assert "the same command would store these rows twice" in message
    assert "with --scope either all rows are stored or none" in message


def test_an_interrupted_publish_before_its_first_row_is_only_interrupted(
    node: NodeProcess, started: list[subprocess.Popen[bytes]]
) -> None:
    publishing = Publishing(node, "early", started)
    until(lambda: b"libarrow" in Path(f"/proc/{publishing.process.pid}/maps").read_bytes(), what="its start")
    publishing.process.send_signal(signal.SIGTERM)
    said = publishing.ended()
    assert (publishing.process.returncode, said["message"]) == (Exit.INTERRUPTED, "interrupted")


def test_rows_without_an_answer_are_said_to_be_perhaps_on_disk(
    node: NodeProcess, started: list[subprocess.Popen[bytes]]
) -> None:
    publishing = Publishing(node, "frozen", started)
    sent = publishing.send_until_acknowledged()
    node.freeze()
    try:
        publishing.send(5)
        with pytest.raises(subprocess.TimeoutExpired):
            publishing.process.wait(2)
        publishing.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            publishing.process.wait(1)  # it waits for the answers
        publishing.process.send_signal(signal.SIGINT)
        said = publishing.ended()
    finally:
        node.wake()
    assert publishing.process.returncode == Exit.PARTLY
    rows, unknown = said["rows"], said["rows_unknown"]
    assert isinstance(rows, int)
    assert isinstance(unknown, int)
    assert rows >= 100
    assert rows + unknown == (sent + 5) * 100
    assert unknown >= 500
    assert f"{unknown:,} unanswered rows may be; the same command would" in str(said["message"])


@SIGNALS
@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_following_into_a_file_ends_with_the_file(
    node: NodeProcess,
    started: list[subprocess.Popen[bytes]],
    number: signal.Signals,
    name: str,
    tmp_path: Path,
) -> None:
    file, output = tmp_path / "sent.parquet", tmp_path / name
    rows = pa.table({"id": pa.array(random.Random(1).sample(range(1 << 62), 20_000), pa.int64())})
    pq.write_table(rows, file)
    topic = re.sub(r"\W", "-", f"followed-{number}-{name}")
    assert cli("publish", topic, str(file), "--create", address=node.address).returncode == 0
    command = [str(PROGRAM), "read", topic, "--follow", "--output", str(output), "--address", node.address]
    reading = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    started.append(reading)
    part = Path(f"{output}.part")
    until(lambda: part.exists() and part.stat().st_size > 100_000, what="rows in the file")
    time.sleep(1)  # it waits for more rows
    reading.send_signal(number)
    assert reading.wait(60) == Exit.INTERRUPTED
    assert not part.exists()
    read = pq.read_table(output) if name.endswith("parquet") else pa.ipc.open_file(output).read_all()
    assert read.equals(rows)
