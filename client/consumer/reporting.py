"""The membership of a reader that keeps its own positions and reads without the cohort: a Spark query.

It makes the reader visible: lag, retention and operators see how far it is. Joining waits, and what it is
refused for is raised. All else is best effort, on the I/O thread of the member: the reader's own store
stays the truth.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Final

from ringfence.admin import Admin
from ringfence.arrow.decode import Decoder
from ringfence.cluster.table_cache import TableCache
from ringfence.common.address import addresses
from ringfence.common.token import token_of
from ringfence.consumer.bell import Bell
from ringfence.consumer.core import Core
from ringfence.consumer.reporter import Reporter
from ringfence.consumer.settings import Settings
from ringfence.native import cohort_messages, wire
from ringfence.native.errors import MemberExistsError, NotFoundError, RetriableError
from ringfence.network.io_thread import IoThread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ringfence.consumer.values import MemberOptions, Point

# The leader hears within 2 s that connections of a killed process have ended; a busy machine takes longer.
TAKEN_S: Final = 10.0
RETRY_S: Final = 0.5
# A cluster without a leader answers no JOIN: the reader goes on, and the member joins when there is one.
JOIN_S: Final = 10.0
CLOSE_S: Final = 5.0
CONNECTED: Final = "connected"
BYTES_MAX: Final = 1 << 20  # the least; rows that come with a hold are dropped
_LOG = logging.getLogger("ringfence")


class ReportingCore(Core):
    """A member without an application."""

    member: Reporter

    @staticmethod
    def new_member(options: MemberOptions) -> Reporter:
        """The state machine."""
        return Reporter(options)

    def report(self, reached: Mapping[int, Point]) -> None:
        """The reader is done with the rows before these places. From any thread; does not wait."""
        with self._lock.lock:
            self.member.report(reached)
        self.turn()

    def joined(self) -> int:
        """The session; 0: it has none yet. Raises the error that ended the member."""
        with self._lock.lock:
            error = self.member.take_error()
            if self.member.state.final_error is not None:
                raise self.member.state.final_error
            if error is not None:
                _LOG.warning("topic %s, cohort %s: %s", self.topic, self.identity.cohort, error)
            return self.member.state.session


class Reports:
    """The one member of a cohort that a reader is. For one thread at a time."""

    def __init__(self, address: str | None, token_file: str | None, settings: Settings) -> None:
        """`address`, `token_file`: as `connect` takes them. `settings`: see `settings_of`."""
        self._addresses = addresses(address, os.environ)
        self._token = token_of(None, token_file, os.environ)
        self._settings = settings
        self._bell = Bell()
        self._core: ReportingCore | None = None

    def begin(self) -> None:
        """Join.

        Raises:
            MemberExistsError: another process is a member of the cohort; one that was killed counts until the
                cluster has noticed it, which is waited for.
            ConflictError: the cohort has another mode. And what else JOIN is refused for.
        """
        deadline = time.monotonic() + TAKEN_S
        while True:
            try:
                self._begin()
            except MemberExistsError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_S)
            else:
                return

    def _begin(self) -> None:
        io_thread = IoThread(self._addresses, token=self._token)
        admin = Admin(io_thread, JOIN_S)
        try:
            self._refuse_others(admin, 0)
            core = self._open(io_thread)
        except BaseException:
            io_thread.close()
            raise
        try:
            session = self._wait(core)
            if session:
                self._refuse_others(admin, session)
        except BaseException:
            core.close(leave=True, timeout_s=CLOSE_S)
            raise
        self._core = core

    def _wait(self, core: ReportingCore) -> int:
        """Until it has joined, or the cluster is too slow to wait for."""
        deadline = time.monotonic() + JOIN_S
        while not (session := core.joined()) and (left_s := deadline - time.monotonic()) > 0:
            self._bell.flag.clear()
            self._bell.flag.wait(min(left_s, 0.05))
        if not session:
            _LOG.warning(
                "topic %s, cohort %s: no node has answered JOIN in %g s; the query goes on, and "
                "the member joins later",
                core.topic,
                self._settings.cohort,
                JOIN_S,
            )
        return session

    def report(self, reached: Mapping[int, Point]) -> None:
        """The reader is done with the rows before these places. Does not wait.

        Raises what ended the member: a newer process of its name, the cohort was deleted.
        """
        if self._core is not None:
            self._core.joined()
            self._core.report(reached)

    def close(self) -> None:
        """Leave the cohort: a stopped reader is no member."""
        core, self._core = self._core, None
        if core is not None:
            core.close(leave=True, timeout_s=CLOSE_S)

    # ---- parts ----

    def _open(self, io_thread: IoThread) -> ReportingCore:
        settings = self._settings
        tables = TableCache(io_thread)
        layout = tables.get(settings.topic, time.monotonic() + JOIN_S)
        options = settings.options()
        return ReportingCore(
            io_thread,
            tables,
            layout,
            Decoder(layout.name, layout.schemas, None),
            settings.identity(layout.name, options),
            options,
            timeout_s=JOIN_S,
            on_ring=self._bell.ring,
        )

    def _refuse_others(self, admin: Admin, session: int) -> None:
        """Raises MemberExistsError if another one is connected; of two that join together the later one goes.

        `session`: of this one; 0: before it joins.
        """
        ask = cohort_messages.CohortDescribe(topic=self._settings.topic, cohort=self._settings.cohort)
        try:
            answer = admin.request(wire.Opcode.COHORT_DESCRIBE, ask, topic=self._settings.topic)[0]
        except NotFoundError:
            return  # JOIN creates it
        except RetriableError as error:
            _LOG.warning("cohort %s: its members are not known: %s", self._settings.cohort, error)
            return
        for one in answer.control(cohort_messages.CohortDescribed).members:
            is_other = one.member != self._settings.member and one.state == CONNECTED
            if is_other and (not session or one.session < session):
                raise MemberExistsError(
                    f"the cohort {self._settings.cohort!r} has the member {one.member!r}: a "
                    f"query has a cohort of its "
                    "own. Choose another name for the cohort, or stop the other query",
                    topic=self._settings.topic,
                    cohort=self._settings.cohort,
                    member=one.member,
                )


def settings_of(topic: str, cohort: str, member: str) -> Settings:
    """What JOIN of such a reader says. Raises InvalidArgumentError for names that cannot be."""
    return Settings(
        topic=topic,
        cohort=cohort,
        mode="checkpoint",
        member=member,
        positions={},
        report=False,
        on_truncated="skip",
        bytes_in_flight_max=BYTES_MAX,
    ).check()
