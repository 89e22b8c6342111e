"""Scopes: begin, stage attempts, commit, expire. Transactions and distributed writers are built on them.

    begun = client.scopes.begin("job-7", topic="topic")         once, by the driver
    attempt = client.scopes.attempt(begun, epoch)               by each task, for each try
    attempt.send("topic", batch); staged = attempt.finish()
    client.scopes.commit(begun, epoch, [staged, ...])           by the driver: all rows or none

A *stage* is the rows of one attempt at their partitions, invisible to readers. A *scope* names the writer and
orders its epochs; a new driver of the scope fences the previous one. A *transaction* is one epoch of a scope:
begin, one attempt, commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.common.arguments import scope_name, seconds, whole
from ringfence.common.options import BYTES_IN_FLIGHT_MAX, TIMEOUT_S
from ringfence.common.process_local import ProcessLocal
from ringfence.common.scope_values import Begun
from ringfence.native import cluster_messages as messages
from ringfence.native import wire
from ringfence.native.errors import (
    FencedError,
    InvalidArgumentError,
    NotFoundError,
    RingfenceError,
    UnknownOutcomeError,
)
from ringfence.send.restage import Restager
from ringfence.send.stager import Stager

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringfence.admin import Admin
    from ringfence.cluster.table_cache import TableCache
    from ringfence.common.codec import Answer
    from ringfence.common.scope_values import Parts, StagedRows
    from ringfence.network.io_thread import IoThread


WRITER_MAX: Final = 2**32 - 1  # limit of the identity of a stage
IDLE_S_MAX: Final = 3_650 * 86_400
# Commits that layout changes have altered, and whose outcome is unknown; the oldest is dropped. Nodes record
# as many of one scope.
MOVED_MAX: Final = 64
MovedCommits = dict[tuple[int, int, int, frozenset[bytes]], messages.ScopeCommit]
"""By scope, driver, epoch and tokens of a caller's commit: what layout changes have made of it."""
CLUSTER_SCOPE_BYTES_MAX: Final = 255
SCOPE_BYTES_MAX: Final = 234
"""For the scope of a topic: a full name has up to 255 bytes, and `@` with the topic's id up to 21 of them."""


