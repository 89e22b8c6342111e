"""F35: plans follow loads while these are told, and the placement that is there while they are not.

Load reports travel with heartbeats and never enter the log.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from tests.harness.admin_http import with_http
from tests.harness.cluster import ThreeNodes
from tests.harness.load import Load
from tests.harness.loaded_cluster import grown
from tests.harness.network import Network
from tests.harness.processes import PROGRAM, SCHEMA, until

TOPICS = 6
VARIED_S = 10.0
"""Of varying load; `--soak 60` makes ten minutes of it."""
WITNESS_S = 600
"""Each node that stores rows may have an entry of its own so often (`log_witnesses.RENEW_S`)."""
PAUSES = ((0.005, 0.5), (0.1, 0.01), (0.2, 0.2), (0.005, 0.01))
"""Seconds between two sends of the two producers, report by report."""


class Scene:
    """Three nodes, and two topics of one partition each at one of them that does not lead: the hot node."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.network = network
        self.three = ThreeNodes(
            folder, hosts=network.hosts, prefixes=network.prefixes, options=("--insecure",)
        )
        # Without tokens the admin API serves its own host alone.
        self.doors = [with_http(node) for node in self.three.nodes]

    def begin(self) -> None:
        three = self.three.start()
        owners: dict[str, int] = {}
        with ringfence.connect(three.nodes[0].address, timeout_s=60) as client:
            for number in range(TOPICS):
                [part] = client.create_topic(f"t{number}", schema=SCHEMA, key=["id"], partitions=1).partitions
                owners[f"t{number}"] = part.owner
        self.hot = next(place for place in range(3) if place != three.leader())
        self.asked = (self.hot + 1) % 3
        self.topics = [name for name, owner in owners.items() if owner == three.id(self.hot)]
        assert len(self.topics) == 2, owners
        # The hot node is LIVE, and in the ring, also while it is not heard for a minute.
        self.configure(failure_ms=300_000, policy_grace_s=0, policy_check_interval_s=1, policy_cooldown_s=0)

    def configure(self, **values: int) -> None:
        limits = [f"{name}={value}" for name, value in values.items()]
        command = [str(PROGRAM), "config", "set", *limits, "--http", self.doors[self.asked]]
        subprocess.run([*self.network.prefixes[self.asked], *command], check=True, capture_output=True)

    def shown(self) -> dict[str, Any]:
        call = messages.encode(messages.SteerRebalance(verb="show"))  # the leader's view, whoever leads
        reply = messages.decode_reply(ask_address(self.three.controls[self.asked], call, 5.0))
        assert isinstance(reply, messages.Document), reply
        return reply.value

    def loads(self) -> dict[int, int]:
        """Bytes a second of each node that the leader has a report of."""
        return {load["node"]: load["bytes_s"] for load in self.shown()["loads"]}

    def index(self) -> int:
        with ringfence.connect(self.three.nodes[self.asked].address, timeout_s=30) as client:
            return client.status().index

    def owners(self) -> dict[str, int]:
        with ringfence.connect(self.three.nodes[self.asked].address, timeout_s=30) as client:
            return {topic.name: topic.partitions[0].owner for topic in client.topics()}

    def decided(self) -> dict[str, Any]:
        """Switch the policy on; what it did, or why it did nothing."""
        run = self.shown()["run"]
        self.configure(policy_enabled=1)
        until(lambda: self.shown()["policy"] or self.shown()["run"] != run, what="a decision of the policy")
        self.configure(policy_enabled=0)
        until(lambda: self.shown()["state"] == "IDLE", what="the end of a run, if there is one")
        shown = self.shown()
        return {
            "run": shown["run"] if shown["run"] != run else 0,
            "why": shown["why"],
            "policy": shown["policy"],
        }


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Network(3) as network:
        made = Scene(tmp_path, network)
        try:
            made.begin()
            yield made
        finally:
            network.heal()
            made.three.kill_all()


@pytest.mark.timeout(0)
def test_a_plan_follows_loads_that_are_told_and_stays_as_it_is_without_them(scene: Scene, soak: int) -> None:
    """F35: varying load leaves no entry; the policy's plan follows it, and without reports none is made."""
    hot = scene.three.id(scene.hot)
    before = scene.owners()
    loads = [
        Load(scene.three.nodes[scene.hot].address, topic, number, pause_s=PAUSES[0][number]).start()
        for number, topic in enumerate(scene.topics)
    ]
    until(grown(loads, 500), what="rows")
    began, index = time.monotonic(), scene.index()
    seen: list[int] = []
    while time.monotonic() - began < VARIED_S * soak:
        for load, pause_s in zip(loads, PAUSES[len(seen) % len(PAUSES)], strict=True):
            load.pause_between_s = pause_s
        known = scene.loads().get(hot, 0)
        until(
            lambda known=known: any(load.errors for load in loads) or scene.loads().get(hot, 0) != known,
            what="a report of another load",
        )
        assert [load.errors for load in loads] == [[], []]
        seen.append(scene.loads()[hot])
    entries, elapsed_s = scene.index() - index, time.monotonic() - began
    print(f"{elapsed_s:.0f} s, {len(seen)} loads from {min(seen):,} to {max(seen):,} B/s: {entries} entries")
    assert len(seen) >= 3
    assert max(seen) > 1.5 * min(seen), "the load did not vary"
    assert entries <= (3 * math.ceil(elapsed_s / WITNESS_S) if elapsed_s > WITNESS_S / 2 else 0), "of a load"
    check_plans(scene, loads, before, hot)


def check_plans(scene: Scene, loads: list[Load], before: dict[str, int], hot: int) -> None:
    """Nothing is planned while the hot node's load is not told; its plan is that of the load once it is."""
    for load in loads:
        load.pause_between_s = 0.01
    until(lambda: scene.loads().get(hot, 0) > 10_000, what="the load of the hot node")
    # No report of the hot node comes any more. Its producers reach it: they are on no host of the cluster.
    scene.network.cut(scene.hot, [place for place in range(3) if place != scene.hot])
    until(lambda: hot not in scene.loads(), 60, "a report that is too old")
    seen = [len(load.acknowledged) for load in loads]
    without = scene.decided()
    assert without["run"] == 0, without
    assert "max/min 1 is not above" in without["policy"], without
    assert scene.owners() == before
    assert all(len(load.acknowledged) > count for load, count in zip(loads, seen, strict=True)), "no load"
    scene.network.heal()
    until(lambda: scene.loads().get(hot, 0) > 10_000, what="its report again")
    following = scene.decided()
    assert following["run"], following
    assert following["why"].startswith("policy: loads"), following
    after = scene.owners()
    moved = {name for name, owner in after.items() if owner != before[name]}
    of_hot = {f"public/default/{topic}" for topic in scene.topics}
    # Idle partitions of the node that takes the load may move on: each counts as a little load of its own.
    assert moved & of_hot, "none of the hot node"
    assert not of_hot <= moved, "all of the hot node"
    for load in loads:
        load.finish()
    assert [load.errors for load in loads] == [[], []]
