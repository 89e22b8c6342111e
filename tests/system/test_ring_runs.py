"""Runs that change the ring: cancelled and given up they leave it as it is, completed they change it once.

Z16: only partitions of a node that leaves are moved, it ends empty. Z17: committed moves stay in either case.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from tests.harness.admin_cluster import AdminCluster
from tests.harness.admin_http import ask
from tests.harness.cluster import MEMORY
from tests.harness.processes import SCHEMA, NodeProcess, batch, check_identity, free_port, read_ids, until

PARTITIONS, ROWS = 16, 4_800
"""Some 300 kB a partition, and four moves a run."""
NO_COPY, SLOW_COPY, ANY_COPY = 1, 200_000, 0
"""Bytes a second of a copy: with one it never ends, with 200,000 it takes more than a second."""


class Scene(AdminCluster):
    """Three nodes with a topic, and a fourth one that is no member of the ring."""

    def begin(self, fourth: NodeProcess) -> None:
        self.configure(ring_joins=0, reverse_hold_s=0)
        with ringfence.connect(self.three.nodes[0].address, timeout_s=60) as client:
            client.create_topic("t", schema=SCHEMA, key=["id"], partitions=PARTITIONS)
            with client.producer("t") as producer:
                for start in range(0, ROWS, 100):
                    producer.send(batch(start, 100, text="x" * 1_000))
        fourth.start()
        self.fourth = int(fourth.ready["node"])
        until(
            lambda: ask(self.doors[0], "GET", f"/admin/nodes/{self.fourth}").body["life"] == "LIVE", what="it"
        )

    def run(self, action: str) -> None:
        begun = ask(self.doors[1], "POST", "/admin/rebalance", {"action": action, "node": self.fourth})
        assert begun.status == 201, begun

    def rings(self) -> dict[str, Any]:
        """The ring that all nodes have."""
        rings = [self.ring(place) for place in range(3)]
        assert rings[0] == rings[1] == rings[2]
        return dict(rings[0])

    def owners(self) -> dict[int, int]:
        with ringfence.connect(self.three.nodes[0].address, timeout_s=30) as client:
            return {part.partition: part.owner for part in client.topic("t").partitions}

    def until_copying(self) -> None:
        until(lambda: self.shown()["counts"].get("COPYING") == 1, what="a copy")

    def cancelled(self, action: str) -> None:
        """A move is committed, and the run is cancelled in a later one."""
        ring, before = self.rings(), self.owners()
        self.run(action)
        self.until_copying()
        self.configure(sync_bytes_per_s=SLOW_COPY)
        until(lambda: self.shown()["counts"].get("COMMITTED", 0) >= 1, what="a committed move")
        self.configure(sync_bytes_per_s=NO_COPY)
        self.until_copying()
        assert self.rings() == ring, "the ring changes after all moves"
        assert self.steer(2, "cancel") == 200
        ended = self.ended()
        assert ended["outcome"] == "CANCELLED", ended
        self.left_as_it_is(ring, before, ended)

    def given_up(self, action: str) -> None:
        """No move ends in its time, three times."""
        ring, before = self.rings(), self.owners()
        self.configure(sync_bytes_per_s=NO_COPY, move_timeout_ms=1_000)
        self.run(action)
        ended = self.ended()
        assert ended["outcome"] == "GIVEN_UP", ended
        assert all(move["attempts"] == 3 for move in ended["moves"] if move["state"] == "FAILED"), ended
        assert any(move["state"] == "FAILED" for move in ended["moves"]), ended
        self.left_as_it_is(ring, before, ended)
        self.configure(move_timeout_ms=60_000)

    def left_as_it_is(self, ring: dict[str, Any], before: dict[int, int], ended: dict[str, Any]) -> None:
        """The ring is that of before the run; owners are, but for the committed moves."""
        assert self.rings() == ring
        moved = {m["partition"]: m["to"][0] for m in ended["moves"] if m["state"] == "COMMITTED"}
        assert len(moved) < len(ended["moves"]), ended
        assert self.owners() == {**before, **moved}
        shown = ask(self.doors[0], "GET", f"/admin/nodes/{self.fourth}").body
        assert not shown["draining"], "it is not to leave any more"

    def completed(self, action: str, *, is_member: bool) -> dict[str, Any]:
        """Every move is committed; the ring changed once, after the last one."""
        ring, before = self.rings(), self.owners()
        self.configure(sync_bytes_per_s=NO_COPY)
        self.run(action)
        self.until_copying()
        assert self.rings() == ring, "the ring changes after all moves"
        self.configure(sync_bytes_per_s=ANY_COPY)
        ended = self.ended()
        assert (ended["outcome"], set(ended["counts"])) == ("DONE", {"COMMITTED"}), ended
        after = self.rings()
        assert (after["version"], self.fourth in after["members"]) == (ring["version"] + 1, is_member)
        assert set(after["members"]) ^ set(ring["members"]) == {self.fourth}
        assert self.owners() == {**before, **{m["partition"]: m["to"][0] for m in ended["moves"]}}
        return ended


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    control = f"tcp://127.0.0.1:{free_port()}"
    fourth = NodeProcess(
        tmp_path / "d", options=("--control", control, "--join", made.three.controls[0], *MEMORY)
    )
    try:
        made.three.start()
        made.begin(fourth)
        yield made
    finally:
        if fourth.process is not None:
            fourth.kill()
        made.three.kill_all()


@pytest.mark.timeout(240)
def test_a_ring_changes_with_a_run_that_completes_and_with_no_other(scene: Scene) -> None:
    """Z16, Z17: add_node and remove_node, each cancelled, given up and completed."""
    assert scene.fourth not in scene.rings()["members"]
    scene.configure(sync_bytes_per_s=NO_COPY)
    scene.cancelled("add_node")
    scene.given_up("add_node")
    added = scene.completed("add_node", is_member=True)
    assert {move["to"][0] for move in added["moves"]} == {scene.fourth}, "nothing moves between old nodes"
    owned = sum(owner == scene.fourth for owner in scene.owners().values())
    assert owned == PARTITIONS // 4, "an even share"
    scene.configure(sync_bytes_per_s=NO_COPY)
    scene.cancelled("remove_node")
    scene.given_up("remove_node")
    removed = scene.completed("remove_node", is_member=False)
    assert {move["from"][0] for move in removed["moves"]} == {scene.fourth}, "only its partitions move"
    assert scene.fourth not in scene.owners().values()
    assert ask(scene.doors[0], "GET", f"/admin/nodes/{scene.fourth}").body["replicas"] == 0
    with ringfence.connect(scene.three.nodes[0].address, timeout_s=60) as client:
        check_identity(read_ids(client, "t"), {0: range(ROWS)}, {0: ROWS})