class Scopes(ProcessLocal):
    """Begins scopes, stages rows and commits epochs; created by `Client.scopes`."""

    def __init__(
        self,
        io_thread: IoThread,
        tables: TableCache,
        admin: Admin,
        moved: MovedCommits,
        client: object = None,
    ) -> None:
        """`client`: the owner of the connections; kept alive by this reference. `moved`: of the client."""
        self._client = client
        self._io_thread, self._tables, self._admin, self._moved = io_thread, tables, admin, moved

    def begin(
        self,
        scope: str,
        instance: bytes = b"",
        *,
        topic: str | None = None,
        one_off: bool = False,
        idle_s: int | None = None,
    ) -> Begun:
        """Begin a scope; this fences its older drivers.

        Args:
            scope: its name, 1 to 255 bytes; for the scope of a topic 1 to 234.
            instance: up to 64 bytes. Calls with the same instance are the same driver, so that many processes
                of one job may begin; empty: a new driver.
            topic: the topic that the scope belongs to. The same name at another topic, or at a topic that is
                deleted and created again, is another scope. None: a scope of the cluster, whose name must
                not end with `@` and a number.
            one_off: this name will not be begun again. Above `scopes_max` only such scopes are removed; if
                there are none, new names are refused (`overloaded`).
            idle_s: the scope may also be removed after so many seconds without use (up to ten years). If it
                is begun again then, it does not know its committed epochs. The newest call decides. None: it
                stays until `ringfence scope forget`.

        Raises:
            FencedError: a later instance fenced this one. NotFoundError: no such topic.
            InvalidArgumentError: the name is invalid. DeadlineError: other drivers began it before every try.
        """
        deadline = self._admin.deadline()
        name = _of_cluster(scope) if topic is None else self._of_topic(scope, topic, deadline)
        message = messages.ScopeBegin(scope=name, instance=instance, one_off=one_off)
        if idle_s is not None:
            message = replace(message, idle_s=whole("idle_s", idle_s, 1, IDLE_S_MAX))
        begun = self._admin.begin(message, deadline)
        return Begun(begun.scope_id, begun.driver, begun.committed, begun.decided)

    def _of_topic(self, scope: str, topic: str, deadline: float) -> str:
        scope = scope_name(scope, SCOPE_BYTES_MAX, topic=topic)
        return f"{scope}@{self._tables.get(topic, deadline).topic}"

    def attempt(
        self,
        begun: Begun,
        epoch: int,
        *,
        writer: int = 0,
        timeout_s: float = TIMEOUT_S,
        bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX,
    ) -> Stager:
        """Stage rows under a new token.

        Args:
            begun: of the scope.
            epoch: from 1, above the scope's decided epoch.
            writer: the task's number, for operators.
            timeout_s: seconds until each batch must be on disk, retries included.
            bytes_in_flight_max: limit for encoded rows that are not on disk yet, in bytes.
        """
        return Stager(
            self._io_thread,
            self._tables,
            begun,
            whole("epoch", epoch, 1),
            writer=whole("writer", writer, 0, WRITER_MAX),
            timeout_s=seconds("timeout_s", timeout_s),
            bytes_in_flight_max=whole("bytes_in_flight_max", bytes_in_flight_max, 1),
            client=self._client,
        )

    def commit(
        self,
        begun: Begun,
        epoch: int,
        staged: Iterable[StagedRows],
        *,
        consumed: messages.ScopeConsumed | None = None,
    ) -> bool:
        """Commit an epoch; all of its rows can be read when this returns.

        Args:
            begun: of the scope.
            epoch: that of the attempts.
            staged: what the attempts staged.
            consumed: positions of a consumer that take effect together with the rows. Its token is that of
                the first attempt.

        Returns:
            False if the epoch was committed with other attempts, or skipped by the commit of a later epoch:
            the rows of these attempts are never visible. True also if an earlier call committed these.

        Raises:
            FencedError: a later driver began the scope. InvalidArgumentError: the epoch expired, or an
                attempt is not of this scope, epoch and driver, or is listed twice, or its rows differ from
                those staged in a partition; or the scope was removed. This call commits nothing then. An
                earlier call without an answer may have committed.
            DeadlineError: it was not confirmed in time that all rows are staged, or the commit of an earlier
                epoch failed; nothing is committed. Repeat the call before a later epoch is committed.
            UnknownOutcomeError: no answer came: all of it is in the log, or nothing. Repeat the call with the
                same attempts to find out, unless 64 later epochs were committed since; with the same client
                if partitions were split or merged meanwhile.
        """
        is_own = self._commit(begun, epoch, staged, consumed).own
        if is_own is None:
            raise UnknownOutcomeError(
                "the epoch is committed, either by a lost try of this commit or by another one: the node "
                "does not tell which (it runs an older version, or 64 later epochs were committed since, or "
                "partitions were split or merged and another process staged the rows again)",
                scope=begun.scope,
                epoch=epoch,
            )
        return is_own

    def commit_told(self, begun: Begun, epoch: int, staged: Iterable[StagedRows]) -> bool | None:
        """Like `commit`; None: the epoch is committed, but it is unknown whether with these attempts.

        For callers that number their epochs and commit each set of rows under one number: for them both cases
        are equal.

        Raises:
            FencedError: also if a later epoch was committed first, so that no rows of this one are or will be
                in the log.
        """
        answer = self._commit(begun, epoch, staged)
        if answer.given_up:
            raise FencedError(
                f"a later epoch of the scope was committed before epoch {epoch}, which is skipped: nothing "
                "of it is stored; use a greater number",
                scope=begun.scope,
                epoch=epoch,
            )
        return answer.own

    def _commit(
        self,
        begun: Begun,
        epoch: int,
        staged: Iterable[StagedRows],
        consumed: messages.ScopeConsumed | None = None,
    ) -> messages.AlreadyCommitted:
        """Send the commit. `own` is also true for an epoch that this call has committed."""
        staged = list(staged)
        _check_staged(begun, epoch, staged)
        tokens: list[bytes] = []
        parts: Parts = {}
        for attempt in staged:
            if attempt.parts or (consumed is not None and attempt.token == consumed.token):
                tokens.append(attempt.token)
            for place, rows in attempt.parts.items():
                parts[place] = parts.get(place, 0) + rows
        message = messages.ScopeCommit(
            scope_id=begun.scope,
            driver=begun.driver,
            epoch=epoch,
            tokens=tokens,
            parts=[(topic, partition, rows) for (topic, partition), rows in sorted(parts.items())],
            consumed=UNSET if consumed is None else consumed,
        )
        answer = self._put(begun, message)
        if answer.header.status != wire.Status.ALREADY_COMMITTED:
            return messages.AlreadyCommitted(own=True)
        # An empty body does not tell which call committed; it may be one of another process.
        told = answer.control(messages.AlreadyCommitted) if len(answer.body) else messages.AlreadyCommitted()
        if told.own is False and not told.given_up and self._may_be_moved(message):
            return replace(told, own=None)
        return told

    def _put(self, begun: Begun, message: messages.ScopeCommit) -> Answer:
        """Commit. Rows that are staged again have one more token, and a repeat must name it, too.

        A commit that was refused as `moved` is never decided: sealed logs end. So only the last one counts.
        """
        moves = self._moved
        key = message.scope_id, message.driver, message.epoch, frozenset(message.tokens)

        def keep(moved: messages.ScopeCommit) -> None:
            moves[key] = moved
            for oldest in list(moves)[:-MOVED_MAX]:
                moves.pop(oldest, None)

        restager = Restager(
            self._io_thread,
            self._tables,
            lambda: self.attempt(begun, message.epoch),
            timeout_s=TIMEOUT_S,
            on_moved=keep,
        )
        answer = restager.commit(self._admin.commit, moves.get(key, message))
        moves.pop(key, None)
        return answer

    def _may_be_moved(self, message: messages.ScopeCommit) -> bool:
        """Whether another process may have staged the rows again, and committed them with one more token."""
        deadline = self._admin.deadline()
        for topic in {topic for topic, _, _ in message.parts}:
            named = {partition for one, partition, _ in message.parts if one == topic}
            try:
                layout = self._tables.get_by_id(topic, deadline)
            except NotFoundError:
                continue
            except RingfenceError:
                return True
            if not named <= {entry.partition for entry in layout.active}:
                return True
        return False

    def gone(self, topics: Mapping[int, str]) -> list[str]:
        """Names of the given topics that do not exist any more; empty if no node answers."""
        names, deadline = [], self._admin.deadline()
        for topic, name in topics.items():
            try:
                self._tables.get_by_id(topic, deadline)
            except NotFoundError:
                names.append(name)
            except RingfenceError:
                return []
        return names

    def expire(self, begun: Begun, epoch: int) -> None:
        """Discard the rows that are staged in this and earlier epochs. Committed epochs stay.

        Raises:
            FencedError: a later driver began the scope and owns the epoch.
        """
        message = messages.ScopeExpire(scope_id=begun.scope, epoch=epoch, driver=begun.driver)
        self._admin.request(wire.Opcode.EXPIRE, message)


