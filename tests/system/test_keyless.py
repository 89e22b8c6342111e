"""A topic without key and replicas whose owners fail: what is sent from then on goes to those that answer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, batch, read_ids, until

EACH = 10  # rows of a send
SOON_S = 5.0  # far below the sends' own deadline


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path)
    try:
        yield cluster.start()
    finally:
        for place in range(3):
            if cluster.alive(place):
                cluster.nodes[place].wake()
        cluster.kill_all()


class Sending:
    """Sends of a producer, one after the other, and which owners they went to."""

    def __init__(self, three: ThreeNodes, client: ringfence.Client, producer: ringfence.Producer) -> None:
        owner = {entry.partition: entry.owner for entry in client.layout("t").active}
        self._place_of = {number: owner[number] for number in owner}
        self._producer, self.ids = producer, 0
        self._places = {three.id(place): place for place in range(3)}

    def one(self, wait_s: float = SOON_S) -> int:
        """The place of the node that stored it."""
        [part] = self.begin().result(wait_s)
        return self._places[self._place_of[part.partition]]

    def begin(self) -> ringfence.SendFuture:
        self.ids += EACH
        return self._producer.send(batch(self.ids - EACH, EACH))

    def several(self, sends: int) -> Counter[int]:
        return Counter(self.one() for _ in range(sends))


def opened(three: ThreeNodes, order: list[int]) -> ringfence.Client:
    return ringfence.connect(",".join(three.nodes[place].address for place in order), timeout_s=60)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("own", [False, True], ids=["an owner", "the client's own node"])
def test_sends_leave_out_a_node_that_is_down_until_it_is_back(three: ThreeNodes, *, own: bool) -> None:
    down = next(place for place in range(3) if place != three.leader())
    others = [place for place in range(3) if place != down]
    with opened(three, [down, *others] if own else [*others, down]) as client:
        client.create_topic("t", schema=SCHEMA, partitions=6)
        with client.producer("t", timeout_s=60) as producer:
            sending = Sending(three, client, producer)
            assert set(sending.several(12)) == {0, 1, 2}
            three.nodes[down].kill()
            time.sleep(0.2)  # what was sent before the connection ended would wait there
            assert set(sending.several(60)) == set(others)
            with opened(three, others) as second, second.producer("t", timeout_s=60) as fresh:
                later = Sending(three, second, fresh)
                later.ids = 1_000_000
                assert set(later.several(12)) == set(others), "from its first send on"
            three.nodes[down].start()
            until(lambda: sending.one() == down, what="a send at the node that is back")
        found = [one for ids in read_ids(client, "t").values() for _, one in ids]
        assert len(found) == len(set(found)) == sending.ids + later.ids - 1_000_000


@pytest.mark.timeout(300)
def test_sends_leave_out_a_node_that_stands_still_and_what_it_has_is_stored_once(three: ThreeNodes) -> None:
    still = next(place for place in range(3) if place != three.leader())
    others = [place for place in range(3) if place != still]
    with opened(three, others) as client:
        client.create_topic("t", schema=SCHEMA, partitions=6)
        with client.producer("t", timeout_s=60) as producer:
            sending = Sending(three, client, producer)
            assert set(sending.several(12)) == {0, 1, 2}
            three.nodes[still].freeze()
            began = time.monotonic()
            futures = [sending.begin()]
            while time.monotonic() < began + 6:  # the client's 3 s, and a slow machine
                time.sleep(0.02)
                futures.append(sending.begin())
            held = [future for future in futures if not future.done()]
            assert held, "nothing tells at once that a node stands still"
            with pytest.raises(ringfence.WaitTimeoutError, match="does not respond") as late:
                held[0].result(0.1)
            assert (late.value.node, late.value.reason) == (three.id(still), "not answering")
            assert set(sending.several(30)) == set(others)
            three.nodes[still].wake()
            assert all(future.result(30) for future in held)
            until(lambda: sending.one() == still, what="a send at the node that goes on")
        found = [one for ids in read_ids(client, "t").values() for _, one in ids]
        assert len(found) == len(set(found)) == sending.ids


@pytest.mark.timeout(300)
def test_a_transaction_leaves_out_a_node_that_is_down_until_it_is_back(three: ThreeNodes) -> None:
    down = next(place for place in range(3) if place != three.leader())
    with opened(three, [place for place in range(3) if place != down]) as client:
        client.create_topic("t", schema=SCHEMA, partitions=6)
        owner = {entry.partition: entry.owner for entry in client.layout("t").active}
        begun = client.scopes.begin("parts", topic="t")
        three.nodes[down].kill()
        began = time.monotonic()
        with client.transaction("t", scope="whole", timeout_s=20) as whole:
            for start in range(0, 120, EACH):
                whole.send(batch(start, EACH))
        assert time.monotonic() - began < 2 * SOON_S
        assert whole.rows == 120
        attempt, ids = client.scopes.attempt(begun, 1, timeout_s=60), 120

        def stage() -> set[int]:
            nonlocal ids
            attempt.send("t", batch(ids, EACH))
            ids += EACH
            attempt.flush()
            return {owner[partition] for _, partition in attempt._so_far.parts}

        for _ in range(12):
            assert three.id(down) not in stage()
        three.nodes[down].start()
        until(lambda: three.id(down) in stage(), what="rows at the node that is back")
        client.scopes.commit(begun, 1, [attempt.finish()])
        until(lambda: client.count("t") == ids, what="all rows can be read")
        found = [one for rows in read_ids(client, "t").values() for _, one in rows]
        assert sorted(found) == list(range(ids))
        senders = list(attempt._senders.senders.values())
        assert not any(member in senders for member in client._io_thread.members)
