"""Damaged and foreign data: only what is damaged is held back, everything else serves, nothing is deleted."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.store.journal import JOURNAL_FORMAT
from ringfence.native import wire
from ringfence.native._node import crc32c
from tests.harness import segment_files
from tests.harness.disk import Disk
from tests.harness.processes import SCHEMA, NodeProcess, batch, cli


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[NodeProcess, dict[int, list[int]]]:
    """A stopped node with 4 partitions of 40 batches, and the ids in each partition."""
    # Tests here read whole files, and keep them: little ones.
    node = NodeProcess(tmp_path / "data", options=("--segment-bytes", "4MiB"))
    with node, ringfence.connect(node.address) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=4)
        with client.producer("t") as producer:
            for start in range(0, 4_000, 100):
                producer.send(batch(start, 100)).result(30)
        ids = {
            entry.partition: [
                row for part in client.read("t", partition=entry.partition) for row in part["id"].to_pylist()
            ]
            for entry in client.topic("t").partitions
        }
    return node, ids


def read(client: ringfence.Client, partition: int) -> list[int]:
    return [row for part in client.read("t", partition=partition) for row in part["id"].to_pylist()]


@pytest.mark.parametrize("where", ["header", "body"])
def test_a_flipped_byte_quarantines_one_partition_and_fsck_names_the_record(
    stopped: tuple[NodeProcess, dict[int, list[int]]], where: str
) -> None:
    node, ids = stopped
    victim = sorted(ids)[1]
    found = segment_files.rows_of(node.data, victim)[5]
    segment_files.flip(
        found.path, found.position + (60 if where == "header" else wire.RECORD_HEADER_BYTES + 200)
    )

    report = cli("fsck", "--data", str(node.data), "--json")
    assert report.returncode == 6, report.stdout + report.stderr
    named = [json.loads(line)["damage"] for line in report.stdout.splitlines() if '"damage"' in line]
    assert [(one["partition"], one["position"]) for one in named] == [(victim, found.position)], named
    assert Path(named[0]["file"]).name == found.path.name

    before = segment_files.content_of(node.data)
    with node, ringfence.connect(node.address) as client:
        for partition, expected in ids.items():
            if partition != victim:
                assert read(client, partition) == expected
        with pytest.raises(ringfence.QuarantinedError):
            read(client, victim)
        outcomes = []
        with client.producer("t", timeout_s=10) as producer:
            for row in range(10_000, 10_032):
                future = producer.send(batch(row, 1))
                outcomes.append(future.exception(20))
            producer_errors = {type(error) for error in outcomes if error is not None}
            assert producer_errors == {ringfence.QuarantinedError}
            assert None in outcomes, "the other partitions take rows"
            with pytest.raises(ringfence.RingfenceError):
                producer.flush()
        status = cli("status", "--json", address=node.address)
        assert status.returncode == 9
        assert str(victim) in status.stdout
        [listed] = map(json.loads, cli("topic", "list", "--json", address=node.address).stdout.splitlines())
        assert listed["quarantined"] == 1
        client.create_topic("sound", schema=SCHEMA)
        table = [line.split() for line in cli("topic", "list", address=node.address).stdout.splitlines()]
        assert table[0][-1] == "quarantined"
        assert {words[0]: words[-1] for words in table[1:]} == {"sound": "-", "t": "1"}
        with pytest.raises(ringfence.QuarantinedError, match=str(victim)):
            client.truncate("t")
    after = segment_files.content_of(node.data)
    assert {name for name in before if not name.endswith(".free")} <= after.keys(), "nothing is deleted"


def test_a_named_producer_goes_on_beside_a_quarantined_partition_and_none_is_opened(
    stopped: tuple[NodeProcess, dict[int, list[int]]],
) -> None:
    """It once waited for a new epoch that no partition could give it; an open waited for half a minute."""
    node, ids = stopped
    victim = sorted(ids)[1]
    found = segment_files.rows_of(node.data, victim)[5]
    node.start()
    with ringfence.connect(node.address) as client, client.producer("t", name="loader", timeout_s=20) as held:
        held.send(batch(10_000, 64)).result(20)
        node.kill()
        segment_files.flip(found.path, found.position + wire.RECORD_HEADER_BYTES + 200)
        node.start()
        outcomes = [held.send(batch(row, 1)).exception(20) for row in range(20_000, 20_032)]
        told = [type(error) for error in outcomes if error is not None]
        assert None in outcomes, "the other partitions take rows"
        assert told[0] is ringfence.QuarantinedError
        assert set(told[1:]) == {ringfence.ClosedError}, "nothing behind a hole is stored"
        began = time.monotonic()
        with pytest.raises(ringfence.QuarantinedError, match=f"partition {victim}: it is quarantined"):
            client.producer("t", name="loader")
        assert time.monotonic() - began < 10, "nobody asks again for what only a repair can give"
        with pytest.raises(ringfence.QuarantinedError):
            held.flush()
    node.kill()


def test_a_record_that_nobody_can_decode_is_named_with_the_offset_behind_it(
    stopped: tuple[NodeProcess, dict[int, list[int]]],
) -> None:
    """Nodes before the strict check of metadata stored such bodies; their logs are sound otherwise."""
    node, ids = stopped
    victim = sorted(ids)[2]
    found = segment_files.rows_of(node.data, victim)[30]
    begin = found.position + wire.RECORD_HEADER_BYTES
    body = bytearray(found.path.read_bytes()[begin : begin + found.header.body_bytes])
    body[8:12] = bytes(4)  # the offset to the first table of the metadata
    segment_files.replace_body(node.data, found, bytes(body))
    report = cli("fsck", "--data", str(node.data), "--json")
    assert report.returncode == 0, report.stdout + report.stderr
    offset, rows = found.header.first_offset, found.header.rows
    with node, ringfence.connect(node.address) as client:
        reader = client.read("t", partition=victim)
        seen: list[int] = []
        with pytest.raises(ringfence.ProtocolError, match=f"rows {offset} to {offset + rows - 1}") as told:
            seen += [row for part in reader for row in part["id"].to_pylist()]
        error = told.value
        assert (error.partition, error.offset, error.rows) == (victim, offset, rows)
        assert f"partition={victim}, start={error.next_offset};" in str(error)
        behind = client.read("t", partition=victim, start=error.next_offset)
        assert [row for part in behind for row in part["id"].to_pylist()] == ids[victim][offset + rows :]


def test_a_newest_file_that_is_gone_ends_the_start_until_it_is_back_or_given_up(
    stopped: tuple[NodeProcess, dict[int, list[int]]],
) -> None:
    node, ids = stopped
    newest = segment_files.segments(node.data)[-1]
    aside = node.data.parent / newest.name
    newest.rename(aside)
    before = segment_files.content_of(node.data)
    report = cli("fsck", "--data", str(node.data), "--json")
    assert report.returncode == Exit.DAMAGE, report.stdout + report.stderr
    named = [json.loads(line)["damage"] for line in report.stdout.splitlines() if '"damage"' in line]
    assert [Path(one["file"]).name for one in named if "missing" in one["why"]] == [newest.name], named
    with pytest.raises(AssertionError, match="exit code 7") as refused:
        node.start()
    assert f"{newest.name} is missing" in str(refused.value)
    assert segment_files.content_of(node.data) == before
    aside.rename(newest)
    with node, ringfence.connect(node.address) as client:
        assert {partition: read(client, partition) for partition in ids} == ids


def test_a_newer_log_format_is_refused_byte_identically_and_opens_again_when_restored(
    stopped: tuple[NodeProcess, dict[int, list[int]]],
) -> None:
    node, ids = stopped
    newest = segment_files.segments(node.data)[-1]
    original = newest.read_bytes()
    segment_files.make_newer(newest)
    before = segment_files.content_of(node.data)
    with pytest.raises(AssertionError, match="exit code 7") as refused:
        node.start()
    assert "newer" in str(refused.value)
    assert segment_files.content_of(node.data) == before
    newest.write_bytes(original)
    with node, ringfence.connect(node.address) as client:
        assert {partition: read(client, partition) for partition in ids} == ids


def test_a_newer_identity_format_is_refused_byte_identically(
    stopped: tuple[NodeProcess, dict[int, list[int]]],
) -> None:
    node, _ = stopped
    identity = node.data / "store.toml"
    identity.write_text(identity.read_text().replace("format = 2", "format = 3"))
    before = segment_files.content_of(node.data)
    with pytest.raises(AssertionError, match="exit code 7"):
        node.start()
    assert segment_files.content_of(node.data) == before


def test_newer_metadata_is_refused_byte_identically_and_serves_again_when_restored(
    stopped: tuple[NodeProcess, dict[int, list[int]]],
) -> None:
    """P28: what a program after this one wrote."""
    node, ids = stopped
    journal = node.data / "metadata" / "journal"
    original = journal.read_bytes()
    newer = bytearray(original)
    newer[4:6] = (JOURNAL_FORMAT + 1).to_bytes(2, "little")
    newer[60:64] = crc32c(bytes(newer[:60])).to_bytes(4, "little")
    journal.write_bytes(newer)
    before = segment_files.content_of(node.data)
    with pytest.raises(AssertionError, match=f"exit code {Exit.STORAGE}") as refused:
        node.start()
    assert f"has format {JOURNAL_FORMAT + 1}" in str(refused.value)
    assert segment_files.content_of(node.data) == before
    journal.write_bytes(original)
    with node, ringfence.connect(node.address) as client:
        assert {partition: read(client, partition) for partition in ids} == ids


def test_segment_files_of_another_store_are_refused_and_left_alone(
    stopped: tuple[NodeProcess, dict[int, list[int]]], tmp_path: Path
) -> None:
    node, _ = stopped
    other = NodeProcess(tmp_path / "other")
    with other:
        pass
    foreign = segment_files.segments(node.data)[0]
    target = segment_files.segments(other.data)[0] if segment_files.segments(other.data) else None
    folder = target.parent if target else other.data / "log"
    (folder / foreign.name).write_bytes(foreign.read_bytes())
    before = segment_files.content_of(other.data)
    with pytest.raises(AssertionError, match="exit code 7"):
        other.start()
    assert segment_files.content_of(other.data) == before


def test_a_torn_tail_is_cut_and_everything_before_it_is_there(
    stopped: tuple[NodeProcess, dict[int, list[int]]],
) -> None:
    """Bytes of a group that was never acknowledged: half a record behind the last group."""
    node, ids = stopped
    last = max(segment_files.records(node.data), key=lambda found: (found.header.file_number, found.position))
    end = last.position + last.header.span_bytes
    with last.path.open("r+b") as file:
        file.seek(end)
        torn = bytearray(wire.RECORD_STRUCT.pack(*last.header._replace(group=last.header.group + 1)))
        file.write(bytes(torn) + b"\x55" * 500)
    with node, ringfence.connect(node.address) as client:
        assert {partition: read(client, partition) for partition in ids} == ids


def test_fsck_reads_what_is_mounted_read_only(tmp_path: Path) -> None:
    """A backup, or a disk that is to change no more."""
    disk = Disk(tmp_path, size_mb=1024)
    try:
        data = disk.mount_point / "data"
        with NodeProcess(data) as node, ringfence.connect(node.address) as client:
            client.create_topic("t", schema=SCHEMA, partitions=1)
            with client.producer("t") as producer:
                producer.send(batch(0, 100)).result(30)
        subprocess.run(["mount", "-o", "remount,ro", str(disk.mount_point)], check=True, capture_output=True)
        for _ in range(2):
            done = cli("fsck", "--data", str(data), "--json")
            assert done.returncode == 0, done.stdout + done.stderr
            assert json.loads(done.stdout.splitlines()[-1])["records"] > 0
    finally:
        disk.release()


def test_a_lock_that_is_no_file_is_said_to_be_that(stopped: tuple[NodeProcess, dict[int, list[int]]]) -> None:
    data = stopped[0].data
    (data / "lock").unlink()
    (data / "lock").mkdir()
    done = cli("fsck", "--data", str(data))
    assert done.returncode == Exit.STORAGE, done.stderr
    assert "Is a directory" in done.stderr


@pytest.mark.parametrize("lost", ["files", "folder"])
def test_a_log_that_is_gone_is_refused_and_serves_again_when_it_is_back(
    stopped: tuple[NodeProcess, dict[int, list[int]]], lost: str, tmp_path: Path
) -> None:
    node, ids = stopped
    log, kept = node.data / "log", tmp_path / "kept"
    log.rename(kept)
    if lost == "files":
        (log / "lost+found").mkdir(parents=True)  # an empty disk is mounted there
    with pytest.raises(AssertionError, match=r"(?s)exit code 7.*is empty"):
        node.start()
    report = cli("fsck", "--data", str(node.data), "--json")
    assert report.returncode == Exit.DAMAGE, report.stdout + report.stderr
    assert "is empty" in report.stdout
    if lost == "files":
        (log / "lost+found").rmdir()
        log.rmdir()
    kept.rename(log)
    with node, ringfence.connect(node.address) as client:
        assert {partition: read(client, partition) for partition in ids} == ids


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_segment_that_is_no_file_is_named_where_its_records_are_missing(
    stopped: tuple[NodeProcess, dict[int, list[int]]], kind: str, tmp_path: Path
) -> None:
    node, _ = stopped
    segment = segment_files.segments(node.data)[0]
    segment.rename(tmp_path / "elsewhere")
    if kind == "link":
        segment.symlink_to(tmp_path / "elsewhere")
    else:
        segment.mkdir()
    says = "is a symbolic link" if kind == "link" else "is no file"
    report = cli("fsck", "--data", str(node.data), "--json")
    assert report.returncode == Exit.DAMAGE, report.stdout + report.stderr
    named = json.loads(report.stdout.splitlines()[0])["damage"]
    assert named["file"] == str(segment)
    assert says in named["why"]
    with pytest.raises(AssertionError, match=f"{segment.name} is missing or no regular file"):
        node.start()
    for spare in (node.data / "log").glob("spare-*"):
        spare.unlink()  # the way out that the error names
    with node:
        assert any(str(segment) in reason and says in reason for reason in node.ready["reasons"]), node.ready
