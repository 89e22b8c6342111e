"""Looking up where to read: an error is never taken for "no position", and sealed ends are exact.

A saved position at the end of a sealed parent whose child is empty, and a lookup that
fails. Only what the owners say is a place to begin at; every failure of a question is an error to the caller.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import ringfence
from ringfence.cluster.offsets import PartitionRequests, Position
from ringfence.native.errors import RingfenceError
from ringfence.native.wire import Code, Opcode, RedirectReason, RequestHeader
from tests.fakes.lineage_client import ROWS, Writer, following, read, topic
from tests.fakes.lineage_node import FIRST_MS
from tests.fakes.socket_node import Drop, Fault, Redirect, Refuse

WAIT_S = 1.0
LOOKUPS = (Opcode.END_OFFSETS, Opcode.OFFSET_FOR_TIME)
TIME = dt.datetime.fromtimestamp(FIRST_MS / 1000, dt.UTC)
Lookup = Callable[[ringfence.Client], Any]
ASKED: dict[str, Lookup] = {
    "earliest": lambda client: client.read("t"),
    "latest": lambda client: client.read("t", start="latest"),
    "latest, following": lambda client: client.read("t", start="latest", follow=True),
    "a time": lambda client: client.read("t", start=TIME),
    "a time, following": lambda client: client.read("t", start=TIME, follow=True),
    "positions_at": lambda client: client.positions_at("t", TIME),
    "offsets_at": lambda client: client.offsets_at("t", TIME),
    "end_offsets": lambda client: client.end_offsets("t"),
    "count": lambda client: client.count("t"),
}
AT_ONCE: dict[str, Fault] = {
    "unknown": Refuse(Code.UNKNOWN_PARTITION),
    "damaged": Refuse(Code.QUARANTINED),
    "not allowed": Refuse(Code.UNAUTHORIZED),
}
AT_THE_DEADLINE: dict[str, Fault] = {
    "silence": Drop(served=False),
    "fenced": Redirect(RedirectReason.STALE_EPOCH),
    "closed": Redirect(RedirectReason.CLOSED),
    "ahead": Refuse(Code.AHEAD),
    "overloaded": Refuse(Code.OVERLOADED),
    "defect": Refuse(Code.INTERNAL),
}
DAMAGED = AT_ONCE["damaged"]


def looked_up(asked: Lookup, failure: Fault, *, only: str = "all", wait_s: float = 10) -> None:
    """The sealed partition or its children cannot be asked: the lookup must be an error."""
    with topic() as (node, client), ringfence.connect(node.address, timeout_s=wait_s) as hasty:
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        children = [log.partition for log in node.split("t")]
        writer.put()
        failing = {"parent": [parent], "child": children[1:], "all": [parent, *children]}[only]
        failed: list[RequestHeader] = []

        def hook(header: RequestHeader) -> Fault:
            if header.opcode not in LOOKUPS or header.partition not in failing:
                return None
            failed.append(header)
            return failure

        node.hook = hook
        for _ in range(20):
            with pytest.raises(RingfenceError):
                asked(hasty)
            if failed:  # on a machine that is too busy, its time was over before
                break
        assert failed
        node.hook = None
        assert asked(client) is not None, "nothing of it is remembered"
        assert sorted(read(client.read("t"))) == writer.ids


@pytest.mark.parametrize("failure", AT_ONCE.values(), ids=AT_ONCE)
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_lookup_that_is_refused_is_an_error_and_no_position(asked: Lookup, failure: Fault) -> None:
    looked_up(asked, failure)


@pytest.mark.parametrize("failure", AT_THE_DEADLINE.values(), ids=AT_THE_DEADLINE)
@pytest.mark.parametrize("asked", [ASKED["latest"], ASKED["positions_at"]], ids=["latest", "positions_at"])
def test_a_lookup_that_is_not_answered_in_time_is_an_error(asked: Lookup, failure: Fault) -> None:
    looked_up(asked, failure, wait_s=WAIT_S)


@pytest.mark.parametrize("only", ["parent", "child"])
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_lookup_that_fails_for_one_partition_is_an_error_for_all(asked: Lookup, only: str) -> None:
    looked_up(asked, DAMAGED, only=only)


@pytest.mark.parametrize("asked", [ASKED["latest"], ASKED["count"]])
def test_an_error_that_is_read_as_none_is_found(asked: Lookup, monkeypatch: pytest.MonkeyPatch) -> None:
    true = PartitionRequests.settled

    def none(self: Any, layout: Any, opcode: Any, sequence: Any, partitions: Any, **more: Any) -> Any:
        try:
            return true(self, layout, opcode, sequence, partitions, **more)
        except RingfenceError:
            return true(self, layout, opcode, sequence, lambda _: [], **more)

    monkeypatch.setattr(PartitionRequests, "settled", none)
    with pytest.raises((pytest.fail.Exception, KeyError)):
        looked_up(asked, DAMAGED)


# ---- a position in a sealed parent, the child empty ------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, ROWS - 1, ROWS])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("parts", [2, 3])
def test_the_next_row_after_a_position_in_a_sealed_parent_is_exact(
    offset: int, epoch: int, parts: int
) -> None:
    """At the end of the parent, at its last row, at its start; with empty children and with rows in them."""
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        (parent,) = node.topic_of("t").logs
        node.split("t", parts=parts)
        start = [Position(parent, offset, epoch if offset else 0)]
        assert read(client.read("t", start=start)) == writer.ids[offset:]
        reader = client.read("t", start=start, follow=True)
        before = writer.ids[offset:]
        if before:
            assert following(reader, len(before)) == before
        kept = reader.positions()
        writer.put(first=parts - 1)
        assert following(reader, ROWS) == writer.ids[ROWS:], "the child begins at its first row"
        reader.close()
        # Another process goes on from what was kept while the children were empty.
        with ringfence.connect(node.address, timeout_s=10) as later:
            assert read(later.read("t", start=kept)) == writer.ids[ROWS:]
            assert read(later.read("t", start=start)) == writer.ids[offset:]


@pytest.mark.parametrize("generations", [2, 4])
def test_empty_children_of_empty_children_move_no_position(generations: int) -> None:
    with topic() as (node, client):
        writer = Writer(node)
        writer.put()
        positions = [client.read("t", start="latest").positions()]
        for number in range(generations):
            node.split("t") if number % 2 == 0 else node.merge("t")
            positions.append(client.read("t", start="latest").positions())
            positions.append(client.read("t", start=positions[0]).positions())
        writer.put()
        for kept in positions:
            assert read(client.read("t", start=kept)) == writer.ids[ROWS:]
