"""The last step of all writers, on the driver: commit the rows that tasks staged, or remove them.

The commit names the tokens of the attempts that Spark kept, so rows of other attempts are never committed.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from ringfence.client import connect
from ringfence.native.errors import InvalidArgumentError, RingfenceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.common.scope_values import Begun, StagedRows
    from ringfence.spark.staging import Target

_LOG = logging.getLogger("ringfence.spark")
if "PYSPARK_SPARK_SESSION_UUID" in os.environ:
    # A worker whose log Spark stores (spark.sql.pyspark.worker.logging.enabled); users cannot set its level.
    _LOG.setLevel(logging.INFO)


def commit(
    target: Target, begun: Begun, epoch: int, staged: Iterable[StagedRows], *, is_alone: bool = False
) -> bool:
    """Commit the rows of these attempts.

    Args:
        target: the topic of the write.
        begun: the driver of the scope.
        epoch: number of the epoch within the scope.
        staged: the attempts that Spark kept.
        is_alone: no other process has the scope, so only this call can have committed the epoch.

    Returns:
        False if the epoch was committed before, with rows of other attempts. If the node cannot tell
        whose commit it was, the result is `is_alone`: the log has the rows of the epoch in either case.
    """
    staged = list(staged)
    with connect(target.address, token_file=target.token_file, timeout_s=target.timeout_s) as client:
        is_own = client.scopes.commit_told(begun, epoch, staged)
    is_new = is_alone if is_own is None else is_own
    rows = sum(attempt.rows for attempt in staged)
    outcome = "committed" if is_new else "was committed before, dropped"
    _LOG.info(
        "%s: scope %d, driver %d, epoch %d %s: %d rows by %d tasks",
        target.topic,
        begun.scope,
        begun.driver,
        epoch,
        outcome,
        rows,
        len(staged),
    )
    return is_new


def expire(target: Target, begun: Begun, epoch: int) -> None:
    """Remove the staged rows of a failed job.

    Errors are only logged: the caller must see the job's own error.
    """
    try:
        with connect(target.address, token_file=target.token_file) as client:
            client.scopes.expire(begun, epoch)
    except RingfenceError as error:
        _LOG.warning(
            "%s: scope %d, epoch %d: staged rows of a failed job could not be removed: %s",
            target.topic,
            begun.scope,
            epoch,
            error,
        )


def check_newest(topic: str, scope: str | None, epoch: int, begun: Begun) -> None:
    """Raises InvalidArgumentError if a streaming query has committed later epochs than this one."""
    if epoch < begun.committed:
        raise InvalidArgumentError(
            "the query has committed later epochs of this scope: its checkpoint is older than the topic "
            "(restored, edited, or of a copy of the query), and its rows would be left out; give the query a "
            "new checkpointLocation, and a start after the rows that the topic has",
            topic=topic,
            scope=scope,
            epoch=epoch,
            committed=begun.committed,
        )


def log_left_out(topic: str, scope: str | None, epoch: int, begun: Begun) -> None:
    """Log that a run writes nothing, because its epoch was committed before."""
    _LOG.warning(
        "%s: scope %s: epoch %d was committed by an earlier run (the last one is %d): the rows of "
        "this run are left out",
        topic,
        scope,
        epoch,
        begun.committed,
    )
