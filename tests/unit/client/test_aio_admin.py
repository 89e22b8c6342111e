"""`Client.admin` for asyncio has the calls of the synchronous one."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ringfence import aio_admin, client_admin
from ringfence.aio_admin import ClientAdmin
from tests.fakes.parked_node import ParkedNode

FIRST, SECOND = (1, 7), (2, 8)


def test_it_has_every_call() -> None:
    def calls(of: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}

    assert calls(aio_admin.ClientAdmin) == calls(client_admin.ClientAdmin)


def test_parked_rows_are_listed_exported_put_back_and_discarded() -> None:
    node: Any = ParkedNode(FIRST, SECOND)

    async def work() -> None:
        api = ClientAdmin(client_admin.ClientAdmin(node, node))
        assert [one.item async for one in api.parked("t", "c")] == [FIRST, SECOND]
        assert (await api.export_parked("t", "c", to="u", items=[FIRST])).exported == (FIRST,)
        assert (await api.retry_parked("t", "c", [SECOND])).done == 1
        assert (await api.discard_parked("t", "c")).done == 0

    asyncio.run(work())
