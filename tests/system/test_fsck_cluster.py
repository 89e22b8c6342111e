"""`fsck --cluster` over real nodes, running and stopped: sound ones are, and planted faults are named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.program import run
from ringfence.native import wire
from tests.harness import segment_files
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, batch, until


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(
        tmp_path, options=("--segment-bytes", "4MiB")
    )  # directories are copied, and read whole
    try:
        yield cluster.start()
    finally:
        cluster.kill_all()


def fsck(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run(["fsck", "--cluster", "--json", *arguments])
    said = capsys.readouterr()
    assert said.out, said.err
    return code, json.loads(said.out)


def test_a_cluster_is_sound_until_a_store_loses_what_it_has(
    three: ThreeNodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def checked(*arguments: str) -> tuple[int, dict[str, Any]]:
        return fsck(capsys, *arguments)

    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        created = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=4, replication=3)
        with client.producer("t") as producer:
            producer.send(batch(0, 5_000))
            producer.flush()

    def is_sound() -> bool:
        code, report = checked("--control", three.controls[1])
        return (code, report["compared"]) == (0, 4) and report["sound"]

    until(is_sound, what="a sound cluster, its replicas level")
    three.nodes[2].kill()
    until(lambda: checked("--control", three.controls[0])[0] == Exit.DEGRADED, what="one that is not heard")
    code, report = checked("--control", three.controls[0])
    assert report["silent"] == [three.id(2)]
    assert not [one for one in report["findings"] if one["invariant"] != "I4"], report
    three.nodes[1].kill()
    assert run(["fsck", "--cluster", "--control", three.controls[0]]) == Exit.UNREACHABLE
    told = capsys.readouterr().err
    assert "so the newest metadata is unknown: start the nodes that are down" in told
    assert "`ringfence fsck --cluster --data DIR" in told
    for node in three.nodes[1:]:
        node.restart()
    until(is_sound, what="a sound cluster again")
    for node in three.nodes:
        assert node.stop() == 0
    roots = [node.data for node in three.nodes]
    named = [argument for root in roots for argument in ("--data", str(root))]
    code, report = checked(*named)
    assert (code, report["compared"], report["findings"], report["unproven"]) == (0, 4, [], []), report
    assert checked(*named[:4])[0] == Exit.DEGRADED
    assert run(["fsck", "--cluster", *named, *named[:2]]) == Exit.USAGE, "one directory twice"

    check_planted(capsys, tmp_path / "planted", roots, three.id(1), created.partitions[0].partition)


def check_planted(
    capsys: pytest.CaptureFixture[str], copy: Path, roots: list[Path], node: int, victim: int
) -> None:
    """Faults in one of three stopped stores, that of `node`: each is named."""

    def planted() -> list[str]:
        """A copy of the second directory, to plant a fault in, among the others."""
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(roots[1], copy)
        named = (roots[0], roots[2], copy)
        return [argument for root in named for argument in ("--data", str(root))]

    arguments = planted()
    for path in (copy / "log").glob("*.seg"):
        path.unlink()
    code, report = fsck(capsys, *arguments)
    assert code == Exit.DAMAGE
    lost = [one["node"] for one in report["findings"] if one["invariant"] == "I16"]
    assert lost == [node] * 4, report
    # What an owner wrote last, as the others stopped, may have been on the lost store only.
    others = [one for one in report["findings"] if one["invariant"] not in {"I16", "I5"}]
    assert all("the file is missing" in str(one) and one["node"] == node for one in others), report
    arguments = planted()
    found = segment_files.rows_of(copy, victim)[0]
    segment_files.flip(found.path, found.position + wire.RECORD_HEADER_BYTES + 200)
    code, report = fsck(capsys, *arguments)
    told = [(one["invariant"], one["node"], one["partition"]) for one in report["findings"]]
    assert (code, told) == (Exit.DAMAGE, [("I5", node, victim)]), report
    arguments = planted()
    (journal,) = (copy / "metadata").glob("journal*")
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 1
    journal.write_bytes(bytes(data))
    code, report = fsck(capsys, *arguments)
    assert (code, {one["invariant"] for one in report["findings"]}) == (Exit.DAMAGE, {"I1"}), report
