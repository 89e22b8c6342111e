"""The calls of a client about topics and the cluster: create, list, describe, truncate, delete, watch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ringfence.common.arguments import seconds, whole
from ringfence.native.errors import InvalidArgumentError
from ringfence.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringfence.admin import Admin
    from ringfence.cluster.table_cache import TableCache
    from ringfence.cluster.watches import Watches
    from ringfence.common.cluster_info import ClusterInfo
    from ringfence.common.routing import Layout
    from ringfence.native.messages import Status
    from ringfence.network.io_thread import IoThread
    from ringfence.topic_info import TopicInfo


class TopicCalls(ABC):
    """A part of `Client`."""

    _tables: TableCache
    _watches: Watches

    @property
    @abstractmethod
    def _io_thread(self) -> IoThread: ...

    @property
    @abstractmethod
    def _admin(self) -> Admin: ...

    @property
    @abstractmethod
    def _deadline(self) -> float: ...

    def create_topic(
        self,
        name: str,
        *,
        schema: Any,
        key: str | Sequence[str] = (),
        partitions: int = 1,
        replication: int = 1,
        retention_bytes: int | None = None,
        retention_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> TopicInfo:
        """Create a topic.

        Args:
            name: `tenant/namespace/name`; a plain name means `public/default/name`.
            schema: a pyarrow Schema, or anything with `__arrow_c_schema__`.
            key: columns whose values determine the partition of a row; a str is one column. Without a key
                whole batches go to any partition.
            partitions: 1 .. 4096.
            replication: number of copies, on different nodes: 1, 3 or 5.
            retention_bytes: of each partition; None keeps all.
            retention_ms: age of the oldest rows; None keeps all.
            properties: of the application. With `{"ringfence.retention": "compacted"}` only
                `ringfence.compact` removes rows, after they are in a file.
            exist_ok: return an existing topic if it is equal (`created` is False); refuse it if it differs.

        Raises:
            AlreadyExistsError: the name is taken. InvalidArgumentError, SchemaError: the message names the
                cause.
        """
        return self._admin.create_topic(
            name,
            schema=schema,
            key=key,
            partitions=partitions,
            replication=replication,
            retention_bytes=retention_bytes,
            retention_ms=retention_ms,
            properties=properties,
            exist_ok=exist_ok,
        )

    def topics(self, prefix: str = "") -> list[TopicInfo]:
        """All topics whose full name begins with `prefix`, sorted by name; statistics as in `topic`."""
        return self._admin.topics(prefix)

    def cluster(self) -> ClusterInfo:
        """The nodes with their addresses, and all topics that the client may read. Any node answers.

        One request for some ten thousand topics. `topics` and `topic` have partitions and sizes.
        """
        return self._admin.cluster()

    def topic(self, name: str) -> TopicInfo:
        """One topic with its partitions. Raises NotFoundError.

        A partition whose owner does not respond has no statistics: `unknown` is the reason, and its offsets
        and bytes are 0. `count` raises for such a partition.
        """
        return self._admin.topic(name)

    def truncate(self, name: str, *, partition: int | None = None, before_offset: int | None = None) -> None:
        """Delete rows permanently.

        Args:
            name: of the topic.
            partition: only this one; None: each.
            before_offset: delete rows below it; None: all rows that can be read now.

        Raises:
            UnknownOutcomeError: it is committed, but an owner has not executed it yet (and will), or no
            answer came. With `before_offset` the call can be repeated; without it a repeat would also delete
            newer rows.
        """
        self._admin.truncate(
            name,
            None if partition is None else whole("partition", partition, 0),
            None if before_offset is None else whole("before_offset", before_offset, 0),
        )

    def delete_topic(self, name: str, *, missing_ok: bool = False, force: bool = False) -> None:
        """Delete a topic and its rows. Raises NotFoundError unless `missing_ok`.

        `force`: also if members of cohorts read it. Raises AlreadyExistsError without.
        """
        self._admin.delete(name, missing_ok=missing_ok, force=force)

    def layout(self, topic: str) -> Layout:
        """Partitions, owners and schemas of a topic, as in the routing table. Raises NotFoundError."""
        return self._tables.get(topic, self._deadline)

    def add_schema(self, name: str, schema: Any) -> int:
        """Add a schema with additional nullable columns at its end; returns its id.

        Older rows have nulls in these columns.
        """
        return self._admin.add_schema(name, schema)

    def status(self) -> Status:
        """Identity and state of the node."""
        return self._admin.status()

    def watch(
        self, topic: str | None = None, *, prefix: str | None = None, timeout_s: float | None = None
    ) -> Watch:
        """Events of a topic's layout, or of the topics whose full names begin with a prefix.

        Args:
            topic: its name. Its layout comes first, then each newer one; the last event is its deletion.
            prefix: of full names; "" is all. First come the topics that exist, then those that are made and
                deleted. The cluster needs level 2.
            timeout_s: seconds without an event after which the iteration ends; None: it never does.

        Raises:
            NotFoundError: no such topic. InvalidArgumentError: neither a topic nor a prefix, or both.
        """
        if (topic is None) == (prefix is None):
            raise InvalidArgumentError("watch one topic, or the topics with a prefix: pass one of the two")
        if prefix is not None and not isinstance(prefix, str):
            raise InvalidArgumentError("prefix must be a text", prefix=repr(prefix))
        timeout_s = None if timeout_s is None else seconds("timeout_s", timeout_s)
        layout = None if topic is None else self._tables.get(topic, self._deadline)
        return Watch(self._io_thread, self._watches, layout, prefix or "", timeout_s, client=self)
