"""The first steps of all writers: the driver prepares topic and scope, each task stages rows.

A task that Spark runs again, or twice in parallel, stages under another token. `sink_commit` has the last
step, on the driver: commit the rows that tasks staged, or remove them.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from ringfence.arrow.encode import TopicEncoder
from ringfence.client import connect
from ringfence.common.scope_values import StagedRows
from ringfence.native.errors import InvalidArgumentError, NotFoundError
from ringfence.scopes import SCOPE_BYTES_MAX
from ringfence.spark.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ringfence.common.scope_values import Begun

# Seconds after which a query that committed nothing may lose its scopes when the cluster needs room. Each new
# checkpoint has new scopes, and no node learns that a checkpoint was deleted.
QUERY_IDLE_S: Final = 30 * 86_400
# Spark's local property with the id of the streaming query that a job is part of.
QUERY = "sql.streaming.queryId"


class Target(NamedTuple):
    """The topic of a write, and how to reach it. Values only: Spark pickles it for its tasks."""

    address: str
    token_file: str | None
    topic: str
    timeout_s: float

    def stage(self, begun: Begun, epoch: int, writer: int, batches: Iterable[pa.RecordBatch]) -> StagedRows:
        """In Spark's Python worker: stage the rows. All are on disk when this returns; none can be read."""
        with connect(self.address, token_file=self.token_file) as client:
            attempt = client.scopes.attempt(begun, epoch, writer=writer, timeout_s=self.timeout_s)
            for batch in batches:
                attempt.send(self.topic, batch)
            return attempt.finish()

    def begin(
        self, scope: str | None, kind: str, *, instance: bytes = b"", query: str | None = None
    ) -> Begun:
        """Begin a job's scope. It belongs to the topic, and to the streaming query that the job is part of.

        Args:
            scope: name; None: a new scope that no other run uses.
            kind: first part of the name of a new scope.
            instance: the same for all processes of one run.
            query: id of the query, from its checkpoint: a new checkpoint has new scopes.
        """
        name = f"{kind}-{uuid.uuid4()}" if scope is None else scope_of_query(scope, query)
        with connect(self.address, token_file=self.token_file) as client:
            idle_s = None if query is None else QUERY_IDLE_S
            return client.scopes.begin(name, instance, topic=self.topic, one_off=scope is None, idle_s=idle_s)

    def begin_query(self, query: str, instance: bytes) -> Begun:
        """Begin a stream's scope. It belongs to the query and to no topic: the query has one checkpoint."""
        with connect(self.address, token_file=self.token_file) as client:
            return client.scopes.begin(query, instance, idle_s=QUERY_IDLE_S)


def scope_of_query(scope: str, query: str | None) -> str:
    """The name of a query's scope; a hash if the name is too long."""
    if query is None:
        return scope
    name = f"{scope}-{query}"
    if len(name.encode()) <= SCOPE_BYTES_MAX:
        return name
    return f"spark-{hashlib.sha256(name.encode()).hexdigest()}"


def prepare_target(
    schema: StructType,
    *,
    address: str | None,
    token_file: str | None,
    topic: str,
    timeout_s: float,
    create: bool,
    key: Sequence[str],
    partitions: int,
) -> Target:
    """Find the topic, or create it if it is missing and `create` is True; check that the rows fit.

    Raises:
        NotFoundError: no such topic, and `create` is False.
        SchemaError: a column of the rows does not fit the topic.
        InvalidArgumentError: the topic exists with a key other than `key`.
        AlreadyExistsError: another client created it with another schema meanwhile, and `create` is True.
    """
    rows = arrow_schema(schema)
    with connect(address, token_file=token_file) as client:
        if create:
            missing = [name for name in key if name not in rows.names]
            if missing:
                raise InvalidArgumentError(
                    "the rows have no such key column", topic=topic, columns=missing, known=rows.names
                )
            try:
                client.topic(topic)
            except NotFoundError:
                client.create_topic(topic, schema=rows, key=key, partitions=partitions, exist_ok=True)
        try:
            layout = client.layout(topic)
        except NotFoundError as error:
            hint = "or let the write create it: option createTopic=true (argument create=True)"
            raise NotFoundError(f"{error.message}; {hint}", topic=topic) from error
        if key and list(layout.key) != list(key):
            raise InvalidArgumentError(
                "the topic exists with another key; leave `key` out, or write to another topic",
                topic=layout.name,
                key=list(layout.key),
                wanted=list(key),
            )
        TopicEncoder(layout, split=True).check(rows)
        return Target(",".join(client.addresses), token_file, layout.name, timeout_s)
