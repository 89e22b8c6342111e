"""Moves onto a node whose disk fails writes: each failure ends that node, and somebody starts it again.

The move ends at the target or at its owner, never between; what is acknowledged is there once and in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.native.errors import RingfenceError
from tests.harness.admin_cluster import FAST_BYTES_S, ROWS, AdminCluster
from tests.harness.load import PAUSE_S, Load
from tests.harness.loaded_cluster import grown
from tests.harness.processes import NodeProcess, check_identity, cli, read_ids, until

ONE_IN_TEN = ("--faults", "fail_write=10")
EACH = ("--faults", "fail_write=1")
STARTS_MAX = 200
"""A start takes half a second, and a test has minutes."""


class Keeper:
    """Starts a node again whenever its disk has failed, as that node asks for: what a supervisor does."""

    def __init__(self, node: NodeProcess) -> None:
        self.node, self.starts = node, 0
        self.reasons: list[str] = []
        self.fault: BaseException | None = None
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self.fault is not None:
            raise self.fault

    def _run(self) -> None:
        try:
            while not self._over.wait(0.05) and self.starts < STARTS_MAX:
                if self._has_failed():
                    self.starts += 1
                    self.node.kill()
                    self.node.start()
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self.fault = error

    def _has_failed(self) -> bool:
        """One with replicas of what others have, too, ends; another one goes on with what it can read."""
        assert self.node.process is not None
        code = self.node.process.poll()
        if code is not None:
            assert code == Exit.NODE_FAILED, self.node.log.read_text()[-2_000:]
            return True
        with suppress(RingfenceError), ringfence.connect(self.node.address, timeout_s=5) as client:
            found = [reason for reason in client.status().reasons if "storage failed" in reason]
            self.reasons += found
            return bool(found)
        return False


class Scene:
    """A topic of one partition under load, and a target, not the leader, that is to fail."""

    def __init__(self, desk: AdminCluster, rows: int = ROWS, pause_s: float = PAUSE_S) -> None:
        self.desk, self.rows, three = desk, rows, desk.three
        self.partition, self.source, self.target = desk.create("t", rows)
        if self.target == three.leader():
            self.target = 3 - self.source - self.target
        self.node = three.nodes[self.target]
        self.sound = self.node.options
        self.watch = self.source
        self.load = Load(three.nodes[self.source].address, "t", 1, pause_s=pause_s).start()

    def fail(self, *options: str) -> None:
        """Start the target with these options."""
        self.node.stop()
        self.node.options = (*self.sound, *options)
        self.node.start()
        self.desk.three.until_whole()

    def mend(self) -> None:
        if self.desk.three.alive(self.target):
            self.node.stop()
        else:
            self.node.kill()
        self.node.options = self.sound
        self.node.start()

    def begin(self) -> None:
        assert self.desk.start(self.watch, (self.partition, self.target)).status == 201

    def shown(self) -> dict[str, Any]:
        return self.desk.shown(self.watch)

    def move(self) -> dict[str, Any]:
        [move] = self.shown()["moves"]
        return dict(move)

    def ended(self, timeout_s: float = 120) -> dict[str, Any]:
        until(lambda: self.shown()["state"] == "IDLE", timeout_s, "the end of the run")
        return self.shown()

    def owner(self) -> int:
        with ringfence.connect(self.desk.three.nodes[self.watch].address, timeout_s=30) as client:
            [part] = client.topic("t").partitions
        return next(place for place in range(3) if self.desk.three.id(place) == part.owner)

    def check(self) -> None:
        """No producer saw an error, all rows are there, and nothing is left of a copy."""
        until(grown([self.load], 500), what="more rows")
        self.load.finish()
        assert self.load.errors == []
        three = self.desk.three
        with ringfence.connect(three.nodes[self.watch].address, timeout_s=30) as client:
            rows = read_ids(client, "t")
        check_identity(
            rows, {0: range(self.rows), 1: self.load.acknowledged}, {0: self.rows, 1: self.load.sent}
        )

        def is_sound() -> bool:
            return cli("fsck", "--cluster", "--control", three.controls[self.watch]).returncode == 0

        until(is_sound, what="a sound cluster: one owner each, nothing left of a copy")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminCluster]:
    desk = AdminCluster(tmp_path)
    try:
        desk.three.start()
        yield desk
    finally:
        desk.three.kill_all()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("rows", "pause_s"), [(ROWS, 0.0), (ROWS // 20, 0.5)], ids=["busy", "quiet"])
def test_a_move_to_a_target_that_fails_one_write_in_ten_ends_on_one_side_with_all_rows(
    desk: AdminCluster, rows: int, pause_s: float
) -> None:
    """Under full load no life of the target lasts for the copy. A small, quiet partition comes and stays."""
    scene = Scene(desk, rows, pause_s)
    desk.configure(scene.watch, sync_bytes_per_s=FAST_BYTES_S, move_timeout_ms=6_000, reverse_hold_s=0)
    scene.fail(*ONE_IN_TEN)
    with Keeper(scene.node) as keeper:
        began_s = time.monotonic()
        scene.begin()
        ended = scene.ended()
        [move] = ended["moves"]
        print(
            f"{ended['outcome']}: {move['attempts']} tries, {keeper.starts} starts of the target, "
            f"{time.monotonic() - began_s:.1f} s, {move['error'] or 'no error'}"
        )
        sides = {("DONE", "COMMITTED"): scene.target, ("GIVEN_UP", "FAILED"): scene.source}
        side = sides[ended["outcome"], move["state"]]
        assert scene.owner() == side, ended
        assert 1 <= move["attempts"] <= 3, move
        if side == scene.target:
            starts = keeper.starts
            until(lambda: keeper.starts > starts + 1, what="an owner that fails, too")
    assert keeper.starts >= 1, "no write failed"
    assert "planned fault: write 10 failed: Input/output error" in keeper.reasons[0], keeper.reasons
    scene.mend()
    desk.three.until_whole()
    scene.check()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "pauses",
    [
        pytest.param(True, id="paused"),
        pytest.param(False, id="running", marks=pytest.mark.long("the one that is paused has all its steps")),
    ],
)
def test_a_leader_killed_behind_the_third_failed_try_leaves_no_fourth_one(
    desk: AdminCluster, *, pauses: bool
) -> None:
    """Paused in its third try, the run ends with the next leader; running, with either of them."""
    scene, three = Scene(desk), desk.three
    desk.configure(scene.watch, move_timeout_ms=3_000, reverse_hold_s=0)
    scene.fail(*EACH)
    with Keeper(scene.node):
        scene.begin()
        until(lambda: scene.move()["attempts"] == 3, what="the third try")
        if pauses:
            assert desk.steer(scene.watch, "pause") == 200
        until(lambda: scene.move()["state"] == "FAILED", what="its end")
        leader = three.leader()
        three.nodes[leader].kill()
        rest = [place for place in range(3) if place != leader]
        until(lambda: three.led_by_one_of(rest), what="another leader")
    scene.mend()
    three.nodes[leader].start()
    three.until_whole()
    shown = scene.shown()
    [move] = shown["moves"]
    assert (move["state"], move["attempts"]) == ("FAILED", 3), shown
    if pauses:
        assert shown["state"] == "PAUSED", shown
        assert desk.steer(scene.watch, "resume") == 200
    ended = scene.ended()
    assert (ended["outcome"], ended["counts"], ended["moves"]) == ("GIVEN_UP", {"FAILED": 1}, [move]), ended
    assert scene.owner() == scene.source
    until(lambda: desk.counter(scene.target, "partitions") == 0, what="a target without a rest of the copy")
    scene.begin()
    ended = scene.ended()
    assert (ended["outcome"], scene.owner()) == ("DONE", scene.target), ended
    scene.check()
