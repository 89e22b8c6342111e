"""Parked rows of a queue: list them, put them back, discard them, copy them. See `Client.admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.common.options import TIMEOUT_S
from ringfence.consumer.exporter import Exported, Exporter
from ringfence.consumer.parked import Parked, ParkedOutcome, ParkedRequests, items_of
from ringfence.consumer.parked_export import Ending
from ringfence.consumer.parked_rows import check_other_topic, target_schema
from ringfence.native.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringfence.admin import Admin
    from ringfence.client import Client
    from ringfence.consumer.parked import Item


class ParkedAdmin:
    """Rows that a queue has parked, after `limit` failures or by `Delivery.park`.

    `items` are `Parked` values or (partition, number); None: all that is parked.

    Raises, besides:
        NotFoundError: there is no such topic or cohort.
        UnauthorizedError: the token has not the right `consume`; `export_parked` needs `write` besides.
        ConnectError: no node answers in time.
    """

    def __init__(self, client: Client, admin: Admin) -> None:
        self._client, self._requests = client, admin

    def parked(self, topic: str, cohort: str) -> Iterator[Parked]:
        """What is parked, in the order of (partition, number), page by page.

        Raises:
            ConnectError: also at the end, if owners of partitions did not answer; `partitions` names them.
        """
        return ParkedRequests(self._requests, topic, cohort).listed()

    def retry_parked(
        self, topic: str, cohort: str, items: Iterable[Parked | Item] | None = None, *, force: bool = False
    ) -> ParkedOutcome:
        """Put rows back: they are delivered again, with a count of 0.

        An export that is under way is ended first; if it was committed, the rows are not put back.

        Args:
            topic: its name.
            cohort: its name.
            items: which ones; None: all.
            force: also where it is not known whether an export was committed. The rows may be in both then.
        """
        return ParkedRequests(self._requests, topic, cohort).act("retry", items, force=force)

    def discard_parked(
        self, topic: str, cohort: str, items: Iterable[Parked | Item] | None = None, *, force: bool = False
    ) -> ParkedOutcome:
        """Give rows up: they are not delivered again. The arguments are those of `retry_parked`."""
        return ParkedRequests(self._requests, topic, cohort).act("discard", items, force=force)

    def export_parked(
        self,
        topic: str,
        cohort: str,
        *,
        to: str,
        items: Iterable[Parked | Item] | None = None,
        again: bool = False,
        create: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> Exported:
        """Copy rows to another topic, each range exactly once, also if several export it, or one often.

        Rows have the columns of the topic, and parked_topic, parked_cohort, parked_partition, parked_offset,
        parked_count, parked_reason and parked_ms.

        Args:
            topic: its name.
            cohort: its name.
            to: the topic that gets the rows. It has all of these columns.
            items: which ones; None: all.
            again: copy also where it is not known whether an export before was committed: its scope was
                forgotten. These rows may be there twice.
            create: create `to` if it does not exist, with the topic's key and replication, and one partition.
            timeout_s: seconds until the rows of a range must be on disk.

        Raises:
            SchemaError: `to` has not the columns, or the topic has one of a name that is added.
            ConflictError: at the end: of some it is not known whether they were exported. `unknown` in its
                details has them; nothing was done with them.
            RingfenceError: a range could not be copied. It stays parked; those before it are exported.
        """
        if create:
            self._create(topic, to)
        exporter = Exporter(self._client, self._requests, topic, cohort, to, timeout_s=timeout_s)
        number = exporter.requests.id()
        wanted = None if items is None else items_of(items)
        found: dict[Ending, list[Item]] = {ending: [] for ending in Ending}
        rows = gone = 0
        for parked in chosen(exporter.requests.listed(), wanted):
            if isinstance(parked, Parked):
                one = exporter.export(parked, number, again=again)
                rows, gone = rows + one.rows, gone + one.gone
                found[one.ending].append(parked.item)
            else:
                found[Ending.NOT_PARKED].append(parked)
        unknown = tuple(found[Ending.NOT_KNOWN])
        exported = tuple(sorted(found[Ending.EXPORTED] + found[Ending.MARKED]))
        if unknown:
            raise unknown_error(unknown, exported, topic)
        return Exported(
            exported=exported,
            rows=rows,
            gone=gone,
            not_parked=tuple(found[Ending.NOT_PARKED]),
            elsewhere=tuple(found[Ending.ELSEWHERE]),
            closed=tuple(found[Ending.CLOSED]),
        )

    def _create(self, topic: str, to: str) -> None:
        source = self._client.topic(topic)
        schema = target_schema(source.schemas[-1], source.name)
        made = self._client.create_topic(
            to, schema=schema, key=source.key, replication=source.replication, exist_ok=True
        )
        check_other_topic(source.topic, made.topic, made.name)


def chosen(listed: Iterator[Parked], wanted: list[Item] | None) -> Iterator[Parked | Item]:
    """What is listed and wanted; and items that are wanted and not parked, by their names."""
    if wanted is None:
        yield from listed
        return
    left = dict.fromkeys(wanted)
    while left and (parked := next(listed, None)) is not None:
        if parked.item in left:
            del left[parked.item]
            yield parked
    yield from left


def unknown_error(unknown: tuple[Item, ...], exported: tuple[Item, ...], topic: str) -> ConflictError:
    """It is not known whether ranges were exported."""
    names = ", ".join(f"{partition}:{number}" for partition, number in unknown[:5])
    return ConflictError(
        f"it is not known whether parked ranges were exported: {names}{' ..' if unknown[5:] else ''}; their "
        "scopes were forgotten, or their owners do not answer. Look whether the rows are there, then export "
        "them with `again` (`--again`), or retry or discard them with `force` (`--force`)",
        topic=topic,
        unknown=unknown,
        exported=exported,
    )
