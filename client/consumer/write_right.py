"""Ask whether the client's token may write a topic, before there is something to write."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from ringfence.native import wire
from ringfence.native.errors import RerouteError, RetriableError
from ringfence.native.layout_messages import StagedList
from ringfence.native.messages import encode
from ringfence.network.request import Request

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from ringfence.network.io_thread import IoThread

# What is staged under a token that no attempt has: the list needs the right to write, and changes nothing.
NOTHING: Final = StagedList(scope=1, epoch=1, tokens=[bytes(16)])


def check_may_write(io_thread: IoThread, layout: Layout, deadline: float) -> None:
    """Raises UnauthorizedError if it may not. An owner that does not answer is no refusal."""
    partition = layout.active[0].partition
    place = {"topic": layout.topic, "partition": partition, "layout_version": layout.version}
    request = Request(wire.Opcode.STAGED_LIST, encode(NOTHING), deadline, topic=layout.name, fields=place)
    with contextlib.suppress(RerouteError, RetriableError):
        io_thread.request_owner(request, layout, partition).result()
