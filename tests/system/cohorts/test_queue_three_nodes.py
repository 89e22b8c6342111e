"""A QUEUE over three real nodes: owners that are killed, with replicas that go on."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.deliveries import KEYS, Feed, publish
from tests.harness.processes import SCHEMA, read_ids, until
from tests.harness.queue_member import QueueMember, acked_rows, check_queue

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(300)
def test_rows_are_acknowledged_once_while_an_owner_is_killed(tmp_path: Path) -> None:
    three = ThreeNodes(tmp_path, options=("--session-grace-s", "12"))
    with ExitStack() as running:
        running.callback(three.kill_all)
        three.start()
        with ringfence.connect(three.addresses, timeout_s=60) as client:
            client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=3, replication=3)
            publish(client, "t", range(10))
            options = {"rows_max": 2 * KEYS, "work_s": 0.01}
            members = [
                running.enter_context(QueueMember(three.addresses, "t", "q", name, dict(options)))
                for name in ("m0", "m1", "m2")
            ]
            until(lambda: len(acked_rows(members)) >= 10 * KEYS, 60, "the first rows are acknowledged")
            feed = Feed(three.addresses, "t", start=10).start()
            time.sleep(1)
            three.nodes[next(place for place in range(3) if place != three.leader())].kill()
            time.sleep(8)
            feed.finish()
            stored = read_ids(client, "t")
            rows = sum(len(one) for one in stored.values())
            until(lambda: len(acked_rows(members)) == rows, 90, "each row is acknowledged")
            for member in members:
                member.stop()
                assert member.errors == []
            check_queue(members, stored, late_s=3.0)
