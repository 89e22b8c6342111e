"""The description of a topic: `Client.topic`, `topics` and `create_topic` return it."""

from __future__ import annotations

import html

import pyarrow as pa

from ringfence.native import messages

COLUMNS = ("partition", "state", "owner", "epoch", "start_offset", "end_offset", "bytes")


class TopicInfo(messages.TopicInfo):
    """A topic with its partitions. `schema_messages`: the schemas as Arrow IPC messages, by schema id."""

    @property
    def schemas(self) -> list[pa.Schema]:
        """The schemas by id; the last one is the newest."""
        return [pa.ipc.read_schema(pa.py_buffer(message)) for message in self.schema_messages]

    @property
    def rows(self) -> int:
        """Rows that can be read, without partitions whose owner does not respond (`unknown`)."""
        return sum(part.end_offset - part.start_offset for part in self.partitions)

    def __repr__(self) -> str:
        key = f"key {', '.join(self.key)}" if self.key else "no key"
        return (
            f"<TopicInfo {self.name}: {len(self.partitions)} partitions, {self.rows} rows, {key}, "
            f"replication {self.replication}>"
        )

    def _repr_html_(self) -> str:
        """A table of the partitions, for notebooks."""
        head = "".join(f"<th>{name}</th>" for name in COLUMNS)
        rows = [
            "".join(f"<td>{html.escape(str(getattr(part, name)))}</td>" for name in COLUMNS)
            for part in self.partitions
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p>{html.escape(repr(self)[1:-1])}</p><table><tr>{head}</tr>{body}</table>"


class Topics(messages.Message):
    """One page of TOPIC_LIST."""

    topics: list[TopicInfo]
    more: bool = False
