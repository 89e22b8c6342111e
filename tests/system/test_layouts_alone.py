"""Layout changes of one node: a storm of sends at the cut, lost answers, and names that are used again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import ringfence
from ringfence.arrow.keys import slots
from ringfence.native import _node, messages, wire
from ringfence.native.errors import NotFoundError
from tests.harness.admin_http import ask, with_http
from tests.harness.layouts_seen import Layouts, layouts_seen
from tests.harness.processes import SCHEMA, NodeProcess, batch, cli, until
from tests.harness.proxy import Proxy
from tests.harness.raw_client import RawClient, RawTopic

SENDS = 10_000
WAIT_S = 60.0
PLACE = "/admin/topics/public/default"
Change = Callable[[ringfence.Client, str], None]


class Alone:
    """A node with its admin API."""

    def __init__(self, folder: Path) -> None:
        self.node = NodeProcess(folder / "node")
        self.http = with_http(self.node)

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = ask(self.http, "GET", "/admin/status").body["counters"]
        return counters

    def layouts(self) -> Layouts:
        """All layouts, once no layout change of an earlier test is open."""
        until(
            lambda: ask(self.http, "GET", "/admin/transitions").body["count"] == 0, 60, "the end of changes"
        )
        return layouts_seen(self.http)

    def connected(self) -> ringfence.Client:
        return ringfence.connect(self.node.address, timeout_s=WAIT_S)


@pytest.fixture(scope="module")
def alone(module_folder: Path) -> Iterator[Alone]:
    made = Alone(module_folder)
    with made.node:
        # No change ends because the machine is busy.
        limits = {"values": {"hold_timeout_ms": 60_000}}
        assert ask(made.http, "PATCH", "/admin/config", limits, if_match="*").status == 200
        yield made


def split(client: ringfence.Client, topic: str, at: int = 0) -> None:
    client.admin.split(topic, client.layout(topic).active[at].partition, wait_s=WAIT_S)


def merge(client: ringfence.Client, topic: str) -> None:
    one, other, *_ = client.layout(topic).active
    client.admin.merge(topic, one.partition, other.partition, wait_s=WAIT_S)


def split_and_merge(client: ringfence.Client, topic: str) -> None:
    split(client, topic)
    merge(client, topic)


def ids(client: ringfence.Client, topic: str) -> list[int]:
    return [one for part in client.read(topic) for one in part.column("id").to_pylist()]


# ---- one split, 2,958 opens in a second -------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "storm"])
def test_a_split_under_ten_thousand_sends_opens_nothing_and_logs_little(
    alone: Alone, caplog: pytest.LogCaptureFixture, name: str | None
) -> None:
    """The node stands still until all sends are on their way, and the split is asked for."""
    topic = f"storm-{name}"
    with alone.connected() as client, alone.connected() as admin, ThreadPoolExecutor(1) as pool:
        admin.create_topic(topic, schema=SCHEMA, key=["id"], partitions=4)
        producer = client.producer(topic, name=name)
        producer.send(batch(0, 100)).result(WAIT_S)
        first = admin.layout(topic).active[0].partition
        before, said = alone.counters(), alone.node.log.stat().st_size
        alone.node.freeze()
        futures = [producer.send(batch(100 + number, 1)) for number in range(SENDS)]
        assert not any(future.done() for future in futures)
        splitting = pool.submit(admin.admin.split, topic, first, into=8, wait_s=WAIT_S)
        alone.node.wake()
        splitting.result(WAIT_S)
        for future in futures:
            future.result(WAIT_S)
        after = alone.counters()
        more = {key: after[key] - before[key] for key in ("connections_opened", "control_requests")}
        assert more["connections_opened"] == 0
        # The split with its repeats; an open would be one more. A producer opens once a life.
        assert more["control_requests"] <= 6, more
        # What is neither rows nor control: tables that were asked for, and their acknowledgements.
        small = after["requests"] - before["requests"] - (after["publishes"] - before["publishes"])
        assert small - more["control_requests"] <= 30, "a few tables of each layout"
        assert after["publishes"] - before["publishes"] <= 3 * SENDS, "each send a few times at most"
        written = alone.node.log.read_bytes()[said:].splitlines()
        assert len(written) <= 30, written[:30]
        assert len(caplog.records) <= 3, caplog.records
        producer.close()
        assert sorted(ids(client, topic)) == [*range(100 + SENDS)]


def test_a_close_in_the_middle_of_a_split_takes_no_second(alone: Alone) -> None:
    """Closing made 1,112 more opens there. Here it gives each send its outcome, and ends."""
    with alone.connected() as client, alone.connected() as admin, ThreadPoolExecutor(1) as pool:
        admin.create_topic("closed", schema=SCHEMA, key=["id"], partitions=2)
        producer = client.producer("closed")
        producer.send(batch(0, 100)).result(WAIT_S)
        first = admin.layout("closed").active[0].partition
        before = alone.counters()
        alone.node.freeze()
        try:
            for number in range(SENDS):
                producer.send(batch(100 + number, 1))
            splitting = pool.submit(admin.admin.split, "closed", first, into=4, wait_s=WAIT_S)
            until(splitting.running)
            began = time.thread_time(), time.monotonic()
            with pytest.raises(ringfence.RingfenceError):
                producer.close(timeout_s=0.1)
            # A machine with other work takes longer, and no more of this thread's time.
            assert time.thread_time() - began[0] < 1
            assert time.monotonic() - began[1] < 5
        finally:
            alone.node.wake()
        splitting.result(WAIT_S)
        assert alone.counters()["control_requests"] - before["control_requests"] <= 6
        sure = {
            100 + number - 2
            for number, error in ((failure.send, failure.error) for failure in producer.failures)
            if not isinstance(error, ringfence.UnknownOutcomeError)
        }
        found = ids(client, "closed")
        assert len(found) == len({*found}), "a row is there twice"
        assert {*range(100)} <= {*found}
        assert not sure & {*found}, "L5: refused and stored"


# ---- an answer that is lost at the cut --------------------------------------------------------------------


@pytest.fixture(scope="module")
def unheard(module_folder: Path) -> Iterator[tuple[NodeProcess, Proxy]]:
    """A node that clients reach through a proxy alone, and by its own address who is given that."""
    node = NodeProcess(module_folder / "unheard")
    with Proxy(node.address) as proxy:
        node.options = ("--advertise", proxy.address)
        with node:
            yield node, proxy


@pytest.mark.parametrize("name", [None, "lost"])
def test_a_send_whose_answer_was_lost_before_the_cut_is_stored_once(
    unheard: tuple[NodeProcess, Proxy], name: str | None
) -> None:
    """Over a split, over a merge in which two tables of the producer meet, and over both."""
    node, proxy = unheard
    topic = f"lost-{name}"
    changes: list[Change] = [split, merge, split_and_merge, split]
    with (
        ringfence.connect(node.address, timeout_s=WAIT_S) as admin,
        ringfence.connect(proxy.address, timeout_s=WAIT_S) as client,
    ):
        admin.create_topic(topic, schema=SCHEMA, key=["id"], partitions=2)
        producer = client.producer(topic, name=name)
        producer.send(batch(0, 40)).result(WAIT_S)
        sent = 40
        for change in changes:
            stored = admin.count(topic)
            proxy.mute_for_good()
            futures = [producer.send(batch(sent + 40 * number, 40)) for number in range(5)]
            sent += 200
            until(lambda stored=stored: admin.count(topic) > stored, what="rows that nobody was told of")
            assert not any(future.done() for future in futures)
            change(admin, topic)
            proxy.heal()
            for future in futures:
                assert sum(part.rows for part in future.result(WAIT_S)) == 40
            found = ids(admin, topic)
            assert len(found) == sent, "a send was stored twice, or not at all"
            assert sorted(found) == [*range(sent)]
        producer.close()


# ---- a name that is used again ----------------------------------------------------------------------------


class Incarnations:
    """Producers of a topic that is deleted and made again; each row tells the topic that it was sent to."""

    def __init__(self, address: str, topic: str) -> None:
        self._address, self._topic = address, topic
        self.acknowledged: dict[int, set[int]] = {}
        """By the id of the topic that the producer was opened for."""
        self.refusals = 0
        self.errors: list[BaseException] = []
        self.stop = threading.Event()
        self._next = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(named,)) for named in (False, True)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(2 * WAIT_S)
        assert not any(thread.is_alive() for thread in self._threads), "a producer hangs"
        assert self.errors == []

    def _run(self, named: bool) -> None:
        try:
            with ringfence.connect(self._address, timeout_s=WAIT_S) as client:
                while not self.stop.is_set():
                    self._life(client, "again" if named else None)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self.errors.append(error)

    def _life(self, client: ringfence.Client, name: str | None) -> None:
        """One producer, until its topic is gone: then each send must be a typed error."""
        try:
            producer = client.producer(self._topic, name=name)
        except NotFoundError:
            self.stop.wait(0.01)
            return
        opened = producer._sender.layout.topic
        try:
            while not self.stop.is_set():
                with self._lock:
                    first, self._next = self._next, self._next + 4
                producer.send(batch(first, 4, producer=opened)).result(WAIT_S)
                self.acknowledged.setdefault(opened, set()).update(range(first, first + 4))
        except NotFoundError as error:
            assert "no longer exists" in str(error), error
            self.refusals += 1
        with contextlib.suppress(NotFoundError):
            producer.close()


def test_a_topic_that_is_made_again_under_sends_and_splits_mixes_no_incarnations(alone: Alone) -> None:
    """An acknowledgement belongs to the topic that was opened, or the send is a typed error."""
    with alone.connected() as client:
        load = Incarnations(alone.node.address, "again")
        load.start()
        try:
            gone: list[int] = []
            for turn in range(6):
                made = client.create_topic("again", schema=SCHEMA, key=["id"], partitions=2).topic
                until(lambda made=made: load.errors or len(load.acknowledged.get(made, ())) > 40)
                follower = client.read("again", follow=True)
                assert {*next(follower).column("producer").to_pylist()} == {made}
                if turn % 3 != 2:
                    split(client, "again")
                if turn % 3 == 1:
                    client.admin.repartition("again", 1, wait_s=WAIT_S)
                acknowledged = {*load.acknowledged[made]}
                rows = [
                    pair
                    for part in client.read("again")
                    for pair in zip(
                        *(part.column(key).to_pylist() for key in ("id", "producer")), strict=True
                    )
                ]
                assert {topic for _, topic in rows} == {made}, "rows of another incarnation"
                found = [row for row, _ in rows]
                assert len(found) == len({*found})
                assert acknowledged <= {*found}, "an acknowledged row is in no incarnation"
                client.delete_topic("again")
                gone.append(made)
                with pytest.raises(NotFoundError):
                    for _ in follower:
                        pass
            assert len({*gone}) == 6, "an id was used again"
        finally:
            load.finish()
        assert load.refusals >= 6, "producers were at work while the topic went"


# ---- rows of transactions are load ------------------------------------------------------------------------


def test_a_split_is_where_the_load_of_transactions_is(alone: Alone) -> None:
    """Staged rows did not count there. No others come here; their keys have a quarter of the slots."""
    with alone.connected() as client:
        client.create_topic("staged", schema=SCHEMA, key=["id"], partitions=1)
        [part] = client.layout("staged").active
        rows = batch(0, 8_000)
        hot = rows.filter(pa.array(slots(rows, "id") >= 3 * 16_384))
        assert client.admin.split("staged", part.partition, preview=True).would[1][0] == 32_768, "no load yet"

        def cut() -> int:
            with client.transaction("staged", scope="load") as open_one:
                for _ in range(5):
                    open_one.send(hot)
            return client.admin.split("staged", part.partition, preview=True).would[1][0]

        until(lambda: abs(cut() - 7 * 8_192) < 2_048, 60, "a cut in the middle of the load")


# ---- what is refused at a sealed partition -----------------------------------------------------------------


def test_a_sealed_partition_refuses_raw_requests_and_keeps_its_end(alone: Alone) -> None:
    """Stale and future versions and epochs, other producers, an older client: no byte of metadata changes."""
    with (
        alone.connected() as admin,
        RawClient(alone.node.address) as raw,
        RawClient(alone.node.address) as old,
    ):
        features = wire.Features.RESUME_RANGES | wire.Features.LINEAGE
        hello = messages.Hello(version_min=1, version_max=1, client="raw", features=features)
        assert raw.control(wire.Opcode.HELLO, hello).status == wire.Status.READY
        assert old.hello().status == wire.Status.READY
        topic = RawTopic(raw, "sealed", SCHEMA, ["id"])
        for sequence in range(3):
            assert topic.publish(batch(10 * sequence, 10), sequence).status == wire.Status.OK
        parent = topic.place()
        split(admin, "sealed")
        topic.refresh()
        assert topic.table.version == 2
        metadata = alone.layouts()
        body = batch(30, 10)
        wrong = [
            {},
            {"layout_version": 2},
            {"layout_version": 2, "owner_epoch": 0},
            {"layout_version": 2, "owner_epoch": 1 << 40},
            {"sequence": 9},
            {"producer_id": 1 << 50, "producer_epoch": 1 << 50, "sequence": 0},
        ]
        for changed in wrong:
            fields = {**topic.fields(10, 3), **parent, **changed}
            answer = raw.ask(wire.Opcode.PUBLISH, body.serialize().to_pybytes(), **fields)
            assert answer.reason == wire.RedirectReason.SEALED, (changed, answer)
            told = answer.read(messages.Redirected)
            assert told.version == 2
            assert {*told.children} == {part.partition for part in admin.layout("sealed").active}
            stored = 0 if "producer_id" in changed else 3
            assert (answer.header.sequence, told.stored) == (stored, stored)
        repeated = raw.ask(
            wire.Opcode.PUBLISH, batch(20, 10).serialize().to_pybytes(), **{**topic.fields(10, 2), **parent}
        )
        assert (repeated.status, repeated.header.first_offset) == (wire.Status.OK, 20)
        assert repeated.header.flags & wire.AnswerFlags.REPEATED
        where = {"topic": topic.topic, "partition": parent["partition"], "layout_version": 2}
        ends = raw.ask(wire.Opcode.END_OFFSETS, **where)
        assert (ends.header.end_offset, ends.header.flags) == (30, wire.AnswerFlags.ENDED)
        # An older client is served what there is, and refused where it would pass rows over.
        assert old.ask(wire.Opcode.FETCH, **where, send=1 << 16).header.rows == 30
        for header in (
            {**where, "sequence": 30},
            {**where, "partition": topic.table.partitions[1].partition},
        ):
            refused = old.ask(wire.Opcode.FETCH, **header, send=1 << 16)
            assert refused.code == wire.Code.NOT_SUPPORTED, refused
        for sequence in (1, 31, 1 << 60):
            beyond = raw.ask(wire.Opcode.FETCH, **where, sequence=30 + sequence, send=1 << 16)
            assert beyond.code == wire.Code.TRUNCATED
        assert alone.layouts() == metadata
        assert raw.ask(wire.Opcode.END_OFFSETS, **where).header.end_offset == 30


def test_acknowledgements_and_requests_for_tables_of_the_future_change_nothing(alone: Alone) -> None:
    with RawClient(alone.node.address) as raw, alone.connected() as admin:
        raw.hello()
        topic = RawTopic(raw, "future", SCHEMA, ["id"])
        metadata = alone.layouts()
        for number in (0, 1, (1 << 63) + 5, (1 << 64) - 1):
            raw.send(wire.Opcode.TABLE_ACK, topic=topic.topic, sequence=number)
            raw.send(wire.Opcode.TABLE_ACK, topic=1 << 60, sequence=number)
        for version in (2, 1 << 31, (1 << 32) - 1):
            ahead = raw.ask(wire.Opcode.TABLE, topic=topic.topic, layout_version=version, deadline_ms=50)
            assert ahead.code == wire.Code.AHEAD
        held = raw.ask(wire.Opcode.TABLE, topic=topic.topic, sequence=(1 << 64) - 1)
        assert held.status == wire.Status.OK
        assert alone.layouts() == metadata
        # And none of it keeps the next change from being adopted and ended.
        split(admin, "future")
        current = raw.ask(wire.Opcode.TABLE, topic=topic.topic).header.generation
        raw.send(wire.Opcode.TABLE_ACK, topic=topic.topic, sequence=current)
        until(lambda: not admin.admin.transitions("future"), 60, "the end of the change")


def test_a_partition_is_no_topic_and_no_topic_is_named_like_one(alone: Alone) -> None:
    """S10: over HTTP, by the command line, the library and raw frames; of an ACTIVE and of a SEALED one."""
    with alone.connected() as admin, RawClient(alone.node.address) as raw:
        admin.create_topic("named", schema=SCHEMA, key=["id"], partitions=1)
        split(admin, "named")
        parts = ask(alone.http, "GET", f"{PLACE}/named/layout").body["partitions"]
        assert {part["state"] for part in parts} == {"ACTIVE", "SEALED"}
        before = alone.layouts()
        column = {"name": "id", "type": "int64", "nullable": False}
        raw.hello()
        for name in (part["name"] for part in parts):
            made = {"name": name, "columns": [column], "key": ["id"], "partitions": 1}
            assert ask(alone.http, "POST", "/admin/topics", made).status == 422
            created = ("topic", "create", name, "--column", "id:int64", "--http", alone.http)
            assert cli(*created).returncode != 0
            with pytest.raises(ringfence.InvalidArgumentError):
                admin.create_topic(name, schema=SCHEMA, key=["id"])
            message = messages.TopicCreate(name=name, schema=SCHEMA.serialize().to_pybytes(), key=["id"])
            assert raw.control(wire.Opcode.TOPIC_CREATE, message).code == wire.Code.INVALID_ARGUMENT
            assert ask(alone.http, "GET", f"{PLACE}/{name}").status == 404
            assert ask(alone.http, "DELETE", f"{PLACE}/{name}").status == 404
            for call in (
                admin.topic,
                admin.producer,
                admin.read,
                admin.count,
                admin.delete_topic,
                admin.layout,
            ):
                with pytest.raises(NotFoundError):
                    call(name)
        for part in parts:
            unknown = raw.ask(wire.Opcode.TABLE, topic=part["partition"])
            assert unknown.code == wire.Code.UNKNOWN_TOPIC
        assert alone.layouts() == before


# ---- deletion ---------------------------------------------------------------------------------------------


def test_a_topic_that_was_split_is_deleted_with_all_of_its_partitions(tmp_path: Path) -> None:
    """P2, and a topic without rows in some of its partitions. The stopped node's log is what is looked at."""
    made = Alone(tmp_path)
    with made.node:
        with made.connected() as client:
            for topic in ("kept", "goes"):
                client.create_topic(topic, schema=SCHEMA, key=["id"], partitions=2)
                with client.producer(topic) as producer:
                    producer.send(batch(0, 1_000)).result(WAIT_S)
                split(client, topic)
                client.admin.repartition(topic, 5, wait_s=WAIT_S)
            kept = {*client.layout("kept").partitions}
            client.delete_topic("goes")
            assert [topic.name for topic in client.topics()] == ["public/default/kept"]
        assert ask(made.http, "GET", f"{PLACE}/goes/layout").status == 404
    done = cli("fsck", "--data", str(made.node.data))
    assert done.returncode == 0, done.stdout + done.stderr
    found = {part["partition"] for part in _node.fsck(str(made.node.data / "log"))["partitions"]}
    assert found == kept, "what was deleted leaves no partition, neither parents nor children"
