"""What a queue has parked, between real processes: lists, retries, exports, `dead_letter=`, tokens."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ringfence
from ringfence import aio
from ringfence.consumer import dead_letters
from ringfence.consumer.exporter import Exported
from ringfence.consumer.parked import ParkedOutcome
from tests.conftest import ROOT
from tests.harness.deliveries import publish
from tests.harness.killed_exporter import STEPS, killed_exporter
from tests.harness.parked_rows import ROWS, copied, park, parked, queue, taken
from tests.harness.processes import SCHEMA, NodeProcess, cli, free_port, until
from tests.harness.token_node import TokenNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def node(module_folder: Path) -> Iterator[NodeProcess]:
    with NodeProcess(module_folder / "data", ("--http", f"127.0.0.1:{free_port()}")) as running:
        yield running


@pytest.fixture
def client(node: NodeProcess) -> Iterator[ringfence.Client]:
    with ringfence.connect(node.address, timeout_s=30) as connected:
        yield connected


@pytest.fixture
def topic(client: ringfence.Client) -> str:
    """A topic of one partition, with 10 records of 16 rows."""
    name = f"t{secrets.token_hex(4)}"
    client.create_topic(name, schema=SCHEMA, key=["producer"], partitions=1)
    publish(client, name, range(10))
    return name


def target(client: ringfence.Client, topic: str) -> str:
    """A topic that takes the rows."""
    name = f"{topic}-parked"
    client.admin.export_parked(topic, "q", to=name, items=[], create=True)
    return name


# ---- list, retry, discard -----------------------------------------------------------------------------


def test_parked_rows_are_listed_put_back_and_discarded(client: ringfence.Client, topic: str) -> None:
    first, second, third = listed = park(client, topic, [5, 40, 100])
    assert [(one.first_offset, one.rows, one.reason) for one in listed] == [
        (5, 1, "row 5"),
        (40, 1, "row 40"),
        (100, 1, "row 100"),
    ]
    assert first.number < second.number < third.number
    assert abs(first.time_ms / 1000 - time.time()) < 60
    assert client.admin.retry_parked(topic, "q", [first]) == ParkedOutcome(done=1)
    assert taken(client, topic) == [5]
    assert client.admin.discard_parked(topic, "q", [second.item, first.item]) == ParkedOutcome(
        done=1, not_parked=(first.item,)
    )
    assert client.admin.retry_parked(topic, "q") == ParkedOutcome(done=1)
    assert parked(client, topic) == []
    assert taken(client, topic) == [100]


def test_a_row_that_fails_too_often_is_parked_with_the_last_reason(
    client: ringfence.Client, topic: str
) -> None:
    with queue(client, topic, limit=2) as consumer:
        until(lambda: consumer.core.is_member, what="the cohort exists")
        failures = 0
        until_s = time.monotonic() + 20
        while not parked(client, topic) and time.monotonic() < until_s:
            if consumer.next(0.2) is None or (delivery := consumer.delivery) is None:
                continue
            if delivery.place.first_offset <= 33 < delivery.place.end_offset:
                failures += 1
                delivery.fail([33 - delivery.place.first_offset], reason=f"failure {failures}")
    (one,) = parked(client, topic)
    assert (one.first_offset, one.rows, one.count, one.reason) == (33, 1, 2, "failure 2")


def test_other_cohorts_and_modes_are_refused(client: ringfence.Client, topic: str) -> None:
    with pytest.raises(ringfence.NotFoundError):
        parked(client, topic)
    with client.consumer(topic, cohort="q") as consumer:
        consumer.next(5)
        with pytest.raises(ringfence.InvalidArgumentError):
            parked(client, topic)


# ---- exports ------------------------------------------------------------------------------------------


def test_exported_rows_have_their_columns_and_leave_the_list(client: ringfence.Client, topic: str) -> None:
    listed, to = park(client, topic, [5, 40]), target(client, topic)
    done = client.admin.export_parked(topic, "q", to=to)
    assert done == Exported(exported=tuple(one.item for one in listed), rows=2)
    assert parked(client, topic) == []
    (row,) = [one for batch in client.read(to) for one in batch.to_pylist() if one["parked_offset"] == 40]
    assert (row["text"], row["parked_cohort"], row["parked_reason"]) == ("8:2", "q", "row 40")
    assert (row["parked_topic"], row["parked_partition"]) == (client.topic(topic).name, listed[1].partition)
    assert client.admin.export_parked(topic, "q", to=to) == Exported()
    assert taken(client, topic) == []


def test_an_exporter_that_is_killed_at_any_step_is_followed_by_one_that_makes_no_second_copy(
    client: ringfence.Client, node: NodeProcess, topic: str
) -> None:
    moments = [f"{step} {moment}" for step in STEPS for moment in ("before", "after")]
    rows = [3 * at for at in range(len(moments))]
    listed, to = park(client, topic, rows), target(client, topic)
    for one, moment in zip(listed, moments, strict=True):
        killed_exporter(node.address, topic, "q", to, one.item, moment)
    begun = {one.item for one in parked(client, topic) if one.is_exporting}
    assert begun == {listed[at].item for at in range(5, 9)}, "from Take on, until it is marked"
    done = client.admin.export_parked(topic, "q", to=to)
    assert set(done.exported) == {one.item for one in listed[:-1]}
    assert done.rows == 7, "two were committed and not marked, one was marked"
    assert copied(client, to) == rows
    assert parked(client, topic) == []


def test_two_exporters_at_once_make_one_copy_of_each(
    client: ringfence.Client, node: NodeProcess, topic: str
) -> None:
    rows = list(range(0, ROWS, 8))
    park(client, topic, rows)
    to = target(client, topic)
    errors: list[Exception] = []

    def export() -> None:
        try:
            with ringfence.connect(node.address, timeout_s=30) as own:
                while parked(own, topic):
                    own.admin.export_parked(topic, "q", to=to)
        except Exception as error:  # noqa: BLE001  # told below
            errors.append(error)

    threads = [threading.Thread(target=export) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert errors == []
    assert parked(client, topic) == []
    assert copied(client, to) == rows


def test_rows_are_put_back_only_if_their_copy_is_not_out(
    client: ringfence.Client, node: NodeProcess, topic: str
) -> None:
    (begun, out), to = park(client, topic, [5, 40]), target(client, topic)
    killed_exporter(node.address, topic, "q", to, begun.item, "Take after")
    killed_exporter(node.address, topic, "q", to, out.item, "Commit after")
    outcome = client.admin.retry_parked(topic, "q", [begun, out])
    assert outcome == ParkedOutcome(done=1, exported=(out.item,))
    assert taken(client, topic) == [5]
    done = client.admin.export_parked(topic, "q", to=to, items=[begun, out])
    assert done == Exported(not_parked=(begun.item, out.item))
    assert copied(client, to) == [40]


def test_a_forgotten_scope_is_not_guessed_about(
    client: ringfence.Client, node: NodeProcess, topic: str
) -> None:
    (one,), to = park(client, topic, [5]), target(client, topic)
    killed_exporter(node.address, topic, "q", to, one.item, "Commit after")
    name = next(scope for scope in _scopes(node) if scope.endswith(f"/{one.partition}/{one.number}"))
    assert cli("scope", "forget", name, "--yes", "--http", node.ready["http"]).returncode == 0
    with pytest.raises(ringfence.ConflictError, match="not known") as caught:
        client.admin.export_parked(topic, "q", to=to)
    assert caught.value.details["unknown"] == (one.item,)
    assert client.admin.discard_parked(topic, "q").unknown == (one.item,)
    assert client.admin.export_parked(topic, "q", to=to, again=True).exported == (one.item,)
    assert copied(client, to) == [5, 5], "said so: they may be there twice"


def _scopes(node: NodeProcess) -> list[str]:
    done = cli("scope", "list", "--json", "--http", node.ready["http"])
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["name"] for line in done.stdout.splitlines()]


def test_a_target_that_does_not_take_the_rows_leaves_them_parked(
    client: ringfence.Client, topic: str
) -> None:
    park(client, topic, [5])
    plain = f"{topic}-plain"
    client.create_topic(plain, schema=SCHEMA)
    with pytest.raises(ringfence.SchemaError, match="parked_topic is missing"):
        client.admin.export_parked(topic, "q", to=plain)
    with pytest.raises(ringfence.NotFoundError):
        client.admin.export_parked(topic, "q", to="nowhere")
    with pytest.raises(ringfence.InvalidArgumentError, match="into itself"):
        client.admin.export_parked(topic, "q", to=topic)
    assert len(parked(client, topic)) == 1


def test_rows_that_retention_removed_are_counted_and_the_range_is_over(
    client: ringfence.Client, topic: str
) -> None:
    (one, two), to = park(client, topic, [5, 40]), target(client, topic)
    client.truncate(topic, partition=one.partition, before_offset=16)
    until(lambda: [each.gone for each in parked(client, topic)] == [1, 0], what="the list says it")
    done = client.admin.export_parked(topic, "q", to=to)
    assert done == Exported(exported=(one.item, two.item), rows=1, gone=1)
    assert (copied(client, to), parked(client, topic)) == ([40], [])


# ---- dead_letter= -------------------------------------------------------------------------------------


def test_dead_letters_are_exported_while_delivery_goes_on(client: ringfence.Client, topic: str) -> None:
    park(client, topic, [])
    to = target(client, topic)
    publish(client, topic, range(10, 20))
    bad = ROWS + 7
    done: set[int] = set()
    with queue(client, topic, limit=2, dead_letter=to) as consumer:
        end = time.monotonic() + 40
        while time.monotonic() < end and not (len(done) == ROWS - 1 and copied(client, to)):
            if consumer.next(0.2) is None or (delivery := consumer.delivery) is None:
                continue
            place = delivery.place
            if place.first_offset <= bad < place.end_offset:
                delivery.fail([bad - place.first_offset], reason="no such address")
            done |= set(range(place.first_offset, place.end_offset)) - {bad}
        consumer.ack(wait=True)
    assert copied(client, to) == [bad]
    assert done == set(range(ROWS, 2 * ROWS)) - {bad}
    (row,) = [one for batch in client.read(to) for one in batch.to_pylist()]
    assert row["parked_reason"] == "no such address"
    until(lambda: not parked(client, topic), what="it is off the list")


def test_what_others_left_is_exported_when_a_member_starts(
    client: ringfence.Client, node: NodeProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "AGE_MS", 0)
    listed, to = park(client, topic, [5, 40]), target(client, topic)
    killed_exporter(node.address, topic, "q", to, listed[0].item, "Commit after")

    async def work() -> None:
        async with (
            aio.connect(node.address, timeout_s=30) as own,
            own.consumer(topic, cohort="q", mode="queue", dead_letter=to) as consumer,
        ):
            end = time.monotonic() + 20
            while time.monotonic() < end and [one async for one in own.admin.parked(topic, "q")]:
                await consumer.next(0.2)

    asyncio.run(work())
    assert parked(client, topic) == []
    assert copied(client, to) == [5, 40]


def test_a_dead_letter_topic_is_checked_when_the_consumer_starts(
    client: ringfence.Client, topic: str
) -> None:
    with pytest.raises(ringfence.InvalidArgumentError, match="into itself"):
        queue(client, topic, dead_letter=topic)
    with pytest.raises(ringfence.NotFoundError):
        queue(client, topic, dead_letter="nowhere")
    with pytest.raises(ringfence.InvalidArgumentError, match="dead_letter"):
        client.consumer(topic, cohort="s", dead_letter="nowhere")


def test_a_member_needs_the_right_to_write_for_dead_letters_only(tmp_path: Path) -> None:
    locked = TokenNode(tmp_path)
    with locked.node:
        for name, role in (("root", "admin"), ("member", "consumer"), ("writer", "writer")):
            locked.make(name, role)
        with locked.connect("root") as client:
            client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=1)
            publish(client, "t", range(10))
            park(client, "t", [5, 40])
            to = target(client, "t")
        with locked.connect("member") as client:
            with pytest.raises(ringfence.UnauthorizedError):
                queue(client, "t", dead_letter=to)
            with pytest.raises(ringfence.UnauthorizedError):
                client.admin.export_parked("t", "q", to=to)
            first, second = parked(client, "t")
            assert client.admin.discard_parked("t", "q", [first]).done == 1
        with locked.connect("writer") as client:
            queue(client, "t", dead_letter=to).close()
            assert second.item in client.admin.export_parked("t", "q", to=to).exported or copied(client, to)


def test_the_examples_of_the_page_run(client: ringfence.Client, node: NodeProcess, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "consumers.md").read_text()
    blocks = re.findall(r"<!-- run: parked -->\n```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    client.create_topic("mails", schema=SCHEMA, key=["producer"], partitions=1)
    publish(client, "mails", range(10))
    offsets = [5, 40, 100]
    with client.consumer("mails", cohort="send", mode="queue", ack="manual") as consumer:
        got = 0
        while got < ROWS:
            delivery = next(consumer.deliveries())
            first, got = delivery.place.first_offset, got + delivery.place.rows
            for row in offsets:
                if first <= row < delivery.place.end_offset:
                    delivery.park([row - first], reason="no such address")
            delivery.ack()
        consumer.ack(wait=True)
    until(lambda: len(list(client.admin.parked("mails", "send"))) == 3, what="all are parked")

    class BadRowsError(Exception):
        """Rows that cannot be sent."""

        def __init__(self, rows: list[int]) -> None:
            super().__init__("no such address")
            self.rows = rows

    def send(batch: Any) -> None:
        bad = [at for at, text in enumerate(batch.column("text").to_pylist()) if text == "0:10"]
        if bad:
            raise BadRowsError(bad)

    given = {"ringfence": ringfence, "address": node.address, "BadRows": BadRowsError, "send": send}
    (tmp_path / "lists.py").write_text(blocks[0])
    (tmp_path / "letters.py").write_text(
        blocks[1].replace("in consumer.deliveries()", "in deliveries(consumer)")
    )
    runpy.run_path(str(tmp_path / "lists.py"), init_globals=given)
    assert copied(client, "mails-parked") == [100]
    assert list(client.admin.parked("mails", "send")) == []
    publish(client, "mails", range(10, 11))

    def deliveries(consumer: ringfence.Consumer) -> Iterator[ringfence.Delivery]:
        """Until the bad row is exported."""
        end = time.monotonic() + 30
        while time.monotonic() < end and len(copied(client, "mails-parked")) < 2:
            if consumer.next(0.2) is not None and consumer.delivery is not None:
                yield consumer.delivery

    runpy.run_path(str(tmp_path / "letters.py"), init_globals=given | {"deliveries": deliveries})
    assert len(copied(client, "mails-parked")) == 2
