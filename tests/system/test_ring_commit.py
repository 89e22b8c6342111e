"""A ring changes while a member is cut off at the moment of its commit: everywhere or nowhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

import ringfence
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import ConnectError
from tests.harness.isolated_cluster import IsolatedCluster, isolated_cluster
from tests.harness.load import Load
from tests.harness.processes import NodeProcess, check_identity, free_port, read_ids, until

DELAYS_S = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1)
"""From the question to the cut, which takes 10 ms itself; the ring comes some 30 ms after the question."""
HOLD_S = 2.0
"""How long the others are waited for while the member is cut off: they may have heard of nothing."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[IsolatedCluster]:
    with isolated_cluster(tmp_path) as made:
        yield made


def joining(world: IsolatedCluster, folder: Path) -> NodeProcess:
    """A fourth node, on the first one's host."""
    three, host = world.three, world.network.hosts[0]
    options = (
        "--control",
        f"tcp://{host}:{free_port()}",
        "--join",
        three.controls[0],
        *three.nodes[0].options[2:],
    )
    return NodeProcess(folder, options=options, host=host, prefix=three.nodes[0].prefix)


class Rounds:
    """Takes one node out of the ring and in again, and looks at what each member shows."""

    def __init__(self, world: IsolatedCluster, node: int) -> None:
        self.world, self.three, self.node = world, world.three, node
        self.seen: list[tuple[int, frozenset[int]]] = []
        self.missed = 0
        """Rounds in which the member had not the ring that the others had."""
        self._over = Event()

    def ring(self, place: int) -> frozenset[int]:
        nodes = self.three.listed(place)["nodes"]
        return frozenset(node["node"] for node in nodes if node["in_ring"])

    def ask(self, place: int, *, out: bool) -> bool:
        """Whether a run that takes the node out was begun, or its way in freed."""
        call: messages.Call = messages.ChangeNode(node=self.node, change="undrain")
        if out:
            call = messages.SteerRebalance(verb="start", action="remove_node", node=self.node)
        try:
            reply = messages.decode_reply(
                ask_address(self.three.controls[place], messages.encode(call), 15.0)
            )
        except ConnectError:
            return False
        return not isinstance(reply, messages.Refusal)

    def look(self) -> None:
        while not self._over.wait(0.01):
            self.seen += [(place, ring) for place in range(3) if (ring := self.ring(place))]

    def round(self, victim: str, delay_s: float, *, out: bool) -> str:
        """One change with one cut; how it went."""
        leader = self.three.leader()
        cut = leader if victim == "leader" else (leader + 1) % 3
        before = self.ring(leader)
        after = before - {self.node} if out else before | {self.node}
        assert before != after
        self.seen.clear()
        self._over.clear()
        with ThreadPoolExecutor(2) as pool:
            looking = pool.submit(self.look)
            try:
                asking = pool.submit(self.ask, leader, out=out)
                time.sleep(delay_s)
                shown = self._cut(cut, after)
                told = asking.result()
                self._settled(after, is_wanted=told)
            finally:
                self._over.set()
            looking.result(30)
        assert {ring for _, ring in self.seen} <= {before, after}
        came = [place for place in range(3) if (place, after) in self.seen]
        for place in came:
            mine = [ring for at, ring in self.seen if at == place]
            assert before not in mine[mine.index(after) :], f"node {place} took a committed ring back"
        self.missed += shown == [False, True, True]
        return f"{victim} cut {delay_s * 1000:.0f} ms after: told {told}, the ring at it and others: {shown}"

    def _cut(self, cut: int, after: frozenset[int]) -> list[bool]:
        """Cut a member off until the others have the ring, or for long; who has it then, that one first."""
        rest = self.world.others(cut)
        self.world.network.cut(cut, rest)
        try:
            until(lambda: self.three.led_by_one_of(rest), what="a leader among the others")
            end_s = time.monotonic() + HOLD_S
            while time.monotonic() < end_s and any(self.ring(place) != after for place in rest):
                time.sleep(0.02)
            return [self.ring(place) == after for place in (cut, *rest)]
        finally:
            self.world.network.heal()

    def _settled(self, after: frozenset[int], *, is_wanted: bool) -> None:
        until(lambda: self.three.led_by_one_of([0, 1, 2]), what="one leader of all")
        until(self._is_over, what="the end of the run")
        if is_wanted or any(ring == after for _, ring in self.seen):
            # A node that was undrained is added once it is live again.
            until(lambda: all(self.ring(place) == after for place in range(3)), what="the ring at all")
        self.three.until_equal()

    def settle(self, *, out: bool) -> None:
        """The change that was lost is made after all."""
        if (self.node in self.ring(0)) != out:
            return
        assert self.ask(self.three.leader(), out=out)
        until(lambda: (self.node in self.ring(0)) != out, what="the ring")
        self.three.until_equal()

    def _is_over(self) -> bool:
        reply = messages.decode_reply(
            ask_address(self.three.controls[0], messages.encode(messages.ShowRebalance()), 5.0)
        )
        return isinstance(reply, messages.Document) and reply.value["state"] == "IDLE"


@pytest.mark.timeout(300)
def test_a_member_cut_off_while_the_ring_is_committed_shows_the_old_or_the_new_one(
    world: IsolatedCluster, tmp_path: Path
) -> None:
    three = world.three
    with joining(world, tmp_path / "d") as fourth:
        rounds = Rounds(world, int(fourth.ready["node"]))
        until(lambda: all(rounds.node in rounds.ring(place) for place in range(3)), what="the fourth's ring")
        # Cuts that last let a learner vote in the place of who is FAILED: the fourth is on the first's host.
        demoted = messages.encode(messages.ChangeNode(node=rounds.node, change="demote"))
        assert messages.decode_reply(ask_address(three.controls[0], demoted, 15.0)) == messages.Done()
        load = Load(three.nodes[1].address, "t", 0).start()
        for victim in ("leader", "follower"):
            for number, delay_s in enumerate(DELAYS_S):
                out = number % 2 == 0
                print(rounds.round(victim, delay_s, out=out))
                rounds.settle(out=out)
        assert rounds.missed, "no cut came before the commit at the member"
        seen = len(load.acknowledged)
        until(lambda: load.errors or len(load.acknowledged) > seen + 500, what="rows after them")
        load.finish()
        assert load.errors == []
        with ringfence.connect(three.nodes[2].address, timeout_s=30) as client:
            check_identity(read_ids(client, "t"), {0: load.acknowledged}, {0: load.sent})
