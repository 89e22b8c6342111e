"""A client whose node has parked ranges, scopes and topics in memory: what an exporter asks of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from ringfence.common.scope_values import Begun, StagedRows
from ringfence.consumer.parked_rows import target_schema
from ringfence.native.cohort_messages import (
    CohortDescribe,
    CohortDescribed,
    CohortEntry,
    CohortParked,
    CohortSettings,
    CohortSummary,
    ParkedListed,
    ParkedRange,
    ParkedSettled,
)
from ringfence.native.messages import decode, encode
from ringfence.native.wire import Opcode

SOURCE = pa.schema([pa.field("id", pa.int64())])
COHORT = 3
Item = tuple[int, int]


class Stager:
    """Keeps what is sent until it is committed."""

    def __init__(self, node: ParkedNode, begun: Begun, epoch: int) -> None:
        self._node, self._begun, self._epoch = node, begun, epoch
        self._rows: list[dict[str, Any]] = []

    def send(self, topic: str, batch: pa.RecordBatch) -> None:
        self._node.raise_next("stage")
        assert topic == "u"
        self._rows += batch.to_pylist()

    def finish(self) -> StagedRows:
        begun, token = self._begun, b"%016d" % self._epoch
        self._node.staged[begun.scope, self._epoch] = self._rows
        return StagedRows(
            token, {(2, 1): len(self._rows)}, already=False, scope=begun.scope, epoch=self._epoch
        )

    def close(self) -> None:
        """Nothing is held."""


class ParkedNode:
    """A client and its `admin`. `errors`: by step, raised once each before anything happens."""

    def __init__(self, *items: Item) -> None:
        self.parked = dict.fromkeys(items, "parked")
        self.scope_of: dict[Item, int] = {}
        self.scopes_by_name: dict[str, int] = {}
        self.committed: dict[int, int] = {}
        self.decided: dict[int, int] = {}
        self.staged: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self.copied: list[dict[str, Any]] = []
        self.errors: dict[str, list[Exception]] = {}
        self.asked: list[str] = []
        self.unknown: list[int] = []
        self.made: list[tuple[str, Any]] = []
        self.topics = {"t": SOURCE, "u": target_schema(SOURCE, "t")}

    def raise_next(self, step: str) -> None:
        self.asked.append(step)
        if self.errors.get(step):
            raise self.errors[step].pop(0)

    # ---- the admin's requests ----------------------------------------------------------------------------

    def request(self, opcode: Opcode, message: Any, *, topic: str) -> tuple[Any, int]:
        assert topic == "t"
        answer = self._described() if isinstance(message, CohortDescribe) else self._served(message)
        assert opcode in {Opcode.COHORT_DESCRIBE, Opcode.COHORT_PARKED}
        return SimpleNamespace(control=lambda kind: decode(kind, encode(answer))), 0

    def _described(self) -> CohortDescribed:
        self.raise_next("describe")
        entry = CohortEntry(
            topic="t",
            cohort="c",
            id=COHORT,
            mode="queue",
            start="earliest",
            settings=CohortSettings(),
            version=1,
            incarnation=1,
            generation=0,
        )
        return CohortDescribed(summary=CohortSummary(entry=entry))

    def _served(self, message: CohortParked) -> ParkedListed | ParkedSettled:
        self.raise_next(message.action)
        match message.action, message.items:
            case "list", _:
                return ParkedListed(parked=[self._range(item) for item in self.parked], unknown=self.unknown)
            case "begin", [item]:
                return self._begun(item, message.scope, force=message.force)
            case "exported", [item]:
                return self._exported(item, message.scope)
            case _, items:
                chosen = items if isinstance(items, list) else [*self.parked]
                gone = [self.parked.pop(item) for item in chosen if item in self.parked]
                return ParkedSettled(done=len(gone))

    def _range(self, item: Item) -> ParkedRange:
        partition, number = item
        return ParkedRange(
            partition=partition,
            number=number,
            first=number * 10,
            rows=2,
            count=5,
            reason="bad",
            time_ms=9,
            state=self.parked[item],
            scope=self.scope_of.get(item, 0),
        )

    def _begun(self, item: Item, scope: int, *, force: bool) -> ParkedSettled:
        if item not in self.parked:
            return ParkedSettled(done=0, not_parked=[item])
        if self.scope_of.get(item, scope) != scope and not force:
            return ParkedSettled(done=0, unknown=[item])
        self.parked[item], self.scope_of[item] = "exporting", scope
        return ParkedSettled(done=1)

    def _exported(self, item: Item, scope: int) -> ParkedSettled:
        if self.parked.pop(item, None) is None:
            return ParkedSettled(done=0, not_parked=[item])
        assert self.committed.get(scope), "its copy is committed"
        return ParkedSettled(done=1)

    # ---- the client --------------------------------------------------------------------------------------

    @property
    def scopes(self) -> ParkedNode:
        return self

    def layout(self, topic: str) -> Any:
        self.raise_next("layout")
        schema = self.topics[topic].serialize().to_pybytes()
        number = list(self.topics).index(topic) + 1
        return SimpleNamespace(name=topic, topic=number, schemas=[schema])

    def topic(self, name: str) -> Any:
        return SimpleNamespace(
            name=name,
            topic=list(self.topics).index(name) + 1,
            schemas=[self.topics[name]],
            key=["id"],
            replication=1,
        )

    def create_topic(self, name: str, *, schema: pa.Schema, **options: Any) -> Any:
        self.made.append((name, options))
        self.topics.setdefault(name, schema)
        return self.topic(name)

    def read(self, topic: str, **options: Any) -> Any:
        del topic
        self.raise_next("read")
        return _Reader(options["start"])

    def begin(self, name: str, *, one_off: bool) -> Begun:
        self.raise_next("scope")
        assert one_off, "its name follows from the range, which is exported once"
        scope = self.scopes_by_name.setdefault(name, len(self.scopes_by_name) + 40)
        return Begun(scope, 1, self.committed.get(scope, 0), self.decided.get(scope, 0))

    def attempt(self, begun: Begun, epoch: int, *, timeout_s: float) -> Stager:
        assert timeout_s > 0
        return Stager(self, begun, epoch)

    def commit_told(self, begun: Begun, epoch: int, staged: list[StagedRows]) -> bool:
        assert [one.epoch for one in staged] == [epoch]
        self.raise_next("commit")
        self.copied += self.staged.pop((begun.scope, epoch))
        self.committed[begun.scope] = self.decided[begun.scope] = epoch
        return True

    def expire(self, begun: Begun, epoch: int) -> None:
        self.raise_next("expire")
        self.staged.pop((begun.scope, epoch), None)
        self.decided[begun.scope] = epoch


class _Reader:
    """Rows from `start` on, three a batch."""

    def __init__(self, start: int) -> None:
        self._next = start
        self.place: Any = None

    def __iter__(self) -> _Reader:
        return self

    def __next__(self) -> pa.RecordBatch:
        self.place = SimpleNamespace(first_offset=self._next)
        self._next += 3
        return pa.record_batch([[self.place.first_offset + at for at in range(3)]], schema=SOURCE)

    def close(self) -> None:
        """Nothing is open."""
