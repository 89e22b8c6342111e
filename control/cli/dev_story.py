"""What `ringfence dev --demo` shows: lineitem through three nodes, one of them killed on the way."""

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
from ringfence.control.cli.connection import connected
from ringfence.control.cli.local_cluster import LocalCluster, Process
from ringfence.control.cli.tables import Source
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import put
from ringfence.native.errors import ConnectError
from ringfence.native.slots import slots

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ringfence import Client, Producer

TOPIC: Final = "lineitem"
# Rows of one send while a node is down: small, so that the longest wait for an answer says something.
SLICE_ROWS: Final = 2_000
ASK_S: Final = 1.0
# An election takes a second, a restart two; whoever needs longer has failed.
WAIT_S: Final = 60.0


class StoryError(Exception):
    """Something did not come to pass; the sentence says what."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One line of the table."""

    what: str
    seen: str
    seconds: float


class Story:
    """Of a cluster that serves."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._nodes, self._kill, self._restart = list(cluster.nodes.values()), cluster.kill, cluster.restart

    def tell(self, source: Path) -> Iterator[Scene]:
        """Run it, a scene at a time. Raises StoryError, RingfenceError."""
        began = time.perf_counter()
        self._until(lambda: self._voters() == len(self._nodes), "all nodes vote")
        yield Scene("nodes agree on a leader", self._leader().name, time.perf_counter() - began)
        with ExitStack() as stack:
            clients = [stack.enter_context(connected(node.address)) for node in self._nodes]
            began = time.perf_counter()
            steps.create_topic(clients[0], TOPIC, source, 2 * len(self._nodes))
            owners = self._owners(clients[0])
            placed = sorted(owners.values())
            yield Scene(
                "a topic is placed over all",
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
        dead = self._says(leader).node
        alive = [place for place, node in enumerate(self._nodes) if node is not leader]
        self._kill(leader.name)
        began = time.perf_counter()
        yield Scene("kill -9 of the leader", leader.name, 0.0)
        waiting: list[Future[Any]] = []
        longest, count = self._go_on(
            [producers[place] for place in alive], batches[half:], owners, dead, waiting
        )
        yield Scene(
            "the rest to partitions of live nodes, at once",
            f"{count:,} rows, no error, longest wait {longest * 1e3:,.0f} ms",
            time.perf_counter() - began,
        )
        began = time.perf_counter()
        self._until(lambda: self._elected(alive, dead), "another node leads")
        schema = pa.schema([("id", pa.int64())])
        clients[alive[0]].create_topic("after", schema=schema, partitions=1, exist_ok=True)
        yield Scene("a new leader takes commands", self._leader(alive).name, time.perf_counter() - began)
        began = time.perf_counter()
        held = sum(future.done() for future in waiting)
        self._restart(leader.name)
        late = sum(part.rows for future in waiting for part in future.result(WAIT_S))
        yield Scene(
            "the killed node is back, its rows with it",
            f"{late:,} rows had waited" + (f", {held} sends were done before" if held else ""),
            time.perf_counter() - began,
        )

    def _go_on(
        self,
        producers: Sequence[Producer],
        batches: Sequence[pa.RecordBatch],
        owners: dict[int, int],
        dead: int,
        waiting: list[Future[Any]],
    ) -> tuple[float, int]:
        """Send rows of live nodes and wait for each answer; the dead node's are sent and not waited for."""
        longest, count = 0.0, 0
        turns = cycle(producers)
        of_slot = self._owner_of_slot(owners)
        for batch in batches:
            for start in range(0, batch.num_rows, SLICE_ROWS):
                part = batch.slice(start, SLICE_ROWS)
                mask = of_slot[slots(part, [steps.KEY])] == dead
                lost, kept = part.filter(pa.array(mask)), part.filter(pa.array(~mask))
                producer = next(turns)
                if lost.num_rows:
                    waiting.append(producer.send(lost))
                if kept.num_rows:
                    asked = time.perf_counter()
                    count += sum(appended.rows for appended in next(turns).send(kept).result(WAIT_S))
                    longest = max(longest, time.perf_counter() - asked)
        return longest, count

    def _compare(self, source: Path) -> Iterator[Scene]:
        truth = steps.read_file(source)
        for node in self._nodes:
            with connected(node.address) as client:
                read = steps.read(client, TOPIC)
            if (read.rows, read.digest) != (truth.rows, truth.digest):
                raise StoryError(
                    f"{node.name} gives {read.rows} rows, hash {read.digest}; the file has "
                    f"{truth.rows}, hash {truth.digest}"
                )
            seen = f"{read.rows:,} rows, hash {read.digest:016x}"
            yield Scene(f"all rows through {node.name}", seen, read.seconds)
        began = time.perf_counter()
        self._until(
            lambda: len({(said.index, said.hash) for said in map(self._says, self._nodes)}) == 1,
            "equal metadata on all nodes",
        )
        said = self._says(self._nodes[0])
        yield Scene(
            "metadata is equal on all nodes",
            f"index {said.index}, hash {said.hash}",
            time.perf_counter() - began,
        )

    def _owners(self, client: Client) -> dict[int, int]:
        return {part.partition: part.owner for part in client.topic(TOPIC).partitions}

    def _owner_of_slot(self, owners: dict[int, int]) -> Any:
        """Node by slot; the topic's partitions tile the slots evenly, in the order of their ids."""
        bounds = np.linspace(0, 1 << 16, len(owners) + 1).astype(np.int64)
        return np.repeat([owners[number] for number in sorted(owners)], np.diff(bounds))

    def _says(self, node: Process) -> messages.Nodes:
        reply = messages.decode_reply(put(node.control, messages.encode(messages.ListNodes()), ASK_S))
        if not isinstance(reply, messages.Nodes):
            raise StoryError(f"{node.name} answers {reply}")
        return reply

    def _voters(self) -> int:
        roles = [known.role for known in self._says(self._nodes[0]).nodes]
        return sum(role in {"leader", "voter"} for role in roles)

    def _leader(self, places: Sequence[int] | None = None) -> Process:
        nodes = self._nodes if places is None else [self._nodes[place] for place in places]
        told = [(node, self._says(node)) for node in nodes]
        return next(node for node, said in told if said.leader == said.node)

    def _elected(self, places: Sequence[int], dead: int) -> bool:
        try:
            return all(self._says(self._nodes[place]).leader not in {0, dead} for place in places)
        except ConnectError:
            return False

    @staticmethod
    def _until(holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not holds():
            if time.monotonic() > end:
                raise StoryError(f"not within {WAIT_S:g} s: {what}")
            time.sleep(0.02)
