"""A follower beside random layout changes and faults of the network, judged by what it returns."""

from __future__ import annotations

import random
import threading

import ringfence
from ringfence.native.wire import Code, Opcode, RedirectReason
from tests.fakes.client_topic import until
from tests.fakes.lineage_client import Writer, topic
from tests.fakes.lineage_node import LineageNode
from tests.fakes.socket_node import Fault, Redirect, Refuse

CHANGES = 60
PARTITIONS_MAX = 8
FAULTS: list[Fault] = [Redirect(RedirectReason.CLOSED), Refuse(Code.OVERLOADED), None, None, None]
# Tries without a row after which a follower counts as stuck.
IDLE_MAX = 400


def follow(seed: int) -> str | None:
    """The first fault of a follower that begins again at its positions now and then; None: none."""
    draw = random.Random(seed)
    with topic(2) as (node, client):
        writer = Writer(node)
        node.hook = lambda header: draw.choice(FAULTS) if header.opcode == Opcode.FETCH else None
        done = threading.Event()
        changes = random.Random(seed + 1_000)
        thread = threading.Thread(target=change, args=(node, writer, changes, done))
        thread.start()
        try:
            until(lambda: bool(writer.log))
            return judged(node, read(client, writer, draw, done), writer)
        finally:
            thread.join()


def change(node: LineageNode, writer: Writer, draw: random.Random, done: threading.Event) -> None:
    for _ in range(CHANGES):
        active = node.active("t")
        kind = draw.random()
        if kind < 0.6:
            writer.put(2, draw.randrange(len(active)))
        elif kind < 0.8 and len(active) < PARTITIONS_MAX:
            node.split("t", draw.randrange(len(active)), draw.randint(2, 3))
        elif len(active) > 1:
            node.merge("t", 2, draw.randrange(len(active) - 1))
    done.set()


def read(
    client: ringfence.Client, writer: Writer, draw: random.Random, done: threading.Event
) -> list[tuple[int, int]] | str:
    """(partition, id) of each returned row, or why the reader does not go on."""
    found: list[tuple[int, int]] = []
    reader = client.read("t", follow=True, prefetch_bytes=1, timeout_s=1.0)
    idle = 0
    while not done.is_set() or len(found) < len(writer.log):
        try:
            batch = reader.try_next()
        except (ringfence.RingfenceError, StopIteration) as error:
            return f"the reader ends: {error!r}"
        if batch is None:
            idle += 1
            if done.is_set() and idle > IDLE_MAX:
                return f"rows are never read: {len(found)} of {len(writer.log)}"
            threading.Event().wait(0.01)
            continue
        idle = 0
        assert reader.place is not None
        found += [(reader.place.partition, one) for one in batch.column("id").to_pylist()]
        if draw.random() < 0.2:
            reader.close()
            reader = client.read("t", follow=True, start=reader.positions(), timeout_s=1.0)
    return found


def judged(node: LineageNode, found: list[tuple[int, int]] | str, writer: Writer) -> str | None:
    if isinstance(found, str):
        return found
    if sorted(found) != sorted(writer.log):
        return f"rows are lost or returned twice: {len(found)} of {len(writer.log)}"
    finished: set[int] = set()
    for partition, _ in found:
        if partition in finished:
            return f"rows of {partition} come after rows of its children"
        finished |= {*node.cut(partition).parents}
    return None
