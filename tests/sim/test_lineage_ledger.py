"""The ledger of rows with keys finds what must not be: each test has one thing wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.native._node import Encoder
from tests.sim.checks.ledger import Forced, Stored
from tests.sim.checks.lineage_ledger import LineageLedger
from tests.sim.checks.lineage_scopes import LineageScopes
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.keyed import SCHEMA, ids_of, key_of, rows_of, slot_of

PARENT, LOWER, UPPER = 1, 2, 3
MIDDLE = 32_768


def body_of(ids: list[int]) -> bytes:
    return bytes(Encoder(SCHEMA).whole(rows_of(ids))[0])


def part(number: int, lo: int, hi: int, created: int) -> Any:
    return SimpleNamespace(partition=number, slots=SimpleNamespace(lo=lo, hi=hi), created_version=created)


def layout(ends: dict[int, tuple[int, int]], lowered: int = 0) -> Any:
    """A topic whose only partition was split; `ends`: offset and records of sealed partitions.

    `lowered`: the entry by which an operator accepted them.
    """
    parts = (part(PARENT, 0, 65_535, 1), part(LOWER, 0, MIDDLE - 1, 2), part(UPPER, MIDDLE, 65_535, 2))

    def seal(number: int) -> Any:
        end = ends.get(number)
        if end is None:
            return None
        return SimpleNamespace(end=SimpleNamespace(offset=end[0], records=end[1]), lowered=lowered)

    return SimpleNamespace(layout=SimpleNamespace(partitions=parts), seal=seal)


class Written:
    """A ledger, and what stands in each partition."""

    def __init__(self, end: int = 2) -> None:
        self.ledger, self.topic = LineageLedger(), layout({PARENT: (end, end)})
        self.records: dict[int, list[Stored]] = {PARENT: [], LOWER: [], UPPER: []}

    def put(self, partition: int, ids: list[int], *, is_told: bool = True) -> None:
        log = self.records[partition]
        offset = log[-1].offset + log[-1].rows if log else 0
        log.append(Stored(offset, len(ids), ids[0], 1, body_of(ids)))
        if is_told:
            self.ledger.stored(ids, partition, offset)

    def check(self) -> None:
        self.ledger.has_layout(self.topic)
        for partition, records in self.records.items():
            self.ledger.check(partition, records)
        self.ledger.check_lineage(self.topic.layout)


def same_key(ledger: LineageLedger, *sends: int) -> list[int]:
    """A row of each send, all of one key with a slot of the lower half."""
    found: list[int] = []
    wanted = 0
    for send in sends:
        ids = ledger.draw(1, send, 400)
        wanted = wanted or next(key_of(one) for one in ids if slot_of(one) < MIDDLE)
        chosen = next(one for one in ids if key_of(one) == wanted and one not in found)
        for one in ids:
            if one != chosen:
                del ledger.rows[one]
        found.append(chosen)
    return found


def broken(written: Written) -> str:
    with pytest.raises(ViolationError) as error:
        written.check()
    return error.value.invariant


def test_bodies_keep_ids_and_keys() -> None:
    assert ids_of(body_of([5, 9, 7])) == (5, 9, 7)


def test_rows_of_a_key_in_the_order_of_their_sends_are_well() -> None:
    written = Written()
    first, second, third = same_key(written.ledger, 1, 2, 3)
    written.put(PARENT, [first])
    written.put(PARENT, [second])
    written.put(LOWER, [third])
    written.check()


def test_a_row_in_a_child_comes_after_those_of_its_parent() -> None:
    written = Written(end=1)
    first, second = same_key(written.ledger, 1, 2)
    written.put(LOWER, [first])
    written.put(PARENT, [second])
    assert broken(written) == "I7"


def test_a_row_that_stands_in_parent_and_child_is_doubled() -> None:
    written = Written(end=1)
    (first,) = same_key(written.ledger, 1)
    written.put(PARENT, [first])
    written.put(LOWER, [first], is_told=False)
    assert broken(written) == "I6"


def test_an_acknowledged_row_that_is_nowhere_is_lost() -> None:
    written = Written(end=0)
    (first,) = same_key(written.ledger, 1)
    written.ledger.known(first)
    assert broken(written) == "I5"


def test_a_refused_row_stands_nowhere() -> None:
    written = Written(end=1)
    (first,) = same_key(written.ledger, 1)
    written.ledger.not_stored([first], "refused")
    written.put(PARENT, [first], is_told=False)
    assert broken(written) == "I15"


def test_a_row_of_another_slot_does_not_belong_to_the_partition() -> None:
    written = Written(end=0)
    (first,) = same_key(written.ledger, 1)
    written.put(UPPER, [first])
    assert broken(written) == "L2"


def test_rows_after_a_sealed_end_are_found() -> None:
    written = Written(end=1)
    first, second = same_key(written.ledger, 1, 2)
    written.put(PARENT, [first])
    written.put(PARENT, [second])
    assert broken(written) == "I3"


def test_a_sealed_end_never_changes() -> None:
    written = Written(end=1)
    written.ledger.has_layout(written.topic)
    with pytest.raises(ViolationError, match="ended at"):
        written.ledger.has_layout(layout({PARENT: (2, 2)}))


def test_a_sealed_end_that_an_operator_lowered_counts_from_then_on() -> None:
    ledger = LineageLedger()
    ledger.has_layout(layout({PARENT: (9, 9)}))
    ledger.has_layout(layout({PARENT: (2, 2)}, lowered=50))
    assert ledger.ends[PARENT] == (2, 2)
    with pytest.raises(ViolationError, match="ended at"):
        ledger.has_layout(layout({PARENT: (1, 1)}, lowered=50))
    with pytest.raises(ViolationError, match="rows below 3 are known to be stored"):
        ledger.stored(ledger.draw(1, 1, 3), PARENT, 0)


# ---- transactions, and owners that an operator chose ----


def settle(written: Written, ids: list[int], *, is_decided: bool) -> None:
    """These rows were staged by one attempt, whose token a COMMIT named, or not."""
    scopes = LineageScopes(written.ledger)
    scopes.attempt(5, 9, 1, b"token").sends.append(tuple(ids))
    if is_decided:
        scopes.decided[5, 1] = frozenset({b"token"})
    scopes.settle()


def test_rows_of_a_decided_transaction_stand_once_in_their_order() -> None:
    written = Written(end=1)
    first, second = same_key(written.ledger, 1, 2)
    written.put(PARENT, [first], is_told=False)
    written.put(LOWER, [second], is_told=False)
    settle(written, [first, second], is_decided=True)
    written.check()


def test_rows_of_a_decided_transaction_in_another_order_are_found() -> None:
    written = Written(end=1)
    first, second = same_key(written.ledger, 1, 2)
    written.put(PARENT, [second], is_told=False)
    written.put(LOWER, [first], is_told=False)
    settle(written, [first, second], is_decided=True)
    assert broken(written) == "I7"


@pytest.mark.parametrize(("is_decided", "invariant"), [(True, "I5"), (False, "I15")])
def test_all_rows_of_a_transaction_stand_or_none(is_decided: bool, invariant: str) -> None:
    written = Written(end=1)
    first, second = same_key(written.ledger, 1, 2)
    written.put(PARENT, [first], is_told=False)
    settle(written, [first, second], is_decided=is_decided)
    assert broken(written) == invariant


@pytest.mark.parametrize("end", [1, 2])
def test_only_rows_above_the_end_of_a_chosen_log_may_be_gone(end: int) -> None:
    written = Written(end=end)
    first, second = same_key(written.ledger, 1, 2)
    for offset, number in enumerate((first, second)):
        written.ledger.stored([number], PARENT, offset, (1, 1))
    written.ledger.forced(PARENT, Forced(epoch=7, last_epoch=1, end=end))
    if end == 1:
        written.put(PARENT, [first], is_told=False)
        written.check()
    else:
        assert broken(written) == "I5"
