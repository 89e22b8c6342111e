"""Power cut: the file system goes down under a writing node, its journal lost; acknowledged rows survive.

Needs root for a loop mount; where that is not to be had the test fails: durability untried is not known.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ringfence
from tests.harness.disk import Disk
from tests.harness.load import Load
from tests.harness.processes import SCHEMA, NodeProcess, check_identity, cli, read_ids, until

if TYPE_CHECKING:
    from collections.abc import Iterator

CUTS = 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.release()


@pytest.mark.timeout(300)
def test_acknowledged_rows_survive_power_cuts(disk: Disk, soak: int) -> None:
    node = NodeProcess(disk.mount_point / "data", options=("--segment-bytes", str(32 << 20)))
    node.start()
    with ringfence.connect(node.address) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=4)
    loads = [Load(node.address, "t", producer, rows=200).start() for producer in range(2)]
    for _ in range(CUTS * soak):
        time.sleep(1.0)
        node.freeze()  # power fails for the process too: it does not live on to answer the disk's errors
        disk.cut_power()
        node.kill()
        disk.unmount()
        disk.mount()
        node.start()
    time.sleep(0.5)
    for load in loads:
        load.finish()
    assert [load.errors for load in loads] == [[], []]
    with ringfence.connect(node.address) as client:
        rows = read_ids(client, "t")
    acknowledged = {load.producer: load.acknowledged for load in loads}
    assert min(len(ids) for ids in acknowledged.values()) > 1000
    check_identity(rows, acknowledged, {load.producer: load.sent for load in loads})
    assert node.stop() == 0
    report = cli("fsck", "--data", str(disk.mount_point / "data"), "--json")
    assert report.returncode == 0, report.stdout


MADE = """
import sys, time
from pathlib import Path
from tests.harness.disk import Disk
disk = Disk(Path(sys.argv[1]), 64)
print(flush=True)
time.sleep(60)
"""


def test_a_run_that_is_killed_leaves_no_disk(tmp_path: Path) -> None:
    """Its mount would be in the way of every later run that shares its temporary folder."""
    run = subprocess.Popen(
        [sys.executable, "-c", MADE, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.curdir},
    )
    with run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"\n"
        assert os.path.ismount(tmp_path / "disk")
        run.kill()
    until(lambda: not os.path.ismount(tmp_path / "disk"), 30, "its disk is unmounted")
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
