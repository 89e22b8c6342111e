"""Two writers of one scope against the running program: who was fenced harms nobody, and hears so."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

import pytest

import ringfence
from ringfence.native.cluster_messages import ScopeBegin
from ringfence.native.wire import Opcode
from tests.fakes.client_topic import SCHEMA, ids_of, rows
from tests.harness.processes import NodeProcess
from tests.harness.proxy import Proxy


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as made:
        yield made


@pytest.mark.parametrize("counted", [False, True])
def test_who_was_overtaken_while_its_commit_was_lost_is_not_told_that_it_is_committed(
    client: ringfence.Client, node: NodeProcess, counted: bool
) -> None:
    topic = f"overtaken-{counted}"
    client.create_topic(topic, schema=SCHEMA)
    epoch = 1 if counted else None
    with Proxy(node.address) as proxy, ringfence.connect(proxy.address, timeout_s=30) as lost:
        older = lost.transaction(topic, scope=topic, epoch=epoch)
        older.send(rows(0, 10))
        older.flush()
        proxy.is_deaf = True
        ended: list[str] = []

        def commit() -> None:
            try:
                older.commit()
            except ringfence.RingfenceError as error:
                ended.append(type(error).__name__)

        committing = threading.Thread(target=commit)
        committing.start()
        time.sleep(0.5)  # the request is on its way
        with client.transaction(topic, scope=topic, epoch=epoch) as newer:
            newer.send(rows(100, 3))
        proxy.heal()
        committing.join(60)
    assert newer.epoch == older.epoch == 1
    assert ended == ([] if counted else ["FencedError"])
    assert (older.rows, older.already) == (0, counted)
    assert sorted(ids_of(client, topic)) == [100, 101, 102]


def test_a_writer_that_was_fenced_ends_and_leaves_its_successors_epoch_alone(
    client: ringfence.Client,
) -> None:
    client.create_topic("heir", schema=SCHEMA)
    older = client.transaction("heir", scope="heir")
    newer = client.transaction("heir", scope="heir")
    assert older.epoch == newer.epoch
    newer.send(rows(0, 5))
    newer.flush()
    with pytest.raises(ringfence.FencedError) as fenced, older:
        older.send(rows(100, 5))
    assert 'client.transaction(scope="heir") of topic "heir" has taken over the scope' in fenced.value.message
    assert not re.search("driver|@", str(fenced.value))
    assert (fenced.value.scope, fenced.value.epoch) == ("heir", older.epoch)
    late = client.transaction("heir", scope="heir-aborted")
    heir = client.transaction("heir", scope="heir-aborted")
    late.abort()
    begun = client.scopes.begin("heir-far")
    client.scopes.begin("heir-far")
    with pytest.raises(ringfence.FencedError):
        client.scopes.expire(begun, 1 << 62)
    heir.send(rows(5, 5))
    for one in (newer, heir):
        one.commit()
    assert client.scopes.begin("heir-far").decided == 0
    assert sorted(ids_of(client, "heir")) == list(range(10))


def test_a_begin_that_is_served_behind_many_later_ones_fences_none_of_them(client: ringfence.Client) -> None:
    """As a node does that stood still, and reads what was sent to it when it goes on."""
    client.create_topic("thawed", schema=SCHEMA)
    first = client.scopes.begin("thawed", b"run-0")
    tries = [
        ScopeBegin(scope="thawed", instance=b"late-1", after=0),
        ScopeBegin(scope="thawed", instance=b"late-2", after=first.driver),
        ScopeBegin(scope="thawed", instance=b"late-3", after=first.driver, drawn=True),
    ]
    newest = [client.scopes.begin("thawed", b"run-%d" % number) for number in range(1, 18)][-1]
    for late in tries:
        with pytest.raises(ringfence.ConflictError) as caught:
            client._admin.request(Opcode.BEGIN, late)
        assert caught.value.details["driver"] == newest.driver
    attempt = client.scopes.attempt(newest, 1)
    attempt.send("thawed", rows(0, 5))
    assert client.scopes.commit(newest, 1, [attempt.finish()])
    assert sorted(ids_of(client, "thawed")) == list(range(5))


def test_drivers_without_a_name_let_no_named_one_come_back(client: ringfence.Client) -> None:
    client.scopes.begin("mixed", b"run-0")
    for _ in range(20):
        client.scopes.begin("mixed")
    with pytest.raises(ringfence.FencedError):
        client.scopes.begin("mixed", b"run-0")


def test_a_scope_of_the_cluster_is_none_of_a_topic(client: ringfence.Client) -> None:
    topic = client.create_topic("nightly", schema=SCHEMA).topic
    owned = client.scopes.begin("nightly", topic="nightly")
    with pytest.raises(ringfence.InvalidArgumentError, match=f"of the topic with id {topic};"):
        client.scopes.begin(f"nightly@{topic}")
    with pytest.raises(ringfence.InvalidArgumentError):
        client.transaction(scope=f"nightly@{topic}")
    assert client.scopes.begin("nightly@host").scope != owned.scope
    client.scopes.expire(owned, 1)  # nobody has begun it anew


def test_who_is_fenced_between_its_last_row_and_its_commit_hears_it_in_its_own_words(
    client: ringfence.Client,
) -> None:
    client.create_topic("late", schema=SCHEMA)
    for topic, of in (("late", 'of topic "late"'), (None, "of the cluster")):
        older = client.transaction(topic, scope="late-one")
        older.send(rows(0, 5), topic="late")
        older.flush()
        client.transaction(topic, scope="late-one")
        with pytest.raises(ringfence.FencedError) as fenced:
            older.commit()
        assert f'client.transaction(scope="late-one") {of} has taken over the scope' in fenced.value.message
        assert not re.search("driver|@", str(fenced.value))


def test_a_topic_that_is_gone_is_named(client: ringfence.Client, node: NodeProcess) -> None:
    """Nodes know its number alone."""
    with ringfence.connect(node.address, timeout_s=30) as other:
        made = {
            name: client.create_topic(name, schema=SCHEMA).topic for name in ("gone-1", "gone-2", "gone-3")
        }
        staging = client.transaction("gone-1", scope="gone")
        staging.send(rows(0, 5))
        staging.flush()
        staged = client.transaction("gone-2", scope="gone")
        staged.send(rows(0, 5))
        staged.flush()
        client.producer("gone-3").send(rows(0, 5)).result(10)
        reader = iter(client.read("gone-3", follow=True))
        next(reader)
        for name in made:
            other.delete_topic(name)

        def send() -> None:
            staging.send(rows(5, 5))
            staging.flush()

        for name, call in (("gone-1", send), ("gone-2", staged.commit), ("gone-3", lambda: next(reader))):
            with pytest.raises(ringfence.NotFoundError) as gone:
                call()
            assert f"public/default/{name}" in gone.value.message
            assert gone.value.topic == f"public/default/{name}"
            assert "was deleted" in gone.value.message


def test_rows_that_cannot_be_staged_name_the_node_that_is_waited_for(
    client: ringfence.Client, node: NodeProcess
) -> None:
    client.create_topic("still", schema=SCHEMA)
    attempt = client.scopes.attempt(client.scopes.begin("still"), 1, timeout_s=2)
    attempt.send("still", rows(0, 5))
    attempt.flush()
    node.freeze()
    try:
        attempt.send("still", rows(5, 5))
        with pytest.raises(ringfence.RingfenceError) as late:
            attempt.flush()
    finally:
        node.wake()
    print(f"{type(late.value).__name__}: {late.value}")
    assert isinstance(late.value, ringfence.WaitTimeoutError)
    assert (late.value.topic, late.value.address) == ("public/default/still", node.address)
    assert late.value.partitions
    assert f"({node.address})" in late.value.message
