"""Run `ringfence dev --demo`: send lineitem through three nodes and kill one of them during it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ringfence.control.cli import demo_steps as steps
from ringfence.control.cli.connection import open_client
from ringfence.control.cli.local_cluster import LocalCluster, NodeProcess
from ringfence.control.cli.tables import Source
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.errors import ConnectError
from ringfence.native.slots import slots

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ringfence import Client, Producer

TOPIC: Final = "lineitem"
# Rows per send while a node is down: small, so that the longest wait is meaningful.
SLICE_ROWS: Final = 2_000
ASK_S: Final = 1.0
# An election takes one second, a restart two; a step that takes longer than this has failed.
WAIT_S: Final = 60.0


class StoryError(Exception):
    """A step of a demo failed. The text has the step and its result."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A step of a demo: one line of the result table. `seconds`: duration of the step."""

    title: str
    result: str
    seconds: float


class LineitemStory:
    """The demo of lineitem through a serving cluster."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._nodes, self._kill, self._restart = list(cluster.nodes.values()), cluster.kill, cluster.restart

    def run(self, source: Path) -> Iterator[Scene]:
        """Run the demo and yield each step. Raises StoryError, RingfenceError."""
        began = time.perf_counter()
        self._until(lambda: self._voters() == len(self._nodes), "all nodes vote")
        yield Scene("nodes agree on a leader", self._leader().name, time.perf_counter() - began)
        with ExitStack() as stack:
            clients = [stack.enter_context(open_client(node.address)) for node in self._nodes]
            began = time.perf_counter()
            steps.create_topic(clients[0], TOPIC, source, 2 * len(self._nodes))
            owners = self._owners(clients[0])
            placed = sorted(owners.values())
            yield Scene(
                "a topic is placed on all nodes",
                f"{len(placed)} partitions on {len(set(placed))} nodes",
                time.perf_counter() - began,
            )
            yield from self._publish(stack, clients, source, owners)
        yield from self._compare(source)

    # ---- parts --------------------------------------------------------------------------------------

    def _publish(
        self, stack: ExitStack, clients: Sequence[Client], source: Path, owners: dict[int, int]
    ) -> Iterator[Scene]:
        producers = [stack.enter_context(client.producer(TOPIC, timeout_s=WAIT_S)) for client in clients]
        with Source(str(source)) as rows:
            batches = list(rows)
        half = len(batches) // 2 or 1
        began = time.perf_counter()
        turns = cycle(producers)
        sent = [next(turns).send(batch) for batch in batches[:half]]
        count = sum(part.rows for future in sent for part in future.result(WAIT_S))
        yield Scene(
            "half of the rows through all nodes", f"{count:,} rows on disk", time.perf_counter() - began
        )

        leader = self._leader()
        killed = self._nodes_at(leader).node
        alive = [place for place, node in enumerate(self._nodes) if node is not leader]
        self._kill(leader.name)
        began = time.perf_counter()
        yield Scene("kill -9 of the leader", leader.name, 0.0)
        pending: list[Future[Any]] = []
        longest, count = self._go_on(
            [producers[place] for place in alive], batches[half:], owners, killed, pending
        )
        yield Scene(
            "the rest to partitions of live nodes, immediately",
            f"{count:,} rows, no error, longest wait {longest * 1e3:,.0f} ms",
            time.perf_counter() - began,
        )
        began = time.perf_counter()
        self._until(lambda: self._elected(alive, killed), "another node leads")
        schema = pa.schema([("id", pa.int64())])
        clients[alive[0]].create_topic("after", schema=schema, partitions=1, exist_ok=True)
        yield Scene("a new leader accepts commands", self._leader(alive).name, time.perf_counter() - began)
        began = time.perf_counter()
        early = sum(future.done() for future in pending)
        self._restart(leader.name)
        late = sum(part.rows for future in pending for part in future.result(WAIT_S))
        yield Scene(
            "the killed node restarts and its pending rows are stored",
            f"{late:,} rows were pending" + (f", {early} sends had ended before" if early else ""),
            time.perf_counter() - began,
        )

    def _go_on(
        self,
        producers: Sequence[Producer],
        batches: Sequence[pa.RecordBatch],
        owners: dict[int, int],
        killed: int,
        pending: list[Future[Any]],
    ) -> tuple[float, int]:
        """Send rows of live nodes and wait for each answer; send rows of the killed node without a wait."""
        longest, count = 0.0, 0
        turns = cycle(producers)
        of_slot = self._owner_of_slot(owners)
        for batch in batches:
            for start in range(0, batch.num_rows, SLICE_ROWS):
                part = batch.slice(start, SLICE_ROWS)
                mask = of_slot[slots(part, [steps.KEY])] == killed
                late, live = part.filter(pa.array(mask)), part.filter(pa.array(~mask))
                producer = next(turns)
                if late.num_rows:
                    pending.append(producer.send(late))
                if live.num_rows:
                    began = time.perf_counter()
                    count += sum(appended.rows for appended in next(turns).send(live).result(WAIT_S))
                    longest = max(longest, time.perf_counter() - began)
        return longest, count

    def _compare(self, source: Path) -> Iterator[Scene]:
        expected = steps.read_file(source)
        for node in self._nodes:
            with open_client(node.address) as client:
                read = steps.read(client, TOPIC)
            if (read.rows, read.digest) != (expected.rows, expected.digest):
                raise StoryError(
                    f"{node.name} gives {read.rows} rows, hash {read.digest}; the file has "
                    f"{expected.rows}, hash {expected.digest}"
                )
            result = f"{read.rows:,} rows, hash {read.digest:016x}"
            yield Scene(f"all rows through {node.name}", result, read.seconds)
        began = time.perf_counter()
        self._until(
            lambda: len({(reply.index, reply.hash) for reply in map(self._nodes_at, self._nodes)}) == 1,
            "equal metadata on all nodes",
        )
        reply = self._nodes_at(self._nodes[0])
        yield Scene(
            "metadata is equal on all nodes",
            f"index {reply.index}, hash {reply.hash}",
            time.perf_counter() - began,
        )

    def _owners(self, client: Client) -> dict[int, int]:
        return {part.partition: part.owner for part in client.topic(TOPIC).partitions}

    def _owner_of_slot(self, owners: dict[int, int]) -> Any:
        """Return the owner of each slot. Partitions divide the slots evenly, in the order of their ids."""
        bounds = np.linspace(0, 1 << 16, len(owners) + 1).astype(np.int64)
        return np.repeat([owners[number] for number in sorted(owners)], np.diff(bounds))

    def _nodes_at(self, node: NodeProcess) -> messages.Nodes:
        reply = messages.decode_reply(ask_address(node.control, messages.encode(messages.ListNodes()), ASK_S))
        if not isinstance(reply, messages.Nodes):
            raise StoryError(f"{node.name} sent an unexpected answer: {reply}")
        return reply

    def _voters(self) -> int:
        roles = [member.role for member in self._nodes_at(self._nodes[0]).nodes]
        return sum(role in {"leader", "voter"} for role in roles)

    def _leader(self, places: Sequence[int] | None = None) -> NodeProcess:
        nodes = self._nodes if places is None else [self._nodes[place] for place in places]
        replies = [(node, self._nodes_at(node)) for node in nodes]
        return next(node for node, reply in replies if reply.leader == reply.node)

    def _elected(self, places: Sequence[int], killed: int) -> bool:
        try:
            return all(self._nodes_at(self._nodes[place]).leader not in {0, killed} for place in places)
        except ConnectError:
            return False

    @staticmethod
    def _until(condition: Callable[[], bool], description: str) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > end:
                raise StoryError(f"after {WAIT_S:g} s the demo still waits for: {description}")
            time.sleep(0.02)
