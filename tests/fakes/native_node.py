"""A native node that only answers orders: for tests of what is above it. System tests drive the real one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringfence.native import cluster_messages, messages
from ringfence.native._node import Order, crc32c, crc32c_seal
from ringfence.native.wire import ANSWER_STRUCT, REQUEST_STRUCT, AnswerHeader, RequestFlags, RequestHeader
from tests.fakes.partition_lists import PartitionList

OF_THE_LOG = ("start_offset", "sources")
"""What a log tells when it is opened again, too."""


class FakeNode(PartitionList):
    """Every order succeeds at once unless `refuses` has a reason for its name."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        if "data" in settings:
            Path(settings["data"], "LOCK").touch()  # as every engine does, before anything else
        self.orders: list[tuple[Any, ...]] = []
        self.levels: list[int] = []
        self.refuses: dict[str, str] = {}
        kept = Path(settings.get("data", "."), "WITNESS")
        self.witness = [int(number) for number in kept.read_text().split()] if kept.exists() else []
        self.doubts: list[tuple[int, int]] = []
        self.ends = b""
        self.lacks: list[tuple[int, int]] = []
        """Replicas whose log ends before what was known of it."""
        self.kept: list[tuple[int, list[tuple[int, int]]]] = []
        """Doubted replicas as they were written down, with the number of orders before."""
        self.holds: set[str] = set()
        self.held: list[int] = []
        self.outcomes: list[tuple[Any, ...]] = []
        self.answers: dict[int, tuple[AnswerHeader, bytes]] = {}
        self.found: list[dict[str, Any]] = []
        self.resume: dict[int, dict[str, Any]] = {}
        self.forgets_producers: set[int] = set()
        self.hosted: dict[tuple[int, int], dict[str, Any]] = {}
        self.staged = 0
        self.lineage: dict[int, tuple[Any, Any]] = {}
        """By topic: SEALED partitions and ancestors, as the newest table has them."""
        self.floors: dict[int, int] = {}
        """Lowest generation of a topic's table that clients hold."""
        self.broken: str | None = None
        self.access: tuple[bool, list[Any], str] = (False, [], "")
        self.prefix = self.token = ""
        self.member_key = b""
        self.features = (1 << 64) - 1
        self.applied = self.generation = 0
        self.controller: cluster_messages.Controller | None = None
        self.stopped = False
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK)
        self._number = 0

    def recover(self) -> dict[str, Any]:
        empty = {"files": 0, "bytes": 0, "records": 0, "seconds": 0.0, "cut_bytes": 0}
        return {**empty, "witness": self.witness, "partitions": self.found}

    def listen(self, addresses: list[str]) -> list[str]:
        self.orders.append(("listen",))
        return [address[:-2] + ":4711" if address.endswith(":0") else address for address in addresses]

    def fileno(self) -> int:
        return self._eventfd

    def poll(self, limit: int = 256) -> list[tuple[Any, ...]]:
        if self.broken is not None:
            raise RuntimeError(self.broken)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._eventfd)
        taken, self.outcomes = self.outcomes[:limit], self.outcomes[limit:]
        return taken

    def counters(self) -> dict[str, int]:
        if self.broken is not None:
            raise RuntimeError(self.broken)
        return {"requests": len(self.answers)}

    def partitions(self) -> list[dict[str, Any]]:
        return list(self.hosted.values())

    def producer_tables(self) -> list[tuple[int, int, int, int]]:
        return []

    def adopted(self, topics: list[int]) -> list[tuple[int, int]]:
        return [(topic, self.floors[topic]) for topic in topics if topic in self.floors]

    def syncs(self) -> list[dict[str, Any]]:
        return []

    def lacking(self, ends: bytes) -> list[tuple[int, int]]:
        self.ends = ends
        return self.lacks

    def log_ends(self) -> bytes:
        return self.ends

    def doubted(self) -> list[tuple[int, int]]:
        return sorted(self.doubts)

    def write_witness(self, numbers: list[int], doubted: list[tuple[int, int]]) -> None:
        self.witness = list(numbers)
        Path(self.settings["data"], "WITNESS").write_text(" ".join(map(str, numbers)))
        self.kept.append((len(self.orders), doubted))

    def set_ready(self, body: bytes) -> None:
        self.ready = messages.decode(messages.Ready, body)

    def set_applied(self, index: int) -> None:
        self.applied = index

    def set_generation(self, index: int) -> None:
        self.generation = index

    def set_controller(self, body: bytes) -> None:
        self.controller = messages.decode(cluster_messages.Controller, body)

    def set_time_window(self, earliest_ms: int, latest_ms: int) -> None:
        self.time_window = earliest_ms, latest_ms

    def set_access(self, is_asked: bool, grants: list[Any], credential: str) -> None:
        self.access = (is_asked, grants, credential)

    def set_members(self, key: bytes) -> None:
        self.member_key = key

    def stop(self, timeout_s: float) -> None:
        assert timeout_s > 0
        self.stopped = True

    def answer(self, connection: int, header: bytes, body: bytes) -> None:
        assert connection == 7
        fields = AnswerHeader(*ANSWER_STRUCT.unpack(header))
        assert fields.body_crc == crc32c(body)
        assert fields.body_bytes == len(body)
        self.answers[fields.request_id] = (fields, body)

    # ---- orders -----------------------------------------------------------------------------------

    def _order(self, name: str, *values: Any, result: dict[str, Any] | None = None) -> int:
        self._number += 1
        self.orders.append((name, *values))
        if name in self.holds:
            self.held.append(self._number)
        else:
            self.tell(("order", self._number, self.refuses.get(name), result or {}))
        return self._number

    def order(self, order: Order) -> int:
        number: int = getattr(self, order.name)(*order.arguments)
        return number

    def install_cohorts(self, *_: Any) -> int:
        """Not among `orders`: every entry that concerns a topic renews them. `GatedNode` has them."""
        self._number += 1
        self.tell(("order", self._number, None, {}))
        return self._number

    def set_level(self, level: int) -> int:
        """Not among `orders`: it comes before all others at each start."""
        self.levels.append(level)
        self._number += 1
        self.tell(("order", self._number, None, {}))
        return self._number

    def install_topic(
        self, topic: int, schemas: list[bytes], key_columns: tuple[int, ...], size: int, age: int
    ) -> int:
        return self._order("install_topic", topic, len(schemas), tuple(key_columns), size, age)

    def install_table(
        self,
        topic: int,
        generation: int,
        version: int,
        table: bytes,
        partitions: list[Any],
        redirect: bytes,
        redirects: list[tuple[int, bytes]],
        sealed: list[tuple[int, int, int, int, bytes]] | tuple[()] = (),
        ancestors: list[tuple[int, list[int]]] | tuple[()] = (),
    ) -> int:
        assert [messages.decode(messages.Redirected, body).owner for _, body in redirects] == [
            node for node, _ in redirects
        ]
        self.table = messages.decode(messages.Table, table)
        messages.decode(messages.Redirected, redirect)
        self.lineage[topic] = sealed, ancestors
        return self._order("install_table", topic, generation, version, len(partitions))

    def doubt(self, partitions: list[tuple[int, int]]) -> int:
        self.doubts += partitions
        return self._order("doubt", partitions)

    def keep_rows(self, topic: int, partitions: Sequence[tuple[int, int]]) -> int:
        return self._order("keep_rows", topic, partitions)

    def remove_topic(self, topic: int) -> int:
        return self._order("remove_topic", topic)

    def set_peer(self, node: int, addresses: tuple[str, ...]) -> int:
        return self._order("set_peer", node, tuple(addresses))

    def follow(self, topic: int, partition: int, lo: int, hi: int, epoch: int, owner: int, _: int) -> int:
        return self._order("follow", topic, partition, lo, hi, epoch, owner)

    def open(
        self, topic: int, partition: int, lo: int, hi: int, epoch: int, _: list[tuple[int, bytes]], __: int
    ) -> int:
        if "open" not in self.refuses:
            known = self.hosted.get((topic, partition), {})
            kept = {key: known[key] for key in OF_THE_LOG if key in known}
            self.hosted[topic, partition] = {
                "topic": topic,
                "partition": partition,
                "start_offset": 0,
                "end_offset": 100,
                "bytes": 5,
                "quarantined": None,
                "owner_epoch": epoch,
                "fence": 0,
                "records": 1,
                "chain": 7,
                "open": True,
                **kept,
            }
        return self._order("open", topic, partition, lo, hi, epoch)

    def open_sealed(
        self, topic: int, partition: int, lo: int, hi: int, epoch: int, end: tuple[int, ...], _: Any = ()
    ) -> int:
        if (topic, partition) in self.hosted:
            self.hosted[topic, partition] |= {"open": False, "owner_epoch": epoch, "end_offset": end[2]}
        return self._order("open_sealed", topic, partition, lo, hi, epoch, end)

    def follow_sealed(
        self, topic: int, partition: int, lo: int, hi: int, epoch: int, owner: int, end: tuple[int, ...]
    ) -> int:
        return self._order("follow_sealed", topic, partition, lo, hi, epoch, owner, end)

    def drop(self, topic: int, partition: int) -> int:
        if "drop" not in self.refuses:
            self.hosted.pop((topic, partition), None)
        return self._order("drop", topic, partition)

    def fence(self, topic: int, partition: int, epoch: int) -> int:
        return self._order("fence", topic, partition, epoch)

    def hold(self, topic: int, partition: int, epoch: int) -> int:
        known = self.hosted.get((topic, partition), {})
        end = {"epoch": known.get("owner_epoch", 0), "records": 1, "end_offset": 100, "chain": 7}
        return self._order("hold", topic, partition, epoch, result={**end, "stopped_us": 1_000})

    def close(self, topic: int, partition: int) -> int:
        return self._order("close", topic, partition)

    def truncate(self, topic: int, partition: int, before_offset: int, epoch: int) -> int:
        if "truncate" not in self.refuses and (topic, partition) in self.hosted:
            self.hosted[topic, partition]["start_offset"] = before_offset
        return self._order("truncate", topic, partition, before_offset, epoch)

    def open_producer(
        self,
        topic: int,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        name: bytes,
        previous_epoch: int = 0,
    ) -> int:
        values = (topic, partition, producer_id, producer_epoch, name)
        if previous_epoch and partition in self.forgets_producers:
            return self._order("open_producer", *values, result={"forgotten": True})
        return self._order("open_producer", *values, result=self.resume.get(partition))

    def install_scopes(self, rules: list[Any], gone: int | None) -> int:
        return self._order("install_scopes", len(rules), gone)

    def forced_ends(self) -> list[tuple[int, int, int]]:
        """No claims are modelled."""
        return []

    def publish(
        self, topic: int, partition: int, scope: int, epoch: int, tokens: bytes, rows: int, *more: int
    ) -> int:
        return self._order("publish", topic, partition, scope, epoch, rows, *more)

    def count_staged(self, topic: int, partition: int, scope: int, epoch: int, tokens: bytes) -> int:
        owner_epoch = self.hosted[topic, partition]["owner_epoch"]
        staged = {"rows": self.staged, "upto": 0, "epoch": owner_epoch, "is_published": False}
        return self._order("count_staged", topic, partition, scope, epoch, result=staged)

    # ---- what a test does ---------------------------------------------------------------------------

    def tell(self, outcome: tuple[Any, ...]) -> None:
        self.outcomes.append(outcome)
        os.eventfd_write(self._eventfd, 1)

    def release(self) -> None:
        for number in self.held:
            self.tell(("order", number, None, {}))
        self.held.clear()

    def request(
        self, request_id: int, opcode: int, body: messages.Message | bytes | None, deadline_ms: int = 0
    ) -> None:
        packed = body if isinstance(body, bytes) else b"" if body is None else messages.encode(body)
        header = RequestHeader(
            opcode=opcode,
            flags=RequestFlags.CONTROL,
            request_id=request_id,
            deadline_ms=deadline_ms,
            body_bytes=len(packed),
            body_crc=crc32c(packed),
        )
        sealed = bytearray(REQUEST_STRUCT.pack(*header))
        crc32c_seal(sealed)
        self.tell(("request", 7, bytes(sealed), packed, self.prefix, self.token, self.features))

    def names(self) -> list[str]:
        return [order[0] for order in self.orders]
