"""A fake node whose partitions can be held, sealed and replaced, as a split, merge or repartition does."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field

from ringfence.common.routes import overlap
from ringfence.native import messages, wire
from tests.fakes.socket_node import FakeNode, Log, Topic

Op, Status, Code = wire.Opcode, wire.Status, wire.Code


@dataclass
class Cut:
    """What a layout change has made of a partition, beside its log."""

    parents: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    created: int = 1
    sealed: int = 0
    is_held: bool = False
    is_given_back: bool = False
    points: dict[int, list[messages.ResumePoint]] = field(default_factory=dict)  # by producer id, inherited


class CutNode(FakeNode):
    """It pushes no tables: clients learn of layout changes by redirects."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts: dict[int, Cut] = {}
        self.rules: dict[str, int] = {}  # of names in topics without key
        self.needed: list[int] = []  # versions that TABLE requests named
        self._turn = threading.RLock()

    # ---- from the test --------------------------------------------------------------------------------

    def active(self, name: str) -> list[Log]:
        """The partitions that take rows, in the order of slots."""
        logs = [log for log in self.topic_of(name).logs.values() if not self.cut(log.partition).sealed]
        return sorted(logs, key=lambda log: log.lo)

    def cut(self, partition: int) -> Cut:
        return self.cuts.setdefault(partition, Cut())

    def hold(self, name: str, count: int = 1, first: int = 0) -> list[Log]:
        """Fence adjacent partitions: `count` of them from the `first` on."""
        with self._turn:
            sources = self.active(name)[first : first + count]
            for log in sources:
                self.cut(log.partition).is_held = True
            return sources

    def commit(self, name: str, sources: list[Log], *inner: int) -> list[Log]:
        """Seal the sources; children begin at their first slot and at each of `inner`."""
        with self._turn:
            topic = self.topic_of(name)
            topic.version = max(topic.version, 1) + 1
            self.generation += 1
            edges = [sources[0].lo, *inner, sources[-1].hi + 1]
            children = []
            for lo, end in itertools.pairwise(edges):
                child = Log(next(self._ids), lo, end - 1, epoch=self.generation)
                topic.logs[child.partition] = child
                children.append(child)
                self._inherit(
                    child, [log for log in sources if overlap((log.lo, log.hi), (lo, end - 1))], topic.version
                )
            for log in sources:
                cut = self.cut(log.partition)
                cut.sealed, cut.is_held = topic.version, False
            return children

    def split(self, name: str, first: int = 0, parts: int = 2) -> list[Log]:
        """Split one partition evenly."""
        (source,) = self.hold(name, 1, first)
        size = source.hi + 1 - source.lo
        return self.commit(name, [source], *[source.lo + size * at // parts for at in range(1, parts)])

    def merge(self, name: str, count: int = 2, first: int = 0) -> Log:
        (child,) = self.commit(name, self.hold(name, count, first))
        return child

    def _inherit(self, child: Log, parents: list[Log], version: int) -> None:
        cut = self.cut(child.partition)
        cut.created, cut.parents = version, [log.partition for log in parents]
        for log in parents:
            self.cut(log.partition).children.append(child.partition)
            for producer, (epoch, _, _) in log.producers.items():
                known = child.producers.get(producer, (0, -1, {}))[0]
                child.producers[producer] = max(epoch, known), -1, {}
                points = self.points_of(log, producer)
                cut.points.setdefault(producer, []).extend(clipped(points, child))

    def points_of(self, log: Log, producer: int) -> list[messages.ResumePoint]:
        """The resume points of a name in one partition: its own last batch, else what it has inherited."""
        own = log.resumes.get(producer)
        last = next((one for one in reversed(log.stored) if one.producer_id == producer), None)
        if last is None:
            return self.cut(log.partition).points.get(producer, [])
        first = sum(one.rows for one in log.stored[: log.stored.index(last)])
        note = None if own is None else own.note
        return [
            messages.ResumePoint(
                partition=log.partition,
                sequence=last.sequence,
                send=last.send,
                note=note,
                first_offset=first,
                rows=last.rows,
                lo=log.lo,
                hi=log.hi,
            )
        ]

    def lineage_ids(self, name: str) -> list[int]:
        """The partitions of a topic, ancestors first."""
        return sorted(self.topic_of(name).logs, key=lambda one: (self.cut(one).created, one))

    # ---- the node -------------------------------------------------------------------------------------

    def _serve(self, header: wire.RequestHeader, body: bytes) -> list[bytes] | None:
        with self._turn:
            if header.opcode == Op.TABLE:
                self.needed.append(header.layout_version)
            if header.opcode in {Op.PUBLISH, Op.FETCH, Op.END_OFFSETS}:
                topic = next((one for one in self.topics.values() if one.topic == header.topic), None)
                if topic is not None and header.partition not in topic.logs:
                    return self._refuse(header, Code.UNKNOWN_PARTITION)
            return super()._serve(header, body)

    def _publish(self, topic: Topic, log: Log, header: wire.RequestHeader, body: bytes) -> list[bytes]:
        cut = self.cut(log.partition)
        if cut.sealed:
            return self._sealed(topic, log, header)
        if cut.is_held:
            return self._refuse(header, Code.HELD, "on hold", retry_after_ms=5)
        return super()._publish(topic, log, header, body)

    def _sealed(self, topic: Topic, log: Log, header: wire.RequestHeader) -> list[bytes]:
        cut = self.cut(log.partition)
        epoch, last, answers = log.producers.get(header.producer_id, (header.producer_epoch, -1, {}))
        if header.producer_epoch < epoch:
            return self._refuse(header, Code.FENCED_PRODUCER)
        stored = last + 1 if header.producer_epoch == epoch else 0
        if header.sequence < stored and not cut.is_given_back:
            first, rows, crc = answers[header.sequence]
            if crc != header.body_crc:
                return self._refuse(header, Code.CONFLICT)
            flags = wire.AnswerFlags.REPEATED
            return self._answer(header, Status.OK, first_offset=first, rows=rows, flags=flags)
        told = messages.Redirected(
            owner=self.node, addresses=[self.address], children=cut.children, version=cut.sealed
        )
        if cut.is_given_back:
            stored = (1 << 64) - 1
        else:
            newest = [(one, first, rows) for one, (first, rows, _) in sorted(answers.items())]
            told = messages.Redirected(
                owner=self.node,
                addresses=[self.address],
                children=cut.children,
                version=cut.sealed,
                stored=stored,
                answers=newest[-wire.DEDUPE_WINDOW :] if stored else [],
            )
        return self._reply(
            header,
            told,
            Status.REDIRECT,
            code=wire.RedirectReason.SEALED,
            sequence=stored,
            layout_version=topic.version,
        )

    def table(self, topic: Topic) -> messages.Table:
        table = super().table(topic)
        fields = {name: getattr(table, name) for name in table.__struct_fields__}
        fields["version"] = topic.version
        fields["partitions"] = [self._entry(one) for one in table.partitions]
        return messages.Table(**fields)

    def _entry(self, entry: messages.PartitionEntry) -> messages.PartitionEntry:
        cut = self.cut(entry.partition)
        fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
        return messages.PartitionEntry(
            **fields
            | {
                "state": "SEALED" if cut.sealed else "ACTIVE",
                "parents": cut.parents,
                "children": cut.children,
                "created_version": cut.created,
                "sealed_version": cut.sealed,
            }
        )

    def _open(self, header: wire.RequestHeader, asked: messages.ProducerOpen) -> list[bytes]:
        """Resume points by slot range; the rule of a name is that of its first open."""
        if asked.name is None:
            return super()._open(header, asked)
        topic = self.topic_of(asked.topic)
        is_new = asked.name not in self._epochs
        epoch = next(self._ids)
        producer, _ = self._epochs.get(asked.name, (next(self._ids), 0))
        self._epochs[asked.name] = producer, epoch
        if is_new:
            self.rules[asked.name] = 0 if topic.key else 2 if asked.spread is True else 1
        resume = []
        for log in self.active(asked.topic):
            resume += self.points_of(log, producer)
        for log in self.active(asked.topic):
            log.producers[producer] = epoch, -1, {}
        opened = messages.ProducerOpened(
            producer_id=producer, producer_epoch=epoch, resume=resume, rule=self.rules[asked.name]
        )
        return self._reply(header, opened)


def clipped(points: list[messages.ResumePoint], child: Log) -> list[messages.ResumePoint]:
    """The parts of resume points in the slots of a child."""
    found = []
    for point in points:
        assert isinstance(point.lo, int)
        assert isinstance(point.hi, int)
        lo, hi = max(point.lo, child.lo), min(point.hi, child.hi)
        if lo <= hi:
            fields = {name: getattr(point, name) for name in point.__struct_fields__}
            found.append(messages.ResumePoint(**fields | {"lo": lo, "hi": hi}))
    return found
