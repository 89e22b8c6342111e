"""Both programs as processes: a rolling upgrade of three nodes under load, back, forward, finalized, refused.

    make test-upgrade                        builds e1e0e05 out of the git history, in a folder of the test
    python -m tests.upgrade.two_builds OLD   with a program that was built before

Not collected by pytest: it needs the history, and a second build of everything.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import ringfence
from ringfence.control.store import identity
from ringfence.native.wire import LEVEL_NEWEST
from tests.harness.cluster import ThreeNodes
from tests.harness.load import Load
from tests.harness.processes import PROGRAM, SCHEMA, check_identity, cli, free_port, read_ids, until
from tests.upgrade import lives

ROOT: Final = Path(__file__).resolve().parents[2]
OLD: Final = "e1e0e05"
"""The last revision without levels."""
REFUSED: Final = 7
"""Exit code of `serve` on a data directory that it cannot use."""


def built(root: Path) -> Path:
    """The older program, built from the history with a `.venv` of its own."""
    archive = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True, check=True).stdout
    root.mkdir()
    subprocess.run(["tar", "x"], cwd=root, input=archive, check=True)
    subprocess.run(["tools/setup.sh"], cwd=root, check=True)
    return root / ".venv" / "bin" / "ringfence"


class Story:
    """The cluster and the two programs."""

    def __init__(self, root: Path, old: Path) -> None:
        self.old, self._began = old, time.monotonic()
        self.https = [f"{host}:{free_port()}" for host in lives.HOSTS]
        self.cluster: ThreeNodes = lives.three(root, old, http=self.https)
        self.addresses = ",".join(node.address for node in self.cluster.nodes)

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {what}", flush=True)

    def run_as(self, place: int, program: Path) -> None:
        """Stop the node in order and start it again with `program`."""
        node = self.cluster.nodes[place]
        assert node.stop() == 0
        node.program = program
        node.restart()
        self.cluster.until_whole()

    def levels(self) -> list[int]:
        return [identity.read(node.data / "store.toml").level for node in self.cluster.nodes]

    def versions(self, place: int) -> dict[str, Any]:
        told = cli("cluster", "versions", "--http", f"http://{self.https[place]}", "--json")
        assert told.returncode == 0, told.stderr
        known: dict[str, Any] = json.loads(told.stdout)
        return known

    def refused(self, asked: int, named: int) -> None:
        """A finalization is refused and names a node; all directories stay at level 0."""
        ended = cli("cluster", "finalize", "--http", f"http://{self.https[asked]}", timeout_s=90)
        assert ended.returncode == 3, ended.stderr
        assert f"node {self.cluster.id(named)}: " in ended.stderr, ended.stderr
        assert self.levels() == [0, 0, 0]

    def back_and_forth(self) -> None:
        """Forward one by one, each back once, forward again."""
        for place in (2, 0, 1):
            self.run_as(place, PROGRAM)
            self.say(f"node {place} runs the newer program")
            if place != 1:
                self.refused(place, 1)
                holds = {hold["node"] for hold in self.versions(place)["holds"]}
                assert self.cluster.id(1) in holds, holds
        self.cluster.until_equal()
        for place in (1, 0):
            self.run_as(place, self.old)
            self.say(f"node {place} went back to the older program")
            self.cluster.until_equal()
            with ringfence.connect(self.addresses, timeout_s=30) as client:
                client.create_topic(f"made{place}", schema=SCHEMA, key=["id"], replication=3)
        for place in (0, 1):
            self.run_as(place, PROGRAM)
        assert self.levels() == [0, 0, 0]
        assert not self.versions(0)["holds"], self.versions(0)

    def finalized(self) -> None:
        ended = cli("cluster", "finalize", "--http", f"http://{self.https[1]}", "--json", timeout_s=90)
        assert ended.returncode == 0, ended.stderr
        assert self.levels() == [LEVEL_NEWEST] * 3
        until(lambda: self.versions(2)["level"] == LEVEL_NEWEST, what="the level is known everywhere")
        self.say("finalized")

    def older_is_refused(self) -> None:
        """The older program ends, and every byte of the directory is as it was."""
        for place in range(3):
            node = self.cluster.nodes[place]
            assert node.stop() == 0
            before = lives.tree(node.data)
            command = [
                str(self.old),
                "serve",
                "--data",
                str(node.data),
                "--listen",
                node.address,
                *node.options,
            ]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert ended.returncode == REFUSED, ended.stderr
            assert "format 2" in ended.stderr, ended.stderr
            assert lives.tree(node.data) == before, "the older program changed the directory"
            node.restart()
            self.cluster.until_whole()
        self.say("the older program is refused by all three directories, which stay as they are")


def main(old: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="ringfence-upgrade-") as folder:
        root = Path(folder)
        story = Story(root, old or built(root / "old"))
        cluster = story.cluster
        try:
            cluster.start()
            lives.lived(cluster.nodes[0].address, 3)
            with ringfence.connect(story.addresses, timeout_s=30) as client:
                client.create_topic("load", schema=SCHEMA, key=["id"], partitions=4, replication=3)
            loads = [Load(story.addresses, "load", number, pause_s=0.02).start() for number in (1, 2)]
            story.say("three nodes of the older program, under load")
            story.back_and_forth()
            story.finalized()
            story.older_is_refused()
            for load in loads:
                load.finish()
            cluster.until_equal()
            with ringfence.connect(story.addresses, timeout_s=60) as client:
                acknowledged = {load.producer: load.acknowledged for load in loads}
                check_identity(
                    read_ids(client, "load"), acknowledged, {one.producer: one.sent for one in loads}
                )
            rows = sum(len(load.acknowledged) for load in loads)
            story.say(f"{rows} acknowledged rows are there, each once")
        finally:
            cluster.kill_all()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
