"""`client.consumer(...)`: open a consumer with an I/O thread and connections of its own."""

from __future__ import annotations

import datetime as dt
import time
import weakref
from abc import ABC, abstractmethod
from dataclasses import fields
from typing import TYPE_CHECKING, Literal

from ringfence.arrow.decode import Decoder
from ringfence.cluster.table_cache import TableCache
from ringfence.consumer.any_core import AnyCore
from ringfence.consumer.bell import Bell
from ringfence.consumer.consumer import Consumer
from ringfence.consumer.core import Core
from ringfence.consumer.dead_letter_thread import DeadLetterThread
from ringfence.consumer.queue_core import QueueCore
from ringfence.consumer.queue_link import QueueLink
from ringfence.consumer.settings import Settings
from ringfence.network.io_thread import IoThread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.cluster.offsets import Position
    from ringfence.common.token import Token
    from ringfence.consumer.exporter import Exporter
    from ringfence.consumer.settings import Positions, Told
    from ringfence.consumer.values import Mode


class ConsumerCalls(ABC):
    """The part of a client that opens consumers."""

    addresses: tuple[str, ...]
    _token: Token
    _timeout_s: float
    _consumers: weakref.WeakSet[Consumer]

    @abstractmethod
    def positions_at(self, topic: str, time: dt.datetime) -> list[Position]: ...

    @abstractmethod
    def _exporter(self, topic: str, cohort: str, to: str) -> Exporter:
        """Raises RingfenceError if nothing can be exported there."""

    def consumer(
        self,
        topic: str,
        *,
        cohort: str,
        mode: Mode = "stream",
        member: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        ack: Literal["auto", "manual"] = "auto",
        report: bool = True,
        ack_interval_s: float = 0.2,
        idle_s: float | None = None,
        takeover: bool = False,
        work_timeout_s: float | None = None,
        positions: Positions | None = None,
        columns: str | Sequence[str] | None = None,
        on_truncated: Literal["raise", "skip"] = "raise",
        bytes_in_flight_max: int = 64 << 20,
        rows_max: int | None = None,
        limit: int | None = None,
        lease_s: float | None = None,
        dead_letter: str | None = None,
        on_assigned: Told | None = None,
        on_revoked: Told | None = None,
        on_lost: Told | None = None,
        on_drain: Told | None = None,
    ) -> Consumer:
        """Become a member of a cohort (consumer group). The members share the partitions of the topic.

        Args:
            topic: its name.
            cohort: name of the cohort; it is created if it does not exist.
            mode: "stream": the cohort keeps the positions; "checkpoint": your own store does; "queue": all
                members share all partitions, and each range of rows is one member's at a time.
            member: a name that this member keeps over restarts, with its partitions; default: a drawn one.
            start: where a new cohort begins.
            ack: "auto": asking for the next batch acknowledges the ones before; or "manual".
            report: of "checkpoint", the same for reports; False: by `report()`, at the latest at `on_drain`.
            ack_interval_s: acknowledgements in the background go out at most so often.
            idle_s: iteration gives None after so long without a batch; default: never, with "manual" 1.
            takeover: end another process with the name `member`.
            work_timeout_s: leave the cohort when nothing was asked for during so long; default: never.
            positions: of "checkpoint": from partition to the saved `ConsumerPlace.token`, or None.
            columns: only these, in this order; a str is one name.
            on_truncated: "raise" TruncatedError for rows that were removed unread, or "skip" them.
            bytes_in_flight_max: limit for rows that are fetched ahead, or given and not acknowledged.
            rows_max: of "queue": a member takes so many rows at a time; default: what fits into an answer.
            limit: of a new "queue": failures after which a row is parked; 0: never; default 5.
            lease_s: of a new "queue": rows come again when their member is silent for so long; default 30.
            dead_letter: of "queue": the topic to which this member exports what is parked; see
                `ParkedAdmin.export_parked`. Needs the rights `read` on `topic`, and `write` on this one.
            on_assigned: called with partitions that this member gets.
            on_revoked: called with partitions that another member gets: acknowledge what is done.
            on_lost: called with partitions that were lost: what was not acknowledged comes again elsewhere.
            on_drain: called with split or merged partitions; children wait until all is acknowledged.

        Raises:
            NotFoundError: no such topic. InvalidArgumentError, ConnectError: no node answered in time.
            SchemaError, UnauthorizedError: parked rows cannot be exported to `dead_letter`.
        """
        given = locals()  # the arguments: the settings have their names
        settings = Settings(**{field.name: given[field.name] for field in fields(Settings)})
        return self._opened(settings.check(), columns)

    def _opened(self, settings: Settings, columns: str | Sequence[str] | None) -> Consumer:
        letters = None
        if settings.dead_letter is not None:
            exporter = self._exporter(settings.topic, settings.cohort, settings.dead_letter)
            letters = DeadLetterThread(exporter, settings.dead_letter)
        bell = Bell()
        core = self._core(settings, columns, bell)
        consumer = Consumer(core, settings, bell, self.positions_at, letters)
        self._consumers.add(consumer)
        if letters is not None:
            assert isinstance(core.link, QueueLink), "checked: the mode is QUEUE"
            core.link.on_parked = letters.parked
            weakref.finalize(core, letters.end).atexit = False
            letters.start()
        return consumer

    def _core(self, settings: Settings, columns: str | Sequence[str] | None, bell: Bell) -> AnyCore:
        io_thread = IoThread(self.addresses, token=self._token)
        try:
            tables = TableCache(io_thread)
            layout = tables.get(settings.topic, time.monotonic() + self._timeout_s)
            options = settings.options()
            core: AnyCore = (QueueCore if settings.mode == "queue" else Core)(
                io_thread,
                tables,
                layout,
                Decoder(layout.name, layout.schemas, columns),
                settings.identity(layout.name, options),
                options,
                timeout_s=self._timeout_s,
                on_ring=bell.ring,
            )
        except BaseException:
            io_thread.close()
            raise
        # A consumer without any references ends; the cluster notices it after its grace period.
        weakref.finalize(core, io_thread.drop).atexit = False
        return core
