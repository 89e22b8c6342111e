"""`client.admin` about parked rows: what an export of several ranges tells."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.client_admin import ClientAdmin
from ringfence.consumer.exporter import Exported
from ringfence.native.errors import ConflictError, InvalidArgumentError
from tests.fakes.parked_node import ParkedNode

FIRST, SECOND = (1, 7), (2, 8)


@pytest.fixture
def node() -> ParkedNode:
    return ParkedNode(FIRST, SECOND)


def admin(node: Any) -> ClientAdmin:
    return ClientAdmin(node, node)


def test_it_lists_retries_and_discards(node: ParkedNode) -> None:
    listed = list(admin(node).parked("t", "c"))
    assert [one.item for one in listed] == [FIRST, SECOND]
    assert (listed[0].first_offset, listed[0].end_offset) == (70, 72)
    assert admin(node).retry_parked("t", "c", listed[:1]).done == 1
    assert admin(node).discard_parked("t", "c").done == 1
    assert list(admin(node).parked("t", "c")) == []


def test_all_or_chosen_ranges_are_exported(node: ParkedNode) -> None:
    done = admin(node).export_parked("t", "c", to="u", items=[SECOND, (9, 9)])
    assert done == Exported(exported=(SECOND,), rows=2, not_parked=((9, 9),))
    assert admin(node).export_parked("t", "c", to="u") == Exported(exported=(FIRST,), rows=2)
    assert admin(node).export_parked("t", "c", to="u", items=[]) == Exported()
    assert admin(node).export_parked("t", "c", to="u") == Exported()


def test_what_is_not_known_is_told_at_the_end_and_again_decides_it(node: ParkedNode) -> None:
    node.parked[FIRST], node.scope_of[FIRST] = "exporting", 9
    with pytest.raises(ConflictError, match="--again") as caught:
        admin(node).export_parked("t", "c", to="u")
    assert (caught.value.details["unknown"], caught.value.details["exported"]) == ((FIRST,), (SECOND,))
    assert admin(node).export_parked("t", "c", to="u", again=True).exported == (FIRST,)


def test_the_target_is_created_with_the_columns_and_the_key(node: ParkedNode) -> None:
    del node.topics["u"]
    done = admin(node).export_parked("t", "c", to="u", create=True)
    assert done.exported == (FIRST, SECOND)
    assert node.made == [("u", {"key": ["id"], "replication": 1, "exist_ok": True})]
    with pytest.raises(InvalidArgumentError):
        admin(node).export_parked("t", "c", to="t", create=True)
