"""`client.admin`: what it asks for, how long it waits, and what becomes of refusals."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ringfence.aio_admin import ClientAdmin as AioAdmin
from ringfence.layout_admin import LayoutAdmin
from ringfence.native.errors import AlreadyExistsError, ConflictError, InvalidArgumentError, WaitTimeoutError
from ringfence.native.layout_messages import LayoutChanged, LayoutDescribed, OpenTransition
from ringfence.native.messages import PartitionEntry, decode, encode
from ringfence.native.wire import Opcode

CHANGE = 9


def child(ordinal: int) -> PartitionEntry:
    number = (CHANGE << 16) | ordinal
    return PartitionEntry(
        partition=number, lo=ordinal, hi=ordinal, state="ACTIVE", owner=1, epoch=CHANGE, created_version=2
    )


class Node:
    """Answers in order; keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[tuple[Opcode, Any]]()

    def request(self, opcode: Opcode, message: Any, *, topic: str | None = None) -> tuple[Any, int]:
        assert topic == message.topic
        self.asked.append((opcode, message))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(control=lambda kind: decode(kind, encode(answer))), 0


def admin(node: Node) -> LayoutAdmin:
    return LayoutAdmin(node)  # type: ignore[arg-type]


def committed(**more: Any) -> LayoutChanged:
    return LayoutChanged(
        change=CHANGE, kind="SPLIT", phase="COMMITTED", version=2, partitions=[child(0), child(1)], **more
    )


def begun(phase: str = "PREPARED") -> LayoutChanged:
    return LayoutChanged(change=CHANGE, kind="SPLIT", phase=phase, version=1)


def described(phase: str) -> LayoutDescribed:
    transition = OpenTransition(change=CHANGE, kind="SPLIT", phase=phase, version=0, before=0, after=0)
    return LayoutDescribed(version=2, partitions=[], transitions=[transition])


def test_each_call_asks_for_its_change_under_a_key_of_its_own() -> None:
    node = Node(*[committed(gap_us=4_000)] * 5, LayoutChanged(change=0, kind="", phase="", version=2))
    api = admin(node)
    done = api.split("t", 7)
    assert (done.change, done.version, done.gap_us, len(done.partitions)) == (CHANGE, 2, 4_000, 2)
    api.split("t", 7, at=[5, 9])
    api.split("t", 7, into=3, preview=True)
    api.merge("t", 7, 8)
    api.repartition("t", 4)
    assert api.repartition("t", 4).change == 0, "nothing was to be changed"
    fields = [
        (one.action, one.partitions, one.at, one.into, one.preview, one.wait_ms) for _, one in node.asked[:5]
    ]
    assert fields == [
        ("split", [7], [], 0, False, 5_000),
        ("split", [7], [5, 9], 0, False, 5_000),
        ("split", [7], [], 3, True, 5_000),
        ("merge", [7, 8], [], 0, False, 5_000),
        ("repartition", [], [], 4, False, 5_000),
    ]
    assert len({one.key for _, one in node.asked}) == 6
    with pytest.raises(InvalidArgumentError, match="exclude"):
        api.split("t", 7, at=[5], into=2)
    with pytest.raises(InvalidArgumentError, match="`at` is empty"):
        api.split("t", 7, at=[])


def test_a_preview_tells_ranges_and_places() -> None:
    would = LayoutChanged(change=0, kind="SPLIT", phase="", version=1, would=[(0, 4, [1]), (5, 9, [2])])
    assert admin(Node(would)).split("t", 7, preview=True).would == ((0, 4, [1]), (5, 9, [2]))


def test_a_change_is_waited_for_until_it_is_decided() -> None:
    node = Node(begun(), begun("HELD"), committed(gap_us=4_000))
    done = admin(node).split("t", 7)
    assert (done.phase, done.version, len(done.partitions), done.gap_us) == ("COMMITTED", 2, 2, 4_000)
    assert len({one.key for _, one in node.asked}) == 1, "a repeat asks about the change of the first"
    assert [opcode for opcode, _ in node.asked] == [Opcode.LAYOUT_CHANGE] * 3
    assert admin(Node(begun())).split("t", 7, wait_s=0).phase == "PREPARED"


def test_ends_without_effect_and_waits_that_are_over_are_typed() -> None:
    with pytest.raises(ConflictError, match="was aborted"):
        admin(Node(begun("ABORTED"))).split("t", 7)
    with pytest.raises(ConflictError, match="nothing has changed"):
        admin(Node(begun(), begun("HELD"), begun("ABORTED"))).split("t", 7)
    with pytest.raises(WaitTimeoutError, match="goes on") as late:
        admin(Node(*[begun()] * 9)).split("t", 7, wait_s=0.1)
    assert late.value.details["change"] == CHANGE
    refusal = AlreadyExistsError("partition 7 was sealed by layout change 3; its slots are in 8, 9")
    with pytest.raises(AlreadyExistsError, match="8, 9"):
        admin(Node(refusal)).split("t", 7)


def test_settings_are_sent_by_name_and_reset_by_null() -> None:
    node = Node(*[LayoutChanged(change=0, kind="", phase="", version=1)] * 2)
    admin(node).set_auto("t", split=True, partitions_max=8, reset=["merge"])
    assert node.asked[0][1].auto == {"auto_split": 1, "auto_partitions_max": 8, "auto_merge": None}
    assert node.asked[0][1].action == "auto"
    admin(node).abort_transition("t", CHANGE)
    assert (node.asked[1][1].action, node.asked[1][1].change) == ("abort", CHANGE)
    assert isinstance(node.asked[1][1].auto, msgspec.UnsetType)


def test_asyncio_has_the_same_calls() -> None:
    async def work() -> None:
        node = Node(committed(), committed(), committed(), begun("ABORTED"), committed(), described("HELD"))
        api = AioAdmin(admin(node))  # type: ignore[arg-type]
        assert (await api.split("t", 7, into=2)).change == CHANGE
        assert (await api.merge("t", 7, 8)).change == CHANGE
        assert (await api.repartition("t", 7, wait_s=1)).change == CHANGE
        await api.abort_transition("t", CHANGE)
        await api.set_auto("t", merge=True)
        assert [one.phase for one in await api.transitions("t")] == ["HELD"]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda made: made.split("t", "x"), "partition must be a whole number"),
        (lambda made: made.split("t", 5, into=2.5), "into must be a whole number"),
        (lambda made: made.split("t", 5, at=["7"]), "at must be a whole number; convert the text"),
        (lambda made: made.merge("t", 5, None), "other must be a whole number"),
        (lambda made: made.repartition("t", "3"), "partitions must be a whole number"),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_argument(call: Any, said: str) -> None:
    node = Node()
    with pytest.raises(InvalidArgumentError, match=said):
        call(admin(node))
    assert not node.asked
