"""Where a read begins: positions of before and after splits, merges and prunes, times, `latest`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import ringfence
from ringfence.cluster.offsets import Position
from ringfence.native.wire import Opcode, RequestHeader
from tests.fakes.client_topic import SCHEMA
from tests.fakes.lineage_client import ROWS, Writer, following, read, topic
from tests.fakes.lineage_node import FIRST_MS, LineageNode
from tests.fakes.socket_node import Fault


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
        for epoch, said in ((0, "was split or merged and ends at"), (1, "another history now")):
            with pytest.raises(ringfence.TruncatedError, match=said):
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


@pytest.mark.parametrize("follow", [False, True])
def test_rows_that_come_while_a_time_is_looked_up_are_before_it(follow: bool) -> None:
    """The node's clock is behind: they are older than the time, and after the end that was told before."""
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        came = list[int]()

        def hook(header: RequestHeader) -> Fault | None:
            if header.opcode == Opcode.OFFSET_FOR_TIME and not came:
                came.append(header.partition)
                writer.put()
            return None

        node.hook = hook
        at = dt.datetime.fromtimestamp(FIRST_MS / 1000, dt.UTC) + dt.timedelta(days=1)
        reader = client.read("t", start=at, follow=follow)
        assert came
        before = len(writer.ids)
        writer.put()
        if follow:
            assert following(reader, ROWS) == writer.ids[before:]
        else:
            assert read(reader) == []
            assert read(client.read("t", start=reader.positions())) == writer.ids[before:]


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


def test_a_partition_that_is_pruned_while_its_end_is_asked_for_is_left_out() -> None:
    with topic() as (node, client):
        writer = Writer(node)
        (parent,) = node.topic_of("t").logs
        node.split("t")
        writer.put()
        asked = list[int]()

        def hook(header: RequestHeader) -> Fault | None:
            if header.opcode == Opcode.END_OFFSETS and header.partition == parent and not asked:
                asked.append(parent)
                node.prune("t", parent)
            return None

        node.hook = hook
        assert client.count("t") == ROWS
        assert asked
        assert parent not in client.end_offsets("t")


def test_a_layout_that_changes_at_each_request_ends_with_an_error() -> None:
    with topic() as (node, client):

        def hook(header: RequestHeader) -> Fault | None:
            last = len(node.active("t")) - 1
            if header.opcode == Opcode.END_OFFSETS and header.partition == node.active("t")[last].partition:
                node.split("t", last)
            return None

        node.hook = hook
        with pytest.raises(ringfence.RerouteError, match="the layout changed 8 times"):
            client.count("t")
        node.hook = None
        assert client.count("t") == 0


@pytest.mark.parametrize("given", ["soon", 1, None])
def test_on_truncated_is_one_of_two_words(given: object) -> None:
    with topic() as (_, client), pytest.raises(ringfence.InvalidArgumentError, match="on_truncated"):
        client.read("t", on_truncated=given)  # type: ignore[arg-type]
