"""Create, list, show, change, seek and delete cohorts; evict members. See `Client.admin`."""

from __future__ import annotations

import datetime as dt
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.common.arguments import seconds, whole
from ringfence.consumer.settings import seek_request
from ringfence.native import cohort_messages as messages
from ringfence.native import wire
from ringfence.native.errors import ConflictError, ProtocolError, UnknownOutcomeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.admin import Admin
    from ringfence.client import Client
    from ringfence.native.messages import AnyMessage

SEEK_S: Final = 30.0


class CohortAdmin:
    """The cohorts of topics. They need level 3 of the cluster.

    Raises, besides:
        NotFoundError: there is no such topic or cohort.
        UnauthorizedError: changes need the right `manage`, a seek `consume`, all others `read`.
        ConnectError: no node answers in time.
    """

    def __init__(self, client: Client, admin: Admin) -> None:
        self._client, self._admin = client, admin

    def create_cohort(
        self,
        topic: str,
        cohort: str,
        mode: str = "stream",
        *,
        start: str = "earliest",
        handover_s: float | None = None,
        lease_s: float | None = None,
        limit: int | None = None,
    ) -> messages.CohortEntry:
        """Create a cohort before its first member does. One that is there with the same values is no error.

        Args:
            topic: its name.
            cohort: its name.
            mode: "stream", "queue" or "checkpoint".
            start: first row: "earliest", or "latest" for those that are published from now on.
            handover_s: a member that lost a partition has so long to acknowledge its rows.
            lease_s: of a queue: so long a member has rows that it says nothing of.
            limit: of a queue: a row is parked after so many failed deliveries; 0: never.

        Raises:
            AlreadyExistsError: it is there with other values.
            InvalidArgumentError: a value is outside its range.
        """
        settings = _changed(messages.CohortSettings(), handover_s, lease_s, limit)
        message = messages.CohortCreate(
            topic=topic, cohort=cohort, mode=mode, start=start, settings=settings, key=_key()
        )
        return self._ask(wire.Opcode.COHORT_CREATE, message, messages.CohortEntry)

    def cohorts(self, topic: str | None = None) -> Iterator[messages.CohortSummary]:
        """Cohorts of a topic, or of all topics that the token may read, with members, lag and parked rows."""
        after: tuple[str, str] | None = None
        while True:
            message = messages.CohortList(
                topic=UNSET if topic is None else topic, after=UNSET if after is None else after
            )
            page = self._ask(wire.Opcode.COHORT_LIST, message, messages.CohortListed)
            yield from page.cohorts
            if not page.more:
                return
            after = _next(after, page)

    def cohort(self, topic: str, cohort: str) -> messages.CohortDescribed:
        """A cohort with its members, and where it is in each partition."""
        described = self._page(topic, cohort, 0)
        partitions = list(described.partitions)
        page = described
        while page.more and page.partitions:
            page = self._page(topic, cohort, partitions[-1].partition)
            partitions += page.partitions
        return replace(described, partitions=partitions, more=False)

    def _page(self, topic: str, cohort: str, after: int) -> messages.CohortDescribed:
        message = messages.CohortDescribe(topic=topic, cohort=cohort, after=after)
        return self._ask(wire.Opcode.COHORT_DESCRIBE, message, messages.CohortDescribed)

    def change_cohort(
        self,
        topic: str,
        cohort: str,
        *,
        handover_s: float | None = None,
        lease_s: float | None = None,
        limit: int | None = None,
        expected: int | None = None,
    ) -> messages.CohortEntry:
        """Change settings; None leaves one as it is. Leases that have begun keep their ends.

        `expected`: version of the settings that these replace; None: the one that there is.

        Raises:
            ConflictError: the settings have another version.
            InvalidArgumentError: a value is outside its range.
        """
        describe = messages.CohortDescribe(topic=topic, cohort=cohort, partitions=False)
        there = self._ask(wire.Opcode.COHORT_DESCRIBE, describe, messages.CohortDescribed).summary.entry
        message = messages.CohortChange(
            topic=topic,
            cohort=cohort,
            mode=there.mode,
            settings=_changed(there.settings, handover_s, lease_s, limit),
            version=there.version if expected is None else whole("expected", expected, 1),
            key=_key(),
        )
        try:
            return self._ask(wire.Opcode.COHORT_CHANGE, message, messages.CohortEntry)
        except UnknownOutcomeError as error:
            if error.code is not wire.Code.TOO_OLD:
                raise
            # Of a publish this code says that the outcome is not known; of settings, that others are there.
            raise ConflictError(error.message, topic=topic, code=error.code) from None

    def delete_cohort(self, topic: str, cohort: str, *, missing_ok: bool = False) -> bool:
        """Delete a cohort with its positions; its members end. Returns whether there was one.

        Raises:
            NotFoundError: there is none, without `missing_ok`.
        """
        message = messages.CohortDelete(topic=topic, cohort=cohort, missing_ok=missing_ok, key=_key())
        return self._ask(wire.Opcode.COHORT_DELETE, message, messages.CohortDeleted).deleted

    def seek_cohort(
        self,
        topic: str,
        cohort: str,
        to: Any,
        *,
        rest: str | None = None,
        forget_parked: bool = False,
        wait: bool = True,
        timeout_s: float = SEEK_S,
    ) -> messages.CohortSought:
        """Let a cohort begin again elsewhere. The arguments are those of `Consumer.seek`.

        Returns the number of the new beginning, and partitions that have not begun yet.

        Raises:
            AlreadyExistsError: rows are parked, without `forget_parked`.
        """
        if isinstance(to, dt.datetime):
            # Rows that come later are newer than every time that was resolved.
            to, rest = self._client.positions_at(topic, to), rest or "latest"
        message = seek_request(topic, cohort, to, rest=rest, forget_parked=forget_parked, wait=wait)
        deadline = time.monotonic() + seconds("timeout_s", timeout_s)
        return self._ask(wire.Opcode.COHORT_SEEK, message, messages.CohortSought, deadline)

    def evict(self, topic: str, cohort: str, member: str) -> bool:
        """Remove a member; others get its partitions, and it may join again. Returns whether it was there."""
        message = messages.CohortEvict(topic=topic, cohort=cohort, member=member)
        return self._ask(wire.Opcode.COHORT_EVICT, message, messages.Left).removed

    def _ask(
        self, opcode: wire.Opcode, message: Any, kind: type[AnyMessage], deadline: float | None = None
    ) -> AnyMessage:
        topic = message.topic if isinstance(message.topic, str) else None
        return self._admin.request(opcode, message, topic=topic, deadline=deadline)[0].control(kind)


def _key() -> str:
    """One for all tries of a call: a repeat whose answer was lost is the same request."""
    return secrets.token_hex(16)


def _changed(
    settings: messages.CohortSettings, handover_s: float | None, lease_s: float | None, limit: int | None
) -> messages.CohortSettings:
    changes: dict[str, int] = {}
    if handover_s is not None:
        changes["handover_ms"] = round(1_000 * seconds("handover_s", handover_s))
    if lease_s is not None:
        changes["lease_ms"] = round(1_000 * seconds("lease_s", lease_s))
    if limit is not None:
        changes["limit"] = whole("limit", limit, 0)
    return replace(settings, **changes)


def _next(after: tuple[str, str] | None, page: messages.CohortListed) -> tuple[str, str]:
    """The last (topic, cohort) of a page that has more behind it."""
    last = page.cohorts[-1].entry if page.cohorts else None
    if last is None or (after is not None and (last.topic, last.cohort) <= after):
        raise ProtocolError("a page of cohorts does not follow the one before", after=after)
    return last.topic, last.cohort
