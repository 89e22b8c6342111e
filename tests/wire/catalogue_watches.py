"""Worked messages of tables that a client holds already, and of watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringfence.native import cluster_messages as cluster
from ringfence.native import wire
from tests.wire.codec import TOPIC, VERSION, answer, control, reply, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.native import messages

Op, St = wire.Opcode, wire.Status


def tables() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "table_held", request(Op.TABLE, request_id=26, topic=TOPIC, sequence=14, layout_version=VERSION)
    unchanged: dict[str, Any] = {
        "request_id": 26,
        "topic": TOPIC,
        "layout_version": VERSION,
        "generation": 18,
    }
    yield "table_unchanged", answer(Op.TABLE, St.OK, **unchanged)


def watches(table: messages.Table) -> Iterator[tuple[str, dict[str, Any]]]:
    session = bytes(range(0x40, 0x50))
    leader = cluster.Controller(node=1, addresses=["tcp://127.0.0.1:7411"], http="127.0.0.1:7412")
    place: dict[str, Any] = {"topic": TOPIC, "layout_version": VERSION, "generation": 15}
    opened = cluster.WatchOpen(session=session, topic=table.name, held=9)
    yield "watch_open", control(Op.WATCH_OPEN, opened, request_id=20)
    yield "watch_open_ok", answer(Op.WATCH_OPEN, St.OK, request_id=20, **place)
    update = cluster.WatchUpdate(session=session, controller=leader, table=table)
    yield "watch_update", reply(Op.WATCH_UPDATE, update, St.PUSH, **place)
    gone = cluster.WatchUpdate(session=session, controller=leader, deleted=True)
    yield "watch_update_deleted", reply(Op.WATCH_UPDATE, gone, St.PUSH, **place)
    yield "watch_close", control(Op.WATCH_CLOSE, cluster.WatchClose(session=session), request_id=21)
    by_prefix = cluster.WatchOpen(session=session, prefix="public/")
    yield "watch_open_prefix", control(Op.WATCH_OPEN, by_prefix, request_id=25)
    topics = cluster.WatchUpdate(
        session=session, controller=leader, topics=[(TOPIC, table.name)], gone=[7], whole=True
    )
    yield "watch_update_topics", reply(Op.WATCH_UPDATE, topics, St.PUSH, generation=15)
