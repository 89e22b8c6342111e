"""What a QUEUE has parked: list it, put it back, discard it. See `Client.admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from ringfence.native import cohort_messages as messages
from ringfence.native import wire
from ringfence.native.errors import ConnectError, InvalidArgumentError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ringfence.admin import Admin

ITEMS_A_REQUEST: Final = 4096  # as many as the admin API takes


class Parked(msgspec.Struct, frozen=True):
    """Rows of a queue that are put aside: `first_offset` .. `end_offset - 1` of a partition.

    Attributes:
        partition, number: name it; a range that is put back and fails again has another number.
        rows: how many.
        count: failed deliveries, the last one for `reason`.
        time_ms: since when (Unix ms).
        is_exporting: an export of it has begun, in the scope with the id `scope`.
        gone: so many of its rows are not in the log any more.
    """

    partition: int
    number: int
    first_offset: int
    rows: int
    count: int
    reason: str
    time_ms: int
    is_exporting: bool = False
    gone: int = 0
    scope: int = 0

    @property
    def item(self) -> tuple[int, int]:
        """Its name in other calls."""
        return self.partition, self.number

    @property
    def end_offset(self) -> int:
        return self.first_offset + self.rows


Item = tuple[int, int]


class ParkedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of parked ranges, by (partition, number).

    Attributes:
        done: number of ranges with which it was carried out.
        not_parked: they are not parked any more; nothing was changed.
        gone: carried out, but rows of it are not in the log any more.
        exported: an export of them was committed before: they are exported, and nothing else was done.
        exporting: an export of them is under way; ask again.
        unknown: their owner did not answer, or it is not known whether an export was committed. `force`
            decides the latter.
    """

    done: int = 0
    not_parked: tuple[Item, ...] = ()
    gone: tuple[Item, ...] = ()
    exported: tuple[Item, ...] = ()
    exporting: tuple[Item, ...] = ()
    unknown: tuple[Item, ...] = ()

    @classmethod
    def of(cls, settled: messages.ParkedSettled) -> ParkedOutcome:
        """The outcome of an answer."""
        lists = {name: tuple(getattr(settled, name)) for name in cls.__struct_fields__ if name != "done"}
        return cls(done=settled.done, **lists)

    def joined(self, other: ParkedOutcome) -> ParkedOutcome:
        """Both."""
        lists = {
            name: getattr(self, name) + getattr(other, name)
            for name in self.__struct_fields__
            if name != "done"
        }
        return ParkedOutcome(done=self.done + other.done, **lists)


def items_of(given: Iterable[Parked | Item]) -> list[Item]:
    """The items of a caller, ascending, each once.

    Raises:
        InvalidArgumentError: one is no (partition, number).
    """
    items: set[Item] = set()
    for one in given:
        item: Any = one.item if isinstance(one, Parked) else one
        if not (
            isinstance(item, tuple)
            and len(item) == 2
            and all(isinstance(part, int) and not isinstance(part, bool) and part >= 0 for part in item)
        ):
            raise InvalidArgumentError("items must be (partition, number), as `parked` lists them", item=item)
        items.add(item)
    return sorted(items)


class ParkedRequests:
    """COHORT_PARKED of one cohort. Each call waits for its answer."""

    def __init__(self, admin: Admin, topic: str, cohort: str) -> None:
        self._admin, self.topic, self.cohort = admin, topic, cohort

    def id(self) -> int:
        """The id of the cohort: one that is deleted and created again has another."""
        message = messages.CohortDescribe(topic=self.topic, cohort=self.cohort, partitions=False)
        answer = self._admin.request(wire.Opcode.COHORT_DESCRIBE, message, topic=self.topic)[0]
        return answer.control(messages.CohortDescribed).summary.entry.id

    def listed(self) -> Iterator[Parked]:
        """What is parked, in the order of (partition, number).

        Raises:
            ConnectError: at the end, if owners of partitions did not answer.
        """
        after: Item | None = None
        unknown: set[int] = set()
        while True:
            message = messages.CohortParked(
                topic=self.topic, cohort=self.cohort, action="list", after=UNSET if after is None else after
            )
            answer = self._admin.request(wire.Opcode.COHORT_PARKED, message, topic=self.topic)[0]
            page = answer.control(messages.ParkedListed)
            unknown.update(page.unknown)
            yield from map(parked_of, page.parked)
            if not page.more:
                break
            last = page.parked[-1] if page.parked else None
            if last is None or (after is not None and (last.partition, last.number) <= after):
                raise ProtocolError("a page of parked ranges does not follow the one before", after=after)
            after = last.partition, last.number
        if unknown:
            raise ConnectError(
                "owners of partitions do not answer, so it is not known what is parked there; list again",
                topic=self.topic,
                cohort=self.cohort,
                partitions=sorted(unknown),
            )

    def act(
        self, action: str, items: Iterable[Parked | Item] | None, *, force: bool = False
    ) -> ParkedOutcome:
        """`retry` or `discard` items; None: all."""
        if items is None:
            return self._act(action, None, force=force)
        chosen, outcome = items_of(items), ParkedOutcome()
        for at in range(0, len(chosen), ITEMS_A_REQUEST):
            part = self._act(action, chosen[at : at + ITEMS_A_REQUEST], force=force)
            outcome = outcome.joined(part)
        return outcome

    def mark(self, action: str, item: Item, scope: int, *, force: bool = False) -> ParkedOutcome:
        """`begin` or `exported`: an export in a scope has begun, or is committed."""
        return self._act(action, [item], scope=scope, force=force)

    def _act(
        self, action: str, items: list[Item] | None, *, scope: int = 0, force: bool = False
    ) -> ParkedOutcome:
        message = messages.CohortParked(
            topic=self.topic,
            cohort=self.cohort,
            action=action,
            items=UNSET if items is None else items,
            scope=scope,
            force=force,
        )
        answer = self._admin.request(wire.Opcode.COHORT_PARKED, message, topic=self.topic)[0]
        return ParkedOutcome.of(answer.control(messages.ParkedSettled))


def parked_of(one: messages.ParkedRange) -> Parked:
    """A range of an answer."""
    return Parked(
        one.partition,
        one.number,
        one.first,
        one.rows,
        one.count,
        one.reason,
        one.time_ms,
        one.state == "exporting",
        one.gone,
        one.scope,
    )
