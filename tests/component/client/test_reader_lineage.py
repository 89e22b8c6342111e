"""A reader over a topic that is split, merged, repartitioned and pruned, against a node in Python."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import ringfence
import ringfence.aio
from ringfence.cluster.offsets import Position
from ringfence.native.wire import Code, Opcode, RedirectReason, RequestHeader
from tests.fakes.client_topic import SCHEMA, rows, until
from tests.fakes.lineage_node import FIRST_MS, LineageNode
from tests.fakes.socket_node import Fault, Redirect, Refuse

ROWS = 10


@contextmanager
def topic(partitions: int = 1, *, timeout_s: float = 10) -> Iterator[tuple[LineageNode, ringfence.Client]]:
    with LineageNode() as node, ringfence.connect(node.address, timeout_s=timeout_s) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=partitions)
        yield node, client  # type: ignore[misc]
        node.hook = None


class Writer:
    """Appends rows with ascending ids. `log`: (partition, id) of each, in the order of the log."""

    def __init__(self, node: LineageNode) -> None:
        self.node, self.next, self.log = node, 0, list[tuple[int, int]]()

    def put(self, count: int = ROWS, first: int = 0) -> None:
        log = self.node.put("t", rows(self.next, count), first)
        self.log += [(log.partition, one) for one in range(self.next, self.next + count)]
        self.next += count

    @property
    def ids(self) -> list[int]:
        return [one for _, one in self.log]


def read(reader: ringfence.Reader, limit: int | None = None) -> list[int]:
    """Ids in the order in which the reader returns them; `limit`: of batches."""
    found: list[int] = []
    for number, batch in enumerate(reader, 1):
        found += batch.column("id").to_pylist()
        if number == limit:
            break
    return found


def following(reader: ringfence.Reader, count: int) -> list[int]:
    """The next rows of a follower, at least `count`."""
    found: list[int] = []
    while len(found) < count:
        found += next(reader).column("id").to_pylist()
    return found


# ---- one pass ----------------------------------------------------------------------------------------------


def test_a_topic_that_was_split_once_is_read_in_lineage_order() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        node.split("t")
        for _ in range(3):
            writer.put(first=1)
            writer.put(first=0)
        found = read(client.read("t"))
        assert found[:ROWS] == list(range(ROWS)), "the parent comes first"
        assert sorted(found) == writer.ids
        assert client.count("t") == len(writer.ids)


def test_a_merged_partition_comes_after_both_parents_and_an_empty_one_is_no_obstacle() -> None:
    with topic(3) as (node, client):
        writer = Writer(node)
        writer.put(first=0)
        writer.put(first=1)
        node.merge("t", 3)  # the third has no rows
        writer.put()
        found = read(client.read("t"))
        assert (sorted(found), found[-ROWS:]) == (writer.ids, writer.ids[-ROWS:])


def test_ends_list_every_partition_of_the_table_and_say_which_are_sealed() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        left, right = node.split("t")
        writer.put(4)
        ends = client.end_offsets("t")
        assert {one: (end.end, end.ended) for one, end in ends.items()} == {
            parent: (ROWS, True),
            left.partition: (4, False),
            right.partition: (0, False),
        }
        assert client.count("t", partition=parent) == ROWS


def test_a_count_asks_for_a_newer_table_where_a_node_gave_an_old_one() -> None:
    """What was stored before the count is in it, also where the node lags that gives the table."""
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        node.remember_table("t", answers=3)
        node.split("t")
        writer.put()
        assert client.count("t") == 2 * ROWS
        assert node.needed[-1] == 2, "the request names the version that it needs"


def test_one_pass_ends_where_its_partitions_ended_when_it_began() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        reader = client.read("t")
        node.split("t")
        writer.put()
        assert read(reader) == list(range(ROWS))
        assert read(client.read("t", start=reader.positions())) == list(range(ROWS, 2 * ROWS))


# ---- following ---------------------------------------------------------------------------------------------


def test_a_follower_goes_on_in_the_children() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        reader = client.read("t", follow=True)
        assert following(reader, ROWS) == list(range(ROWS))
        (parent,) = [place.partition for place in reader.positions()]
        left, right = node.split("t")
        writer.put(first=0)
        writer.put(first=1)
        assert sorted(following(reader, 2 * ROWS)) == list(range(ROWS, 3 * ROWS))
        assert {place.partition for place in reader.positions()} == {left.partition, right.partition}
        assert reader.ended == {parent}


def test_children_are_not_fetched_before_both_parents_are_finished() -> None:
    with topic(2) as (node, client):
        writer = Writer(node)
        writer.put(first=0)
        for _ in range(5):
            writer.put(first=1)
        slow = node.active("t")[1].partition
        merged = node.merge("t").partition
        writer.put()
        held, order = True, list[int]()

        def hook(header: RequestHeader) -> Fault | None:
            if header.opcode != Opcode.FETCH:
                return None
            order.append(header.partition)
            return Refuse(Code.OVERLOADED, 20) if held and header.partition == slow else None

        node.hook = hook
        reader = client.read("t", follow=True)
        found = following(reader, ROWS)
        until(lambda: order.count(slow) > 2)
        assert merged not in order
        held = False
        found += following(reader, 6 * ROWS)
        assert sorted(found[:-ROWS]) == list(range(6 * ROWS))
        assert found[-ROWS:] == list(range(6 * ROWS, 7 * ROWS))


def test_a_follower_waits_for_a_table_that_knows_the_children() -> None:
    """A node that lags answers with the table of before: the parent stays in the positions until then."""
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        reader = client.read("t", follow=True)
        node.remember_table("t", answers=4)
        node.split("t")
        writer.put()
        assert following(reader, ROWS) == list(range(ROWS))
        assert [place.partition for place in reader.positions()] == [parent]
        assert following(reader, ROWS) == list(range(ROWS, 2 * ROWS))
        assert node.stale == 0


def test_a_follower_that_gets_no_newer_table_says_so_and_goes_on_later() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        reader = client.read("t", follow=True, timeout_s=0.3)
        node.remember_table("t", answers=1_000)
        node.split("t")
        writer.put()
        following(reader, ROWS)
        with pytest.raises(ringfence.RerouteError, match="no node has told what replaced it") as caught:
            next(reader)
        assert caught.value.reason is RedirectReason.SEALED
        node.stale = 0
        assert following(reader, ROWS) == list(range(ROWS, 2 * ROWS))


def test_rows_of_a_child_that_retention_took_before_they_were_read_are_an_error() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        reader = client.read("t", follow=True)
        following(reader, ROWS)
        left, _ = node.split("t")
        writer.put()
        writer.put()
        left.start = ROWS
        with pytest.raises(ringfence.TruncatedError, match="rows 0 to 9 were removed") as caught:
            next(reader)
        assert (caught.value.partition, caught.value.details["rows_lost"]) == (left.partition, ROWS)
        skipping = client.read("t", start=reader.positions(), follow=True, on_truncated="skip")
        assert following(skipping, ROWS) == list(range(2 * ROWS, 3 * ROWS))


# ---- partition= --------------------------------------------------------------------------------------------


def test_a_reader_of_one_partition_ends_where_that_one_was_sealed_and_reads_no_child() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        reader = client.read("t", partition=parent, follow=True)
        assert following(reader, ROWS) == list(range(ROWS))
        assert reader.ended == frozenset()
        node.split("t")
        writer.put()
        assert read(reader) == []
        assert reader.ended == {parent}
        assert [place[:2] for place in reader.positions()] == [(parent, ROWS)], "else: from the start"
        again = client.read("t", partition=parent, start=reader.positions(), follow=True)
        assert (read(again), again.ended) == ([], {parent})


def test_a_list_of_partitions_is_read_in_lineage_order() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        left, _ = node.split("t")
        writer.put(first=0)
        writer.put(first=1)
        node.split("t", 0)
        last = node.active("t")[0].partition
        writer.put(first=0)
        found = read(client.read("t", partition=[last, parent]))
        assert found == [*range(ROWS), *range(3 * ROWS, 4 * ROWS)]
        assert read(client.read("t", partition=left.partition)) == list(range(ROWS, 2 * ROWS))


def test_a_partition_that_was_pruned_is_not_there_any_more_and_the_error_says_why() -> None:
    with topic() as (node, client):
        (parent,) = node.topic_of("t").logs
        node.split("t")
        node.prune("t", parent)
        with pytest.raises(ringfence.NotFoundError) as caught:
            client.read("t", partition=parent)
        assert caught.value.details["pruned"] is True


# ---- positions ---------------------------------------------------------------------------------------------


def test_positions_of_every_step_of_a_split_go_on_at_every_later_step() -> None:
    """Exactly the rows that were not returned, whatever happened between."""

    def steps(node: LineageNode, writer: Writer) -> list[Callable[[], Any]]:
        return [
            lambda: writer.put(3),
            lambda: writer.put(3),
            lambda: node.split("t"),
            lambda: writer.put(3, 0),
            lambda: writer.put(3, 1),
            lambda: node.merge("t"),
            lambda: writer.put(3),
            lambda: node.split("t", 0, 3),
            lambda: writer.put(3, 2),
        ]

    count = 9
    for kept_at in range(count):
        for batches in (0, 1, 2, 9):
            with topic() as (node, client):
                writer = Writer(node)
                done = steps(node, writer)
                for step in done[: kept_at + 1]:
                    step()
                reader = client.read("t")
                found = read(reader, batches) if batches else []
                positions = reader.positions()
                for step in done[kept_at + 1 :]:
                    step()
                    rest = read(client.read("t", start=positions))
                    assert sorted([*found, *rest]) == writer.ids


def test_a_position_in_a_pruned_partition_is_finished_at_its_end_and_an_error_before() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        node.split("t")
        writer.put()
        node.prune("t", parent)
        assert read(client.read("t", start={parent: ROWS})) == list(range(ROWS, 2 * ROWS))
        with pytest.raises(ringfence.TruncatedError, match="rows 4 to 9 were removed") as caught:
            client.read("t", start=[Position(parent, 4, 1)])
        assert (caught.value.details["pruned"], caught.value.details["rows_lost"]) == (True, 6)
        skipping = client.read("t", start={parent: 4}, on_truncated="skip")
        assert read(skipping) == list(range(ROWS, 2 * ROWS))


def test_what_came_and_went_since_the_positions_is_an_error() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        positions = client.read("t", start="latest").positions()
        (parent,) = node.topic_of("t").logs
        (left, _) = node.split("t")
        node.split("t", 0)
        node.prune("t", parent)
        node.prune("t", left.partition)
        with pytest.raises(ringfence.TruncatedError, match="may be lost"):
            client.read("t", start=positions)
        assert read(client.read("t")) == []
        assert read(client.read("t", start=positions, on_truncated="skip")) == []


def test_a_follower_reads_what_it_has_of_a_pruned_partition_and_goes_on() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        reader = client.read("t", follow=True)
        following(reader, ROWS)
        node.split("t")
        writer.put()
        node.prune("t", parent)
        assert following(reader, ROWS) == list(range(ROWS, 2 * ROWS))


def test_a_follower_whose_rows_were_pruned_says_so_again_and_again_and_reads_the_others() -> None:
    with topic(2) as (node, client):
        writer = Writer(node)
        writer.put(first=0)
        writer.put(first=1)
        lost = node.active("t")[0].partition
        reader = client.read("t", start={lost: 4, node.active("t")[1].partition: 0}, follow=True)
        node.split("t", 0)
        node.prune("t", lost)
        found, errors = list[int](), 0
        while len(found) < ROWS or errors < 3:
            try:
                found += next(reader).column("id").to_pylist()
            except ringfence.TruncatedError as error:
                assert error.partition == lost
                errors += 1
        assert found == list(range(ROWS, 2 * ROWS))


def test_positions_of_another_topic_and_from_the_future_are_refused() -> None:
    with topic() as (node, client):
        client.create_topic("other", schema=SCHEMA, key=["id"])
        (parent,) = node.topic_of("t").logs
        (other,) = node.topic_of("other").logs
        node.split("t")
        node.prune("t", parent)
        for unknown in (other, other + 5, 7):
            with pytest.raises(ringfence.NotFoundError, match="no such partition"):
                client.read("t", start={unknown: 0})


def test_a_position_in_a_partition_that_a_lagging_node_does_not_know_yet_is_taken() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        node.remember_table("t", answers=2)
        left, right = node.split("t")
        writer.put()
        found = read(client.read("t", start=[Position(left.partition, 2, 1), Position(right.partition, 0)]))
        assert found == list(range(2, ROWS))


def test_a_position_after_the_end_of_a_sealed_partition_is_a_loss_and_no_slip() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        with pytest.raises(ringfence.InvalidArgumentError):
            client.read("t", start={parent: ROWS + 1})
        node.split("t")
        writer.put()
        for epoch in (0, 1):
            with pytest.raises(ringfence.TruncatedError):
                client.read("t", start=[Position(parent, ROWS + 1, epoch)])
        skipping = client.read("t", start={parent: ROWS + 1}, on_truncated="skip")
        assert read(skipping) == list(range(ROWS, 2 * ROWS))


@pytest.mark.parametrize("seconds", range(5))
def test_a_time_is_found_in_the_lineage(seconds: int) -> None:
    """Times ascend along it. A parent whose rows are all older is at its end."""
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        writer.put()
        node.split("t")
        writer.put()
        writer.put()
        at = dt.datetime.fromtimestamp(FIRST_MS / 1000, dt.UTC) + dt.timedelta(milliseconds=seconds)
        assert read(client.read("t", start=at)) == writer.ids[seconds * ROWS :]
        positions = client.positions_at("t", at)
        assert read(client.read("t", start=positions)) == writer.ids[seconds * ROWS :]
        assert len(client.offsets_at("t", at)) == 3


def test_latest_at_each_step_of_a_split_gives_what_comes_later() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        steps: list[Callable[[], Any]] = [
            writer.put,
            lambda: node.remember_table("t", answers=2),
            lambda: node.split("t"),
            writer.put,
            lambda: node.merge("t"),
            writer.put,
        ]
        for step in steps:
            step()
            reader, before = client.read("t", start="latest", follow=True), len(writer.ids)
            positions = reader.positions()
            writer.put()
            assert following(reader, ROWS) == writer.ids[before:]
            assert read(client.read("t", start=positions)) == writer.ids[before:]


# ---- asyncio -----------------------------------------------------------------------------------------------


def test_an_asyncio_reader_follows_the_lineage_and_its_positions_have_what_it_returned() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        writer.put()

        async def main() -> None:
            async with ringfence.aio.connect(node.address) as other:
                reader = other.read("t", follow=True)
                found: list[int] = []
                async for batch in reader:
                    found += batch.column("id").to_pylist()
                    if len(found) == 2 * ROWS:
                        node.split("t")
                        writer.put(first=0)
                        writer.put(first=1)
                    positions = await asyncio.to_thread(reader.positions)
                    rest = await asyncio.to_thread(lambda at=positions: read(client.read("t", start=at)))
                    assert sorted([*found, *rest]) == writer.ids
                    if len(found) == 4 * ROWS:
                        break
                assert sorted(found) == writer.ids
                await reader.close()

        asyncio.run(main())


# ---- all together ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_follower_beside_random_changes_reads_each_row_once_in_order(seed: int) -> None:
    draw = random.Random(seed)
    with topic(2) as (node, client):
        writer = Writer(node)
        planted: list[Fault] = [Redirect(RedirectReason.CLOSED), Refuse(Code.OVERLOADED), None, None, None]
        node.hook = lambda header: draw.choice(planted) if header.opcode == Opcode.FETCH else None
        done = threading.Event()

        def change() -> None:
            for _ in range(60):
                active = node.active("t")
                kind = draw.random()
                if kind < 0.6:
                    writer.put(2, draw.randrange(len(active)))
                elif kind < 0.8 and len(active) < 8:
                    node.split("t", draw.randrange(len(active)), draw.randint(2, 3))
                elif len(active) > 1:
                    node.merge("t", 2, draw.randrange(len(active) - 1))
            done.set()

        found: list[tuple[int, int]] = []
        reader = client.read("t", follow=True, prefetch_bytes=1)
        thread = threading.Thread(target=change)
        thread.start()
        until(lambda: bool(writer.log))
        while not done.is_set() or len(found) < len(writer.log):
            batch = next(reader)
            assert reader.place is not None
            found += [(reader.place.partition, one) for one in batch.column("id").to_pylist()]
            if draw.random() < 0.1:
                reader.close()
                reader = client.read("t", follow=True, start=reader.positions())
        thread.join()
        assert sorted(found) == sorted(writer.log)
        finished: list[int] = []
        for partition, _ in found:
            assert partition not in finished
            before = node.cut(partition).parents
            finished += [one for one in before if one not in finished]
