"""Source, target or leader killed in each phase of a move (J9, Z7): one owner at the end, and every row once.

What every step of both kinds of nodes does under every harm, the simulated matrix goes through
(`python -m tests.sim.matrix`); these are the processes and the disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

import ringfence
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import ConnectError
from tests.system.cluster import Three
from tests.system.harness import SCHEMA, cli, until
from tests.system.test_changes import check, grown, publishing
from tests.system.test_rebalance import Desk

SLOW = ("--faults", "slow_sync_ms=60")
"""Each phase needs a sync or two: so it lasts long enough to be met."""
PHASES = ("PREPARED", "HELD", "COMMITTED")
VICTIMS = ("source", "target", "leader")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, *SLOW)
    try:
        made.three.start()
        yield made
    finally:
        made.three.kill_all()


def chosen(three: Three) -> tuple[int, int, int, int]:
    """A partition that the leader does not own; places of its owner, of another node, of the leader."""
    leader = three.leader()
    with ringfence.connect(three.nodes[leader].address, timeout_s=30) as client:
        parts = {part.owner: part.partition for part in client.topic("t").partitions}
    source = next(place for place in range(3) if place != leader and three.id(place) in parts)
    return parts[three.id(source)], source, 3 - leader - source, leader


def phase(three: Three, place: int, partition: int) -> str:
    """Of the partition's change, as the node at `place` knows it; empty when there is none."""
    call = messages.encode(messages.ShowPartition(partition=partition, here=True))
    try:
        reply = messages.decode_reply(ask_address(three.controls[place], call, 2.0))
    except ConnectError:
        return ""
    change = reply.value["change"] if isinstance(reply, messages.Document) else None
    return str(change["phase"]) if change else ""


def killed_in(desk: Desk, when: str, victim: str) -> str:
    """A move, with the victim killed and started again; what of it happened."""
    three = desk.three
    partition, source, target, leader = chosen(three)
    place = {"source": source, "target": target, "leader": leader}[victim]
    watched = next(other for other in range(3) if other != place)
    assert desk.start(leader, (partition, target)).status == 201
    until(lambda: phase(three, watched, partition) == when, 20, f"a change that is {when}")
    three.nodes[place].kill()
    met = phase(three, watched, partition)
    three.nodes[place].start()
    three.until_whole()
    until(lambda: desk.shown(watched)["state"] == "IDLE", what="the end of the run")
    shown = desk.shown(watched)
    [move] = shown["moves"]
    assert (shown["outcome"], move["state"]) == ("DONE", "COMMITTED"), (when, victim, shown)
    assert 1 <= move["attempts"] <= 3, move
    with ringfence.connect(three.nodes[watched].address, timeout_s=30) as client:
        owner = next(part.owner for part in client.topic("t").partitions if part.partition == partition)
    assert owner == three.id(target)
    return f"{victim} killed, the change {when}, then {met or 'over'}: {move['attempts']} tries"


@pytest.mark.timeout(400)
def test_whoever_is_killed_in_whatever_phase_of_a_move_it_ends_with_one_owner_and_all_rows(
    desk: Desk,
) -> None:
    three = desk.three
    desk.configure(hold_timeout_ms=1_000, reverse_hold_s=0)
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=6)
    loads = publishing(three, [0, 1])
    for when, victim in product(PHASES, VICTIMS):
        began = time.monotonic()
        print(killed_in(desk, when, victim), f"{time.monotonic() - began:.1f} s")
    until(grown(loads, 500), what="rows after the last move")
    check(three, loads, 2)

    def is_sound() -> bool:
        return cli("fsck", "--cluster", "--control", three.controls[0]).returncode == 0

    until(is_sound, what="a sound cluster: one owner each, nothing left of a copy")
