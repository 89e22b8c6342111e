"""A reader over a topic that is split, merged, repartitioned and pruned, against a node in Python."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

import ringfence
import ringfence.aio
from ringfence.cluster.cursor import Cursor
from ringfence.common.lineage import Lineage, Part
from ringfence.control.cli.read import command
from ringfence.native.wire import Code, Opcode, RedirectReason, RequestHeader
from tests.fakes.client_topic import until
from tests.fakes.lineage_client import ROWS, Writer, following, read, topic
from tests.fakes.lineage_follow import follow
from tests.fakes.lineage_node import LineageNode
from tests.fakes.socket_node import Fault, Refuse

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
        assert read(again) == []
        assert again.ended == {parent}


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


def rest_of(client: ringfence.Client, positions: list[ringfence.Position]) -> list[int]:
    return read(client.read("t", start=positions))


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
                    rest = await asyncio.to_thread(partial(rest_of, client, positions))
                    assert sorted([*found, *rest]) == writer.ids
                    if len(found) == 4 * ROWS:
                        break
                assert sorted(found) == writer.ids
                await reader.close()

        asyncio.run(main())


def test_a_batch_that_an_asyncio_reader_has_not_returned_is_not_in_its_positions() -> None:
    """Also where it is the first one of a child, whose cursor is as new as the batch."""
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        node.split("t")
        writer.put(first=0)
        writer.put(first=1)

        async def main() -> None:
            async with ringfence.aio.connect(node.address) as other:
                reader = other.read("t", batch_rows=4)
                found: list[int] = []
                while len(found) < len(writer.ids):
                    while not reader._ready:
                        await asyncio.to_thread(reader._look)
                    rest = await asyncio.to_thread(partial(rest_of, client, reader.positions()))
                    assert sorted([*found, *rest]) == writer.ids
                    found += (await anext(reader)).column("id").to_pylist()

        asyncio.run(main())


# ---- the command ----------------------------------------------------------------------------------------


def test_the_command_reads_in_lineage_order_and_ends_with_a_sealed_partition() -> None:
    with topic() as (node, _):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        node.split("t")
        writer.put(first=0)
        assert printed(node, "t") == writer.ids
        assert printed(node, "t", "--partition", str(parent), "--follow") == list(range(ROWS))


def printed(node: LineageNode, *arguments: str) -> list[int]:
    result = CliRunner().invoke(command, [*arguments, "--address", node.address, "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line)["id"] for line in result.output.splitlines()]


# ---- all together ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_follower_beside_random_changes_reads_each_row_once_in_order(seed: int) -> None:
    assert follow(seed) is None


def child_at_once(patch: pytest.MonkeyPatch) -> None:
    add = Lineage._add

    def planted(self: Lineage, part: Part, *, is_open: bool) -> bool:
        return add(self, part._replace(older=()), is_open=is_open)

    patch.setattr(Lineage, "_add", planted)


def an_answer_without_rows_ends_a_partition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("ringfence.reader.has_ended", lambda header: not header.rows)
    patch.setattr(Lineage, "_is_sealed", lambda *_: True)


def rows_in_memory_are_passed(patch: pytest.MonkeyPatch) -> None:
    """Children are admitted when the last answer of the parent arrives."""
    take = ringfence.Reader._take

    def planted(self: ringfence.Reader, cursor: Cursor, future: Any) -> None:
        take(self, cursor, future)
        if cursor.is_at_last:
            self._apply(self._lineage.ended(cursor.partition))

    patch.setattr(ringfence.Reader, "_take", planted)


def positions_leave_out_what_is_sealed(patch: pytest.MonkeyPatch) -> None:
    positions = ringfence.Reader.positions

    def planted(self: ringfence.Reader) -> list[ringfence.Position]:
        parts = self._lineage.view.parts
        return [one for one in positions(self) if not parts[one.partition].is_sealed]

    patch.setattr(ringfence.Reader, "positions", planted)


PLANTED = [
    child_at_once,
    an_answer_without_rows_ends_a_partition,
    rows_in_memory_are_passed,
    positions_leave_out_what_is_sealed,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_of_the_reader_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(follow(seed) for seed in range(12))
