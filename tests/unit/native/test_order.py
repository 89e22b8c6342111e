"""Orders to a node are values: equal, shown, and made again from their parts."""

from __future__ import annotations

import pytest

from ringfence.native._node import Order
from ringfence.native.errors import ConfigError, InvalidArgumentError

POSITION = (7, 9, 1, 2, 3, 4, 10, 30, 5, b"t" * 16, True)
STORE, TOKENS = b"s" * 16, b"a" * 16 + b"b" * 16
END = (5, 100, 900, 77, 812, 2, 1_000, 0)
ORDERS = (
    Order.set_level(1),
    Order.install_topic(7, [b"schema", b"wider"], [0, 2], 10, 20),
    Order.install_table(
        7, 5, 1, b"table", [(9, 0, 99, 3, 5), (10, 100, 65_535, 4, 6)], b"to", [(3, b"there")]
    ),
    Order.install_table(
        7, 6, 2, b"table", [(11, 0, 99, 3, 5)], b"to", [], [(9, 3, 5, 2, b"children")], [(11, [9])]
    ),
    Order.remove_topic(7),
    Order.keep_rows(7, [(3, 5_000), (4, 1 << 41)]),
    Order.open(7, 9, 0, 99, 5, [(2, STORE), (3, STORE)], 2),
    Order.follow(7, 9, 0, 99, 5, 3, 4),
    Order.open_sealed(7, 9, 0, 99, 5, END, [(2, STORE)]),
    Order.follow_sealed(7, 9, 0, 99, 5, 3, END),
    Order.set_peer(3, ["tcp://127.0.0.1:1"]),
    Order.fence(7, 9, 5),
    Order.hold(7, 9, 5),
    Order.await_records(7, 9, 1_000, 250),
    Order.sync_start(7, 9, 11, 1, 3, STORE, 1 << 20),
    Order.sync_rate(11, 0),
    Order.sync_stop(11),
    Order.receive_start(7, 9, 0, 99, 11, 1, 5, 3, 4),
    Order.adopt(11, 1),
    Order.discard(11, 1),
    Order.close(7, 9),
    Order.drop(7, 9),
    Order.truncate(7, 9, 50, 5),
    Order.open_producer(7, 9, 21, 22, b"loader", 3),
    Order.doubt([(7, 9), (7, 10)]),
    Order.release_quarantine(7, 9),
    Order.check_quarantine(7, 9),
    Order.install_scopes([(1, 2, 3, 4, 7, [5, 6], [])], 9),
    Order.install_scopes([(1, 2, 3, 4, 0, [5], [POSITION])], None),
    Order.see_claim(1, 2, POSITION),
    Order.settle_committed(7, 9, 1, 2, 30),
    Order.list_parked(7, 9, 1, 2, 30),
    Order.settle_parked(7, 9, 1, "retry", [(5, 0, "open"), (6, 12, "closed")], 0, True),
    Order.settle_parked(7, 9, 1, "discard", [(5, 12, "unknown")]),
    Order.settle_parked(7, 9, 1, "begin", [(5, 0, "open")], 12),
    Order.settle_parked(7, 9, 1, "exported", [(5, 12, "committed")], 12),
    Order.publish(7, 9, 1, 2, TOKENS, 100, 50, 1),
    Order.count_staged(7, 9, 1, 2, TOKENS),
    Order.table_out(7, 9, 0, 99, 40, 21, 65_536),
    Order.table_in(7, 9, 812, 8, 0, 199, 57, True, b"page"),
    Order.gates_out(7, 8, 812, 57),
    Order.gates_in(7, 9, 812, 8, b""),
    Order.install_cohorts(
        50,
        [(7, 3, 1, 4, 5, 60_000, 30_000, 5, [6, 8])],
        [(7, 9, 9, 3, 6, 0, 40, 5, 14, None, [8], [(8, 57)], [(2, 10, 1), (4, 20, 2)])],
        [(7, 1)],
        [7],
    ),
    Order.sources(7, 9),
)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.name)
def test_an_order_is_made_again_from_its_name_and_arguments(order: Order) -> None:
    again: Order = getattr(Order, order.name)(*order.arguments)
    assert again == order
    assert again.arguments == order.arguments
    assert order.name.replace("_", "") in repr(order).lower()
    assert sum(other == order for other in ORDERS) == 1


def test_every_constructor_is_tested() -> None:
    made = {name for name, kind in vars(Order).items() if isinstance(kind, staticmethod | type(len))}
    made = {name for name in made if not name.startswith("_")}
    assert {order.name for order in ORDERS} == made


def test_defaults_are_those_of_an_owner_alone() -> None:
    assert Order.open(7, 9, 0, 99, 5) == Order.open(7, 9, 0, 99, 5, [], 1)
    assert Order.truncate(7, 9, 50) == Order.truncate(7, 9, 50, 0)


def test_an_order_cannot_be_changed_and_has_no_constructor_of_its_own() -> None:
    with pytest.raises(TypeError):
        Order()
    with pytest.raises(AttributeError):
        ORDERS[0].name = "other"  # type: ignore[misc]


def test_a_store_or_tokens_of_another_length_are_refused() -> None:
    with pytest.raises(ConfigError, match="store has 5 bytes"):
        Order.open(7, 9, 0, 99, 5, [(2, b"short")], 2)
    for action, scope in (("retry", 3), ("discard", 3), ("begin", 0), ("exported", 0), ("burn", 0)):
        with pytest.raises(ValueError, match="begin and exported name one"):
            Order.settle_parked(7, 9, 1, action, [], scope)
    with pytest.raises(ValueError, match="a fate is open"):
        Order.settle_parked(7, 9, 1, "retry", [(5, 0, "lost")])
    with pytest.raises(InvalidArgumentError, match="16 bytes each"):
        Order.count_staged(7, 9, 1, 2, b"short")
