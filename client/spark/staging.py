"""What every writer of Spark does: the driver prepares topic and scope, each task stages, the driver commits.

A task that Spark runs again, or twice at once, stages under another token; the commit names the tokens of the
attempts that Spark kept, so rows of all others never come.
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from ringfence.arrow.encode import TopicEncoder
from ringfence.client import connect
from ringfence.common.scope_values import StagedRows
from ringfence.native.errors import InvalidArgumentError, NotFoundError, RingfenceError
from ringfence.scopes import SCOPE_BYTES_MAX
from ringfence.spark.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ringfence.common.scope_values import Begun

QUERY_IDLE_S: Final = 30 * 86_400
"""A query that was not run for a month may lose its scopes where the cluster needs room: no node is told that
a checkpoint was thrown away, and each new one has new scopes."""
QUERY = "sql.streaming.queryId"
"""Spark's local property with the id of the streaming query that a job is part of."""
_LOG = logging.getLogger("ringfence.spark")
if "PYSPARK_SPARK_SESSION_UUID" in os.environ:
    # A worker whose lines Spark keeps (spark.sql.pyspark.worker.logging.enabled): nobody sets levels there.
    _LOG.setLevel(logging.INFO)


class Target(NamedTuple):
    """Where tasks write to: values only, for they travel to the workers."""

    address: str
    token_file: str | None
    topic: str
    timeout_s: float

    def stage(self, begun: Begun, epoch: int, writer: int, batches: Iterable[pa.RecordBatch]) -> StagedRows:
        """Runs in Spark's Python worker: every row is on disk when it returns, and none can be read."""
        with connect(self.address, token_file=self.token_file) as client:
            attempt = client.scopes.attempt(begun, epoch, writer=writer, timeout_s=self.timeout_s)
            for batch in batches:
                attempt.send(self.topic, batch)
            return attempt.finish()

    def commit(
        self, begun: Begun, epoch: int, staged: Iterable[StagedRows], *, is_alone: bool = False
    ) -> bool:
        """On the driver: False if the epoch was committed before; `is_alone`: nobody else knows the scope.

        Where the node does not tell whose commit it was, a job that counts its epochs has the rows of this
        one in the log either way.
        """
        staged = list(staged)
        with connect(self.address, token_file=self.token_file, timeout_s=self.timeout_s) as client:
            told = client.scopes.commit_told(begun, epoch, staged)
        fresh = is_alone if told is None else told
        rows = sum(attempt.rows for attempt in staged)
        done = "committed" if fresh else "was committed before, dropped"
        _LOG.info(
            "%s: scope %d, driver %d, epoch %d %s: %d rows by %d tasks",
            self.topic,
            begun.scope,
            begun.driver,
            epoch,
            done,
            rows,
            len(staged),
        )
        return fresh

    def give_up(self, begun: Begun, epoch: int) -> None:
        """What is staged goes, if a node can be told: why the job failed is what its caller must see."""
        try:
            with connect(self.address, token_file=self.token_file) as client:
                client.scopes.expire(begun, epoch)
        except RingfenceError as error:
            _LOG.warning(
                "%s: scope %d, epoch %d: staged rows of a failed job could not be given up: %s",
                self.topic,
                begun.scope,
                epoch,
                error,
            )

    def begin(
        self, scope: str | None, kind: str, *, instance: bytes = b"", query: str | None = None
    ) -> Begun:
        """A job's scope: one of its topic, and of the streaming query that it is part of.

        Args:
            scope: None: one that no other run ever asks for.
            kind: of such a scope.
            instance: the same for all processes of one run.
            query: id of the query, which its checkpoint keeps: a new checkpoint has new scopes.
        """
        name = f"{kind}-{uuid.uuid4()}" if scope is None else of_query(scope, query)
        with connect(self.address, token_file=self.token_file) as client:
            idle_s = None if query is None else QUERY_IDLE_S
            return client.scopes.begin(name, instance, topic=self.topic, one_off=scope is None, idle_s=idle_s)

    def begin_query(self, query: str, instance: bytes) -> Begun:
        """A stream's scope goes by its query, which has one checkpoint wherever it writes to."""
        with connect(self.address, token_file=self.token_file) as client:
            return client.scopes.begin(query, instance, idle_s=QUERY_IDLE_S)


def check_newest(topic: str, scope: str | None, epoch: int, begun: Begun) -> None:
    """Raises InvalidArgumentError where a streaming query has committed later epochs than this one."""
    if epoch < begun.committed:
        raise InvalidArgumentError(
            "the query has committed later epochs of this scope than this one: its checkpoint is older than "
            "the topic (restored, edited, or of a copy of the query), and its rows would be left out; give "
            "the query a new checkpointLocation, and a start behind what the topic has",
            topic=topic,
            scope=scope,
            epoch=epoch,
            committed=begun.committed,
        )


def tell_left_out(topic: str, scope: str | None, epoch: int, begun: Begun) -> None:
    """Log that a run writes nothing."""
    _LOG.warning(
        "%s: scope %s: epoch %d was committed by an earlier run (the last one is %d): the rows of "
        "this run are left out",
        topic,
        scope,
        epoch,
        begun.committed,
    )


def of_query(scope: str, query: str | None) -> str:
    """The name of a query's scope; a hash where the name would be too long."""
    if query is None:
        return scope
    name = f"{scope}-{query}"
    if len(name.encode()) <= SCOPE_BYTES_MAX:
        return name
    return f"spark-{hashlib.sha256(name.encode()).hexdigest()}"


def target(
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
    """The topic, made if it is missing and `create` says so; its columns fit those of the rows.

    Raises:
        NotFoundError: no such topic, and `create` is False. SchemaError: a column does not fit.
        InvalidArgumentError: the topic exists with another key than a `key` that is given.
        AlreadyExistsError: it was made with another schema meanwhile, and `create` is True.
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
            hint = "or let the write make it: createTopic=true (of the function: create=True)"
            raise NotFoundError(f"{error.message}; {hint}", topic=topic) from error
        if key and list(layout.key) != list(key):
            raise InvalidArgumentError(
                "the topic exists with another key", topic=layout.name, key=list(layout.key), wanted=list(key)
            )
        TopicEncoder(layout, split=True).check(rows)
        return Target(",".join(client.addresses), token_file, layout.name, timeout_s)