def _of_cluster(scope: str) -> str:
    """Check that the name cannot be the name of a topic's scope."""
    name, at, number = scope_name(scope, CLUSTER_SCOPE_BYTES_MAX).rpartition("@")
    if at and number.isascii() and number.isdigit():
        raise InvalidArgumentError(
            f"this name is reserved for scope {name!r} of the topic with id {number}; pass the topic "
            "(topic=...), or use a name with another ending",
            scope=scope,
        )
    return scope


def _check_staged(begun: Begun, epoch: int, staged: list[StagedRows]) -> None:
    """Refuse attempts of another epoch or driver, and duplicates: such a commit could never be published."""
    tokens: set[bytes] = set()
    for attempt in staged:
        if attempt.token in tokens:
            raise InvalidArgumentError(
                "an attempt is listed twice; list each attempt once",
                scope=begun.scope,
                token=attempt.token.hex(),
            )
        tokens.add(attempt.token)
        if attempt.scope and (attempt.scope, attempt.epoch) != (begun.scope, epoch):
            raise InvalidArgumentError(
                f"an attempt is staged in scope {attempt.scope}, epoch {attempt.epoch}, not in this epoch; "
                "commit only attempts of this epoch",
                scope=begun.scope,
                epoch=epoch,
            )
        if attempt.driver not in {0, begun.driver}:
            raise InvalidArgumentError(
                f"an attempt was staged by driver {attempt.driver} of the scope, which was begun again "
                "since; stage its rows again",
                scope=begun.scope,
                driver=begun.driver,
            )
