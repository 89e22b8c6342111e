"""Scopes: begin, stage attempts, commit, expire. What transactions and distributed writers are made of.

begun = client.scopes.begin("job-7", topic="topic")           once, by the driver
attempt = client.scopes.attempt(begun, epoch)                 by each task, as often as it is run
attempt.send("topic", batch); staged = attempt.finish()
client.scopes.commit(begun, epoch, [staged, ...])             by the driver: all of it, or nothing
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ringfence.common.arguments import scope_name, seconds, whole
from ringfence.common.options import BYTES_IN_FLIGHT_MAX, TIMEOUT_S
from ringfence.common.process_local import Local
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
from ringfence.send.stager import Stager

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ringfence.admin import Admin
    from ringfence.cluster.table_cache import Tables
    from ringfence.common.scope_values import Parts, StagedRows
    from ringfence.network.io_thread import Link


WRITER_MAX: Final = 2**32 - 1  # what the identity of a stage holds
IDLE_S_MAX: Final = 3_650 * 86_400
CLUSTER_SCOPE_BYTES_MAX: Final = 255
SCOPE_BYTES_MAX: Final = 234
"""Of a topic's scope: a scope's name has up to 255 bytes, and `@` with a topic's id up to 21 of them."""


class Scopes(Local):
    """Made by `Client.scopes`."""

    def __init__(self, link: Link, tables: Tables, admin: Admin, client: object = None) -> None:
        """`client`: whose connections these are; it ends with the last that refers to it."""
        self._client = client
        self._link, self._tables, self._admin = link, tables, admin

    def begin(
        self,
        scope: str,
        instance: bytes = b"",
        *,
        topic: str | None = None,
        one_off: bool = False,
        idle_s: int | None = None,
    ) -> Begun:
        """Begin a scope: older drivers of it are fenced.

        Args:
            scope: its name, 1 to 255 bytes; of a topic's 1 to 234.
            instance: up to 64 bytes. The same one again is the same driver, so that many processes of one
                job may begin; empty: a driver of its own.
            topic: whose scope it is: the same name at another topic, or at one of this name that is made
                later, is another scope. None: one of the cluster, whose name does not end with `@` and a
                number.
            one_off: this name will not be begun again. Where there are more than `scopes_max` scopes, such
                ones are forgotten; no others are, and new names are refused (`overloaded`).
            idle_s: the scope may be forgotten, too, once it was not used for so many seconds (up to ten
                years): begun again, it does not know its committed epochs. The newest call says. None: it
                stays until `ringfence scope forget`.

        Raises:
            FencedError: this instance was fenced by a later one. NotFoundError: no such topic.
            InvalidArgumentError: not a name of a scope. DeadlineError: others began it again and again.
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
        """Stage rows under a token of its own.

        Args:
            begun: of the scope.
            epoch: from 1, above the scope's decided one.
            writer: the task's number, for people.
            timeout_s: seconds within which each batch must be on disk, retries included.
            bytes_in_flight_max: encoded rows that are not on disk yet; bytes.
        """
        return Stager(
            self._link,
            self._tables,
            begun,
            whole("epoch", epoch, 1),
            writer=whole("writer", writer, 0, WRITER_MAX),
            timeout_s=seconds("timeout_s", timeout_s),
            bytes_in_flight_max=whole("bytes_in_flight_max", bytes_in_flight_max, 1),
            client=self._client,
        )

    def commit(self, begun: Begun, epoch: int, staged: Iterable[StagedRows]) -> bool:
        """Put an epoch into the log; every row of it may be read when this returns.

        Returns:
            False if the epoch was committed with other attempts, or given up by the commit of a later one:
            then nothing of these ever comes. True also where an earlier call has committed these.

        Raises:
            FencedError: a later driver began the scope. InvalidArgumentError: the epoch expired, or an
                attempt is not one of this scope, epoch and driver, or is there twice, or has other rows in a
                partition than are staged there; or the scope was forgotten. Nothing is committed by this
                call then; of an earlier one without an answer it tells nothing.
            DeadlineError: not known in time whether all of it is staged, or a commit of an earlier epoch,
                sent before, failed; nothing is committed. Call it again before a later epoch is committed.
            UnknownOutcomeError: no answer came: all of it is in the log, or nothing. Call it again with the
                same attempts: it tells, unless 64 later epochs were committed since.
        """
        is_own = self._asked(begun, epoch, staged).own
        if is_own is None:
            raise UnknownOutcomeError(
                "the epoch is committed, by a lost try of this commit or by another: the node does not tell "
                "(it has an older program, or 64 later epochs were committed since)",
                scope=begun.scope,
                epoch=epoch,
            )
        return is_own

    def commit_told(self, begun: Begun, epoch: int, staged: Iterable[StagedRows]) -> bool | None:
        """As `commit`; None: the epoch is committed, and whether with these attempts is not known.

        For who counts epochs and commits each set of rows under one: there it does not matter.

        Raises:
            FencedError: besides, a later epoch was committed first, so nobody's rows of this one are in the
                log, nor will be.
        """
        told = self._asked(begun, epoch, staged)
        if told.given_up:
            raise FencedError(
                f"a later epoch of the scope was committed before epoch {epoch}, which was given up: nothing "
                "of it is stored; take a number above",
                scope=begun.scope,
                epoch=epoch,
            )
        return told.own

    def _asked(self, begun: Begun, epoch: int, staged: Iterable[StagedRows]) -> messages.AlreadyCommitted:
        """Commit; `own` is true of one that this call has committed, too."""
        staged = list(staged)
        _check_staged(begun, epoch, staged)
        tokens: list[bytes] = []
        parts: Parts = {}
        for attempt in staged:
            if attempt.parts:
                tokens.append(attempt.token)
            for place, rows in attempt.parts.items():
                parts[place] = parts.get(place, 0) + rows
        message = messages.ScopeCommit(
            scope_id=begun.scope,
            driver=begun.driver,
            epoch=epoch,
            tokens=tokens,
            parts=[(topic, partition, rows) for (topic, partition), rows in sorted(parts.items())],
        )
        answer = self._admin.commit(message)
        if answer.header.status != wire.Status.ALREADY_COMMITTED:
            return messages.AlreadyCommitted(own=True)
        # Where the node does not tell, it may have been an earlier call, of whichever process.
        return answer.control(messages.AlreadyCommitted) if len(answer.body) else messages.AlreadyCommitted()

    def gone(self, topics: Mapping[int, str]) -> list[str]:
        """Names of the topics, by id, that are not there any more; empty where nobody tells."""
        found, deadline = [], self._admin.deadline()
        for topic, name in topics.items():
            try:
                self._tables.get_by_id(topic, deadline)
            except NotFoundError:
                found.append(name)
            except RingfenceError:
                return []
        return found

    def expire(self, begun: Begun, epoch: int) -> None:
        """Give up what is staged in the epoch, and before it. An epoch that is committed stays.

        Raises:
            FencedError: a later driver began the scope; the epoch is its.
        """
        message = messages.ScopeExpire(scope_id=begun.scope, epoch=epoch, driver=begun.driver)
        self._admin.ask(wire.Opcode.EXPIRE, message)


def _of_cluster(scope: str) -> str:
    """A name that no topic's scope has."""
    name, at, number = scope_name(scope, CLUSTER_SCOPE_BYTES_MAX).rpartition("@")
    if at and number.isascii() and number.isdigit():
        raise InvalidArgumentError(
            f"the scope {name!r} of the topic with the id {number} has this name; name the topic "
            "(topic=...), or end the name otherwise",
            scope=scope,
        )
    return scope


def _check_staged(begun: Begun, epoch: int, staged: list[StagedRows]) -> None:
    """A commit that names rows which are staged elsewhere, or twice, is never published, and never ends."""
    seen: set[bytes] = set()
    for attempt in staged:
        if attempt.token in seen:
            raise InvalidArgumentError(
                "an attempt is there twice; name each once", scope=begun.scope, token=attempt.token.hex()
            )
        seen.add(attempt.token)
        if attempt.scope and (attempt.scope, attempt.epoch) != (begun.scope, epoch):
            raise InvalidArgumentError(
                f"an attempt is staged in scope {attempt.scope}, epoch {attempt.epoch}: not in this one",
                scope=begun.scope,
                epoch=epoch,
            )
        if attempt.driver not in {0, begun.driver}:
            raise InvalidArgumentError(
                f"an attempt was staged by driver {attempt.driver} of the scope, which was begun anew since: "
                "stage its rows again",
                scope=begun.scope,
                driver=begun.driver,
            )
