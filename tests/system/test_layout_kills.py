"""Nodes are killed or stand still in each phase of a layout change: it ends, and each row is there once.

What every step of the leader, of sources and of children does under every harm, the simulator goes through
(`python -m tests.sim.layout_matrix`); these are the processes and the disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

import ringfence
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.layout_messages import ShowTransitions
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import ConnectError
from tests.harness.cluster import ThreeNodes
from tests.harness.layout_load import (
    SCHEMA,
    Following,
    NamedSender,
    OrderCheck,
    Sender,
    TransactionSender,
    check_all,
    connected,
    finish,
    repartitioned,
    rows_grow,
)
from tests.harness.processes import until

SLOW = ("--faults", "slow_sync_ms=60")
"""Each phase needs a sync or two: so it lasts long enough to be met."""
PHASES = ("PREPARED", "HELD", "COMMITTED")


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path, options=SLOW)
    try:
        yield cluster.start()
    finally:
        for place in range(3):
            if cluster.alive(place):
                cluster.nodes[place].wake()
        cluster.kill_all()


def phase(three: ThreeNodes, place: int) -> str:
    """Of the newest open layout change, as the node at `place` knows it; empty when there is none."""
    try:
        call = messages.encode(ShowTransitions(here=True))
        reply = messages.decode_reply(ask_address(three.controls[place], call, 2.0))
    except ConnectError:
        return ""
    shown = reply.value["transitions"] if isinstance(reply, messages.Document) else []
    return str(shown[-1]["phase"]) if shown else ""


def met(three: ThreeNodes, place: int, when: str) -> str:
    """Wait for the phase, or a later one; the phase that was seen."""
    order = ("", *PHASES, "OPENED")
    seen = ""

    def is_there() -> bool:
        nonlocal seen
        seen = phase(three, place)
        return order.index(seen) >= order.index(when)

    until(is_there, 30, f"a layout change that is {when}")
    return seen


def is_over(three: ThreeNodes, place: int) -> bool:
    """Whether the node knows a leader, and no layout change that holds partitions."""
    return three.listed(place)["leader"] != 0 and phase(three, place) in {"", "OPENED"}


def owner(three: ThreeNodes, client: ringfence.Client, *, but: int) -> int:
    """The place of a node that owns a partition of the topic, and does not lead."""
    owners = {entry.owner for entry in client.layout("t").active}
    return next(place for place in range(3) if place != but and three.id(place) in owners)


def load(three: ThreeNodes) -> tuple[list[Sender], list[Following]]:
    address = three.addresses
    senders = [Sender(address, "t", 0), NamedSender(address, "t", 1), TransactionSender(address, "t", 2)]
    readers = [Following(address, "t", OrderCheck()), Following(address, "t", OrderCheck(), pause_s=0.1)]
    for sender in senders:
        sender.start()
    for reader in readers:
        reader.start()
    rows_grow(senders)
    return senders, readers


@pytest.mark.timeout(600)
def test_whoever_is_killed_in_whatever_phase_of_a_change_it_ends_and_every_row_is_there_once(
    three: ThreeNodes,
) -> None:
    with connected(three.addresses) as client:
        client.create_topic("t", schema=SCHEMA, key=["key"], partitions=3, replication=3)
        senders, readers = load(three)
        for number, (when, victim) in enumerate(product(PHASES, ("owner", "leader"))):
            began = time.monotonic()
            count = (4, 3)[number % 2]
            leader = three.leader()
            place = leader if victim == "leader" else owner(three, client, but=leader)
            watched = next(other for other in range(3) if other != place)
            client.admin.repartition("t", count, wait_s=0)
            seen = met(three, watched, when)
            three.nodes[place].kill()
            until(lambda watched=watched: is_over(three, watched), what="the change aborted, or opened")
            rows_grow(senders)
            ended = "done" if len(client.layout("t").active) == count else "aborted"
            three.nodes[place].start()
            three.until_whole()
            repartitioned(client, "t", count)
            took = time.monotonic() - began
            print(f"{victim} killed, the change {seen}: {ended}, {took:.1f} s")
        check_all(three.addresses, "t", finish(senders, readers), OrderCheck())
        until(lambda: not client.admin.transitions("t"), 90, "the end of all changes")
        three.until_equal()


@pytest.mark.timeout(400)
def test_a_leader_that_stands_still_between_prepare_and_commit_holds_nobody_up_and_spoils_nothing_later(
    three: ThreeNodes,
) -> None:
    with connected(three.addresses) as client:
        client.create_topic("t", schema=SCHEMA, key=["key"], partitions=3, replication=3)
        senders, readers = load(three)
        for when, count in (("PREPARED", 5), ("HELD", 2)):
            leader = three.leader()
            others = [place for place in range(3) if place != leader]
            client.admin.repartition("t", count, wait_s=0)
            seen = met(three, others[0], when)
            three.nodes[leader].freeze()
            until(lambda others=others: three.led_by_one_of(others), what="another leader")
            until(lambda others=others: is_over(three, others[0]), what="the change aborted, or opened")
            rows_grow(senders)
            with connected(",".join(three.nodes[place].address for place in others)) as other:
                ended = "done" if len(other.layout("t").active) == count else "aborted"
            three.nodes[leader].wake()
            three.until_whole()
            repartitioned(client, "t", count)
            print(f"the leader stood still, the change {seen}: {ended}")
        check_all(three.addresses, "t", finish(senders, readers), OrderCheck())
        three.until_equal()
