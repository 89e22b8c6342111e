"""A fake node that pushes tables and watches to followers; it notes what is acknowledged."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ringfence.native import messages, wire
from ringfence.native._node import crc32c
from ringfence.native.cluster_messages import Controller, WatchClose, WatchOpen, WatchUpdate
from ringfence.native.frame import pack_answer
from tests.fakes.cut_node import CutNode
from tests.fakes.socket_node import Log, Topic

Op, Status, Code = wire.Opcode, wire.Status, wire.Code
LEADER = Controller(node=1, addresses=["tcp://127.0.0.1:7411"], http="127.0.0.1:7412")


@dataclass
class Session:
    """One watch. `known`: ids of the topics that it was told of."""

    way: bytes
    topic: int = 0
    prefix: str = ""
    known: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Acknowledged:
    way: bytes
    topic: int
    generation: int


class PushNode(CutNode):
    """`pushes`: False loses all pushes and updates. `page`: topics of one update of a catalogue."""

    def __init__(self, *, pushes: bool = True, page: int = 1000, **options: int) -> None:
        super().__init__(**options)
        self.pushes, self.page = pushes, page
        self.changed_at: dict[int, int] = {}  # topic id -> generation of its last change
        self.acknowledged: list[Acknowledged] = []
        self.unchanged = 0  # answers without a body
        self.pushed: list[int] = []  # generations of pushed tables
        self.sessions: dict[bytes, Session] = {}
        self.opened: list[WatchOpen] = []
        self.serves_watches = True
        self._followers: set[tuple[bytes, int]] = set()
        self._unasked: deque[list[bytes]] = deque()
        self._changes = threading.RLock()

    # ---- from the test --------------------------------------------------------------------------------

    def change(self, name: str) -> None:
        """The table of the topic changes: owners, epochs, or what the test has changed before."""
        with self._changes:
            self.generation += 1
            self._tell(self.topic_of(name))

    def commit(self, name: str, sources: list[Log], *inner: int) -> list[Log]:
        with self._changes:
            children = super().commit(name, sources, *inner)
            self._tell(self.topic_of(name))
            return children

    def make(self, name: str, like: str) -> Topic:
        """Another client creates a topic."""
        with self._changes:
            known = self.topic_of(like)
            full = f"public/default/{name}"
            log = Log(next(self._ids), 0, wire.SLOT_COUNT - 1)
            made = self.topics[full] = Topic(
                next(self._ids), full, known.key, known.schemas, {log.partition: log}, version=1
            )
            self.generation += 1
            self._tell_catalogues()
            return made

    def delete(self, name: str) -> None:
        """Another client deletes a topic."""
        with self._changes:
            topic = self.topic_of(name)
            del self.topics[topic.name]
            self.generation += 1
            for number, session in list(self.sessions.items()):
                if session.topic == topic.topic:
                    update = WatchUpdate(session=number, controller=LEADER, deleted=True)
                    self._send(session.way, Op.WATCH_UPDATE, update, topic.topic)
                    del self.sessions[number]
            self._tell_catalogues()

    def send(self, way: bytes, opcode: int, message: messages.Message, topic: int, generation: int) -> None:
        """Push whatever the test wants."""
        self._send(way, opcode, message, topic, generation)

    # ---- the node -------------------------------------------------------------------------------------

    def _tell(self, topic: Topic) -> None:
        self.changed_at[topic.topic] = self.generation
        table = self.table(topic)
        for way, followed in list(self._followers):
            if followed == topic.topic:
                self._push_table(way, table)
        for number, session in list(self.sessions.items()):
            if session.topic == topic.topic:
                update = WatchUpdate(session=number, controller=LEADER, table=table)
                self._send(session.way, Op.WATCH_UPDATE, update, topic.topic)

    def _push_table(self, way: bytes, table: messages.Table) -> None:
        if self.pushes:
            self.pushed.append(table.generation)
        self._send(way, Op.TABLE_PUSH, table, table.topic)

    def _tell_catalogues(self) -> None:
        for number, session in list(self.sessions.items()):
            if not session.topic:
                self._list(number, session, whole=False)

    def _list(self, number: bytes, session: Session, *, whole: bool) -> None:
        now = {
            topic.topic: topic.name for topic in self.topics.values() if topic.name.startswith(session.prefix)
        }
        new = sorted((one, name) for one, name in now.items() if whole or one not in session.known)
        gone = [] if whole else sorted(session.known - now.keys())
        session.known = set(now)
        pages = [new[at : at + self.page] for at in range(0, len(new), self.page)] or [[]]
        for index, page in enumerate(pages):
            fields = {
                "topics": page,
                "gone": gone if index == 0 else [],
                **({"whole": True} if whole and index == 0 else {}),
                **({"more": True} if index + 1 < len(pages) else {}),
            }
            update = WatchUpdate(session=number, controller=LEADER, **fields)  # type: ignore[arg-type]
            self._send(session.way, Op.WATCH_UPDATE, update, 0)

    def _send(
        self, way: bytes, opcode: int, message: messages.Message, topic: int, generation: int = 0
    ) -> None:
        if not self.pushes:
            return
        body, out = messages.encode(message), bytearray(wire.HEADER_BYTES)
        fields = {
            "topic": topic,
            "generation": generation or self.generation,
            "flags": wire.AnswerFlags.CONTROL,
            "body_bytes": len(body),
            "body_crc": crc32c(body),
        }
        pack_answer(out, 0, opcode, Status.PUSH, 0, **fields)
        self._unasked.append([way, bytes(out), body])

    def _send_unasked(self) -> None:
        while self._unasked:
            self._socket.send_multipart(self._unasked.popleft())

    def _serve(self, header: wire.RequestHeader, body: bytes) -> list[bytes] | None:
        with self._changes:
            way = self.ways[-1]
            match header.opcode:
                case Op.TABLE_ACK:
                    self.acknowledged.append(Acknowledged(way, header.topic, header.sequence))
                    return None
                case Op.TABLE:
                    return self._table(header, body, way)
                case Op.WATCH_OPEN if self.serves_watches:
                    return self._open_watch(header, messages.decode(WatchOpen, body), way)
                case Op.WATCH_CLOSE if self.serves_watches:
                    self.sessions.pop(messages.decode(WatchClose, body).session, None)
                    return self._answer(header, Status.OK)
                case Op.WATCH_OPEN | Op.WATCH_CLOSE:
                    return self._refuse(header, Code.UNKNOWN_OPCODE)
            return super()._serve(header, body)

    def _table(self, header: wire.RequestHeader, body: bytes, way: bytes) -> list[bytes] | None:
        changed = self.changed_at.setdefault(header.topic, self.generation)
        self._followers.add((way, header.topic))
        known = any(one.topic == header.topic for one in self.topics.values())
        if known and header.sequence >= changed and not self.loads:
            self.needed.append(header.layout_version)
            self.unchanged += 1
            return self._answer(header, Status.OK)
        return super()._serve(header, body)

    def _open_watch(self, header: wire.RequestHeader, opened: WatchOpen, way: bytes) -> list[bytes]:
        self.opened.append(opened)
        if opened.session in self.sessions:
            return self._refuse(header, Code.ALREADY_EXISTS)
        session = Session(way)
        if isinstance(opened.prefix, str):
            session.prefix = opened.prefix
            self.sessions[opened.session] = session
            self._list(opened.session, session, whole=True)
            return self._answer(header, Status.OK)
        try:
            topic = self.topic_of(str(opened.topic))
        except KeyError:
            return self._refuse(header, Code.UNKNOWN_TOPIC)
        session.topic = topic.topic
        self.sessions[opened.session] = session
        is_newer = self.changed_at.setdefault(topic.topic, self.generation) > opened.held
        fields: dict[str, Any] = {"table": self.table(topic)} if is_newer else {}
        update = WatchUpdate(session=opened.session, controller=LEADER, **fields)
        self._send(way, Op.WATCH_UPDATE, update, topic.topic)
        return self._answer(header, Status.OK, topic=topic.topic)
