"""What a node's beats say of itself: by which entry this very process was started."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from ringfence.control.model.ids import Index
from ringfence.control.runtime.members import Beat, Members
from tests.control.commands import cluster, restart, store_of
from tests.control.test_liveness import after


def beats(*, started: int) -> Beat:
    """One that node 2 sends whose metadata does not have its newest start yet."""
    sent: list[Beat] = []
    replica = SimpleNamespace(
        id=2, leads=False, leader=1, applied=SimpleNamespace(index=30), disk_full=False,
        configuration=SimpleNamespace(voters=(1, 2), voters_outgoing=()),
    )  # fmt: skip
    proposer = SimpleNamespace(replica=replica, state=after(cluster(2), 20, restart(cluster(2), 2)))
    peers = SimpleNamespace(
        know=lambda _: None,
        forget_others=lambda _: None,
        send=lambda _node, _kind, body: sent.append(msgspec.msgpack.decode(body, type=Beat)),
    )
    health = SimpleNamespace(worsen=lambda *_: None, mend=lambda *_: None)
    here = SimpleNamespace(node=2, store=store_of(2))
    kind: Any = Members
    members = kind(proposer, peers, here, health, started=lambda: Index(started))
    asyncio.run(_once(cast("Members", members)))
    return sent[0]


async def _once(members: Members) -> None:
    members._round()


def test_before_its_own_start_is_applied_a_process_does_not_speak_for_an_earlier_one() -> None:
    """Others that have applied it would take it for a copied directory."""
    assert beats(started=0).started == 0
    assert beats(started=40).started == 40
