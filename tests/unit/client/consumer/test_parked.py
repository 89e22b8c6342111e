"""Lists of parked ranges page by page, and what becomes of items."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.consumer.parked import ITEMS_A_REQUEST, Parked, ParkedOutcome, ParkedRequests, items_of
from ringfence.native.cohort_messages import CohortParked, ParkedListed, ParkedRange, ParkedSettled
from ringfence.native.errors import ConnectError, InvalidArgumentError, ProtocolError
from ringfence.native.messages import decode, encode
from ringfence.native.wire import Opcode


class Node:
    """Answers in order; keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[CohortParked]()

    def request(self, opcode: Opcode, message: Any, *, topic: str) -> tuple[Any, int]:
        assert (opcode, topic) == (Opcode.COHORT_PARKED, "t")
        self.asked.append(message)
        answer = self.answers.pop(0)
        return SimpleNamespace(control=lambda kind: decode(kind, encode(answer))), 0


def requests(node: Node) -> ParkedRequests:
    return ParkedRequests(node, "t", "c")  # type: ignore[arg-type]


def ranged(partition: int, number: int, **more: Any) -> ParkedRange:
    fields: dict[str, Any] = {
        "first": 10,
        "rows": 2,
        "count": 5,
        "reason": "bad",
        "time_ms": 9,
        "state": "parked",
    } | more
    return ParkedRange(partition=partition, number=number, **fields)


def test_pages_follow_each_other() -> None:
    node = Node(
        ParkedListed(parked=[ranged(1, 7), ranged(1, 9)], more=True),
        ParkedListed(parked=[ranged(2, 3, state="exporting", scope=4, gone=1)]),
    )
    assert list(requests(node).listed()) == [
        Parked(1, 7, 10, 2, 5, "bad", 9),
        Parked(1, 9, 10, 2, 5, "bad", 9),
        Parked(2, 3, 10, 2, 5, "bad", 9, is_exporting=True, gone=1, scope=4),
    ]
    assert node.asked[1].after == (1, 9)


def test_owners_without_an_answer_are_told_at_the_end() -> None:
    node = Node(
        ParkedListed(parked=[ranged(1, 7)], more=True, unknown=[3]),
        ParkedListed(parked=[ranged(2, 7)], unknown=[3, 4]),
    )
    listed = requests(node).listed()
    assert [next(listed).item, next(listed).item] == [(1, 7), (2, 7)]
    with pytest.raises(ConnectError) as caught:
        next(listed)
    assert caught.value.details["partitions"] == [3, 4]


def test_a_page_that_does_not_follow_is_an_error_and_no_endless_list() -> None:
    node = Node(
        ParkedListed(parked=[ranged(1, 7)], more=True), ParkedListed(parked=[ranged(1, 7)], more=True)
    )
    with pytest.raises(ProtocolError):
        list(requests(node).listed())
    with pytest.raises(ProtocolError):
        list(requests(Node(ParkedListed(parked=[], more=True))).listed())


def test_items_go_out_sorted_and_each_once_and_none_means_all() -> None:
    node = Node(ParkedSettled(done=2), ParkedSettled(done=9))
    one = Parked(3, 1, 0, 1, 5, "", 0)
    assert requests(node).act("retry", [(3, 1), one, (2, 8)], force=True) == ParkedOutcome(done=2)
    assert (node.asked[0].items, node.asked[0].force) == ([(2, 8), (3, 1)], True)
    assert requests(node).act("discard", None).done == 9
    assert not isinstance(node.asked[1].items, list)
    assert requests(Node()).act("discard", []) == ParkedOutcome(), "nothing is asked for"


def test_many_items_are_several_requests() -> None:
    node = Node(ParkedSettled(done=4095, not_parked=[(1, 5)]), ParkedSettled(done=1, gone=[(1, 4096)]))
    outcome = requests(node).act("retry", [(1, number) for number in range(ITEMS_A_REQUEST + 1)])
    assert outcome == ParkedOutcome(done=4096, not_parked=((1, 5),), gone=((1, 4096),))
    assert [len(one.items) for one in node.asked if isinstance(one.items, list)] == [ITEMS_A_REQUEST, 1]


@pytest.mark.parametrize("item", [7, (1,), (1, -1), ("1", 2), (True, 2), None])
def test_what_is_no_item_is_refused(item: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        items_of([item])


def test_a_mark_names_its_scope() -> None:
    node = Node(ParkedSettled(done=1))
    assert requests(node).mark("begin", (1, 7), 42).done == 1
    assert (node.asked[0].action, node.asked[0].items, node.asked[0].scope) == ("begin", [(1, 7)], 42)
