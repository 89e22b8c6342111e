"""`Client.admin` for asyncio: changes of layouts, cohorts, and parked rows of queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from ringfence.client_admin import ClientAdmin as SyncAdmin
    from ringfence.consumer.exporter import Exported
    from ringfence.consumer.parked import Item, Parked, ParkedOutcome
    from ringfence.layout_admin import LayoutChange
    from ringfence.native import cohort_messages
    from ringfence.native.layout_messages import OpenTransition


class ClientAdmin:
    """See `ringfence.client_admin.ClientAdmin`; arguments and errors are the same."""

    def __init__(self, admin: SyncAdmin) -> None:
        self._admin = admin

    async def split(self, topic: str, partition: int, **options: Any) -> LayoutChange:
        """Split a partition at slots, or into parts."""
        return await asyncio.to_thread(self._admin.split, topic, partition, **options)

    async def merge(self, topic: str, one: int, other: int, **options: Any) -> LayoutChange:
        """Merge two adjacent partitions, in either order."""
        return await asyncio.to_thread(self._admin.merge, topic, one, other, **options)

    async def repartition(self, topic: str, partitions: int, **options: Any) -> LayoutChange:
        """Give the topic this number of partitions in one step."""
        return await asyncio.to_thread(self._admin.repartition, topic, partitions, **options)

    async def abort_transition(self, topic: str, change: int) -> None:
        """End a change that is not committed."""
        await asyncio.to_thread(self._admin.abort_transition, topic, change)

    async def set_auto(self, topic: str, **settings: Any) -> None:
        """Switch automatic splits and merges of a topic, and limit them."""
        await asyncio.to_thread(self._admin.set_auto, topic, **settings)

    async def transitions(self, topic: str) -> tuple[OpenTransition, ...]:
        """Open layout changes of a topic, with what each waits for."""
        return await asyncio.to_thread(self._admin.transitions, topic)

    async def create_cohort(
        self, topic: str, cohort: str, mode: str = "stream", **options: Any
    ) -> cohort_messages.CohortEntry:
        """Create a cohort before its first member does."""
        return await asyncio.to_thread(self._admin.create_cohort, topic, cohort, mode, **options)

    async def cohorts(self, topic: str | None = None) -> AsyncIterator[cohort_messages.CohortSummary]:
        """Cohorts of a topic, or of all."""
        listed = self._admin.cohorts(topic)
        while (one := await asyncio.to_thread(next, listed, None)) is not None:
            yield one

    async def cohort(self, topic: str, cohort: str) -> cohort_messages.CohortDescribed:
        """A cohort with its members, and where it is in each partition."""
        return await asyncio.to_thread(self._admin.cohort, topic, cohort)

    async def change_cohort(self, topic: str, cohort: str, **settings: Any) -> cohort_messages.CohortEntry:
        """Change settings of a cohort."""
        return await asyncio.to_thread(self._admin.change_cohort, topic, cohort, **settings)

    async def delete_cohort(self, topic: str, cohort: str, *, missing_ok: bool = False) -> bool:
        """Delete a cohort with its positions."""
        return await asyncio.to_thread(self._admin.delete_cohort, topic, cohort, missing_ok=missing_ok)

    async def seek_cohort(
        self, topic: str, cohort: str, to: Any, **options: Any
    ) -> cohort_messages.CohortSought:
        """Let a cohort begin again elsewhere."""
        return await asyncio.to_thread(self._admin.seek_cohort, topic, cohort, to, **options)

    async def evict(self, topic: str, cohort: str, member: str) -> bool:
        """Remove a member; it may join again."""
        return await asyncio.to_thread(self._admin.evict, topic, cohort, member)

    async def parked(self, topic: str, cohort: str) -> AsyncIterator[Parked]:
        """What is parked, in the order of (partition, number)."""
        listed = self._admin.parked(topic, cohort)
        while (one := await asyncio.to_thread(next, listed, None)) is not None:
            yield one

    async def retry_parked(
        self, topic: str, cohort: str, items: Iterable[Parked | Item] | None = None, *, force: bool = False
    ) -> ParkedOutcome:
        """Put rows back: they are delivered again."""
        return await asyncio.to_thread(self._admin.retry_parked, topic, cohort, items, force=force)

    async def discard_parked(
        self, topic: str, cohort: str, items: Iterable[Parked | Item] | None = None, *, force: bool = False
    ) -> ParkedOutcome:
        """Give rows up."""
        return await asyncio.to_thread(self._admin.discard_parked, topic, cohort, items, force=force)

    async def export_parked(self, topic: str, cohort: str, *, to: str, **options: Any) -> Exported:
        """Copy rows to another topic, exactly once."""
        return await asyncio.to_thread(self._admin.export_parked, topic, cohort, to=to, **options)
