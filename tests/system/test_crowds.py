"""Many drivers that begin one scope at one moment: what they cost the log grows with their number alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import ringfence
from ringfence.native import messages, wire
from ringfence.native.cluster_messages import ScopeBegin, ScopeBegun
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import NodeProcess
from tests.harness.raw_client import RawClient

RIVALS = 80
OTHER_ENTRIES = 10
"""Of a moment that has nothing to do with the crowd: a session, a deputy."""


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=60) as made:
        yield made


def crowd(clients: list[ringfence.Client], scope: str, rivals: int, instance: bytes = b"") -> list[int]:
    """The drivers that so many get who begin the scope at once."""
    start = threading.Barrier(rivals)

    def begin(number: int) -> int:
        start.wait(30)
        return clients[number % len(clients)].scopes.begin(scope, instance).driver

    with ThreadPoolExecutor(rivals) as pool:
        return sorted(pool.map(begin, range(rivals)))


def test_a_crowd_of_drivers_costs_an_entry_each(client: ringfence.Client) -> None:
    before = client.status().index
    drivers = crowd([client], "crowd", RIVALS)
    entries = client.status().index - before
    assert len(set(drivers)) == RIVALS, "each is a driver of its own, and fenced one that it knew"
    assert RIVALS <= entries <= RIVALS + OTHER_ENTRIES
    assert client.scopes.begin("crowd").driver > drivers[-1]


def test_of_begins_that_know_of_one_driver_the_node_proposes_one(
    node: NodeProcess, client: ringfence.Client
) -> None:
    """Whatever a client does: these were sent in one go."""
    before = client.status().index
    with RawClient(node.address) as raw:
        assert raw.hello().status == wire.Status.READY
        body = messages.encode(ScopeBegin(scope="rash", after=0))
        for _ in range(RIVALS):
            raw.send(wire.Opcode.BEGIN, body, flags=wire.RequestFlags.CONTROL)
        answers = [answer for _ in range(RIVALS) if (answer := raw.receive()) is not None]
    entries = client.status().index - before
    begun = [answer.read(ScopeBegun) for answer in answers if answer.status == wire.Status.OK]
    refused = [answer for answer in answers if answer.code == wire.Code.CONFLICT]
    assert (len(begun), len(refused)) == (1, RIVALS - 1)
    assert {answer.read(messages.Refused).details["driver"] for answer in refused} == {begun[0].driver}
    assert 1 <= entries <= 1 + OTHER_ENTRIES


def test_processes_of_one_job_are_one_driver_however_many_begin_at_once(client: ringfence.Client) -> None:
    assert len(set(crowd([client], "job", RIVALS, b"run-1"))) == 1


def test_in_a_cluster_a_crowd_costs_at_most_an_entry_a_node_each(tmp_path: Path) -> None:
    rivals, cluster = 45, ThreeNodes(tmp_path).start()
    try:
        with ExitStack() as stack:
            clients = [
                stack.enter_context(ringfence.connect(node.address, timeout_s=60)) for node in cluster.nodes
            ]
            before = clients[0].status().index
            drivers = crowd(clients, "crowd", rivals)
            entries = clients[0].status().index - before
        assert len(set(drivers)) == rivals
        assert rivals <= entries <= 3 * rivals + OTHER_ENTRIES
        cluster.until_equal()
    finally:
        cluster.kill_all()
