"""Source, target or leader killed in each phase of a move (J9, Z7): one owner at the end, and every row once.

What every step of both kinds of nodes does under every harm, the simulated matrix goes through
(`python -m tests.sim.matrix`); these are the processes and the disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import ConnectError
from tests.harness.admin_cluster import AdminCluster
from tests.harness.cluster import ThreeNodes
from tests.harness.loaded_cluster import check, grown, publishing
from tests.harness.processes import SCHEMA, batch, check_identity, cli, read_ids, until

SLOW = ("--faults", "slow_sync_ms=60")
"""Each phase needs a sync or two: so it lasts long enough to be met."""
PHASES = ("PREPARED", "HELD", "COMMITTED")
VICTIMS = ("source", "target")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminCluster]:
    made = AdminCluster(tmp_path, *SLOW)
    try:
        made.three.start()
        yield made
    finally:
        made.three.kill_all()


def chosen(three: ThreeNodes) -> tuple[int, int, int, int]:
    """A partition that the leader does not own; places of its owner, of another node, of the leader."""
    leader = three.leader()
    with ringfence.connect(three.nodes[leader].address, timeout_s=30) as client:
        parts = {part.owner: part.partition for part in client.topic("t").partitions}
    source = next(place for place in range(3) if place != leader and three.id(place) in parts)
    return parts[three.id(source)], source, 3 - leader - source, leader


def phase(three: ThreeNodes, place: int, partition: int) -> str:
    """Of the partition's change, as the node at `place` knows it; empty when there is none."""
    call = messages.encode(messages.ShowPartition(partition=partition, here=True))
    try:
        reply = messages.decode_reply(ask_address(three.controls[place], call, 2.0))
    except ConnectError:
        return ""
    change = reply.value["change"] if isinstance(reply, messages.Document) else None
    return str(change["phase"]) if change else ""


def killed_in(desk: AdminCluster, when: str, victim: str) -> str:
    """A move, with the victim killed and started again; what of it happened."""
    three = desk.three
    partition, source, target, leader = chosen(three)
    place = {"source": source, "target": target}[victim]
    watched = next(other for other in range(3) if other != place)
    assert desk.start(leader, (partition, target)).status == 201
    until(lambda: phase(three, watched, partition) == when, 60, f"a change that is {when}")
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
    desk: AdminCluster,
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


MOVES, STORED = 12, 4_000
"""Some 300 kB a partition: no copy ends while the limit is a byte a second."""
STEPS = ("PREPARED", "HELD", "COMMITTED", "OPENED", "CLEAN")
"""CLEAN: the entry that ends the change, the move's last step."""


def moves_shown(three: ThreeNodes, place: int) -> dict[int, dict[str, Any]]:
    """The moves of the run as the node at `place` knows them, by partition."""
    call = messages.encode(messages.ShowRebalance())
    reply = messages.decode_reply(ask_address(three.controls[place], call, 5.0))
    assert isinstance(reply, messages.Document), reply
    return {move["partition"]: move for move in reply.value["moves"]}


def met(three: ThreeNodes, place: int, partition: int, step: str) -> bool:
    """Wait for this step of the partition's change; False if it was over before it was seen."""
    seen = ""
    while True:
        now = phase(three, place, partition)
        if now == step or (step == "CLEAN" and seen and not now):
            return True
        if not now:
            return False
        seen = now


def until_met(three: ThreeNodes, place: int, step: str) -> None:
    """Wait until a move of the run is at this step."""

    def is_met() -> bool:
        moves = moves_shown(three, place)
        assert any(move["state"] != "COMMITTED" for move in moves.values()), f"no move is left for {step}"
        begun = [number for number, move in moves.items() if move["state"] in {"DUAL_WRITE", "COPYING"}]
        return bool(begun) and met(three, place, begun[0], step)

    until(is_met, what=f"a move at its step {step}")


def killed_after(desk: AdminCluster, step: str) -> dict[int, dict[str, Any]]:
    """Kill the leader at this step of a move of the run; the moves that were over then."""
    three = desk.three
    leader = three.leader()
    watched = (leader + 1) % 3
    until_met(three, watched, step)
    three.nodes[leader].kill()
    over = {
        number: known
        for number, known in moves_shown(three, watched).items()
        if known["state"] == "COMMITTED" and not phase(three, watched, number)
    }
    until(lambda: three.led_by_one_of([at for at in range(3) if at != leader]), what="another leader")
    # The run goes on, but no copy ends before the cluster is whole: later steps need moves, too.
    desk.configure(watched, sync_bytes_per_s=1)
    three.nodes[leader].start()
    three.until_whole()
    desk.configure(watched, sync_bytes_per_s=0)
    return over


@pytest.mark.timeout(400)
def test_a_run_of_many_moves_goes_on_over_a_kill_of_the_leader_at_each_step(
    desk: AdminCluster, soak: int
) -> None:
    """Z7: committed moves are left alone by the next leader, the others are made; each row is there once."""
    three = desk.three
    desk.configure(hold_timeout_ms=1_000, reverse_hold_s=0)
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=MOVES)
        with client.producer("t") as producer:
            for start in range(0, STORED, 100):
                producer.send(batch(start, 100, producer=9, text="x" * 1_000))
    loads = publishing(three, [0, 1])
    for _ in range(soak):
        with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
            homes = {part.partition: part.owner for part in client.topic("t").partitions}
        ids = [three.id(place) for place in range(3)]
        away = {partition: (ids.index(owner) + 1) % 3 for partition, owner in homes.items()}
        until(lambda: three.led_by_one_of([0, 1, 2]), what="a leader")
        assert desk.start(three.leader(), *away.items()).status == 201
        before: dict[int, dict[str, Any]] = {}
        for step in STEPS:
            over = killed_after(desk, step)
            print(f"leader killed at {step}: {len(over)} of {MOVES} moves were over")
            assert before.items() <= over.items(), "what was over has changed"
            before = over
        until(lambda: desk.shown()["state"] == "IDLE", what="the end of the run")
        ended = desk.shown()
        assert (ended["outcome"], ended["counts"]) == ("DONE", {"COMMITTED": MOVES}), ended
        moves = {move["partition"]: move for move in ended["moves"]}
        assert before.items() <= moves.items(), "what was over has changed"
        assert all(1 <= move["attempts"] <= 3 for move in moves.values()), moves
        with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
            owners = {part.partition: part.owner for part in client.topic("t").partitions}
        assert owners == {partition: ids[place] for partition, place in away.items()}
    until(grown(loads, 500), what="rows after the last move")
    for load in loads:
        load.finish()
    assert [load.errors for load in loads] == [[], []]
    with ringfence.connect(three.nodes[2].address, timeout_s=30) as client:
        rows = read_ids(client, "t")
    acknowledged = {load.producer: load.acknowledged for load in loads}
    sent = {load.producer: load.sent for load in loads}
    check_identity(rows, {**acknowledged, 9: range(STORED)}, {**sent, 9: STORED})
